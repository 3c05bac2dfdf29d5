"""Replies: what the handler of a request returns."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

JSON_TYPE = "application/json"
RETRY_AFTER = {"retry-after": "1"}
"""The headers of an answer with status 429: seconds until it may be worth to ask again."""
Body_co = TypeVar("Body_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Feed:
    """How a body without an end waits: an empty piece means that there is nothing yet.

    In the block of `heard` a function is called once there may be more. `idle` is sent where
    nothing came for a while, so that both sides notice that the other one is gone.
    """

    heard: Callable[[Callable[[], object]], AbstractContextManager[None]]
    idle: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """A body that is made as it is sent; `close` is called when it ended, or was given up."""

    media_type: str
    chunks: Iterator[bytes]
    close: Callable[[], object] = lambda: None
    told: Callable[[Exception], bytes] | None = None
    """Returns the last piece of a body that failed in its middle, if its format has one."""
    feed: Feed | None = None


@dataclass(frozen=True, slots=True)
class Reply(Generic[Body_co]):
    """A value, bytes of a media type, or pieces; `seq` is what it shows, or committed."""

    body: Body_co
    seq: int | None = None
    status: int = 200
    media_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict[str, str])


class ByteSink(io.BytesIO):
    """A file that gives back what was written to it."""

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken = self.getvalue()
        self.seek(0)
        self.truncate()
        return taken
