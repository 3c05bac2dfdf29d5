"""Server: the requests that a bucket answers, one each, as `Objects` makes its rules of them.

An answer is one of these: a value; None, where no object has the key; `Exists`, where a condition
did not hold; an error of siltstone, which another try would get, too; and `Unanswered`. After that
one the request may be done, not be done, or be done in a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

PART_BYTES = 8 << 20
"""An object of this size is put and read whole; of a larger one three parts are in memory."""


class Unanswered(Exception):
    """No answer, or one that asks for another try; the request may be done, or be done later."""


class Exists(Exception):
    """The server says that the condition of a put did not hold. It may be wrong: see `Objects`."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """An object: its key below the prefix, bytes, ETag, seconds since 1970 by the server's time."""

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class FoundObject:
    """The bytes of an object, or of a range of it; `head` is of all of it."""

    data: bytes
    head: ObjectHead

    @property
    def etag(self) -> str:
        return self.head.etag


@dataclass(frozen=True, slots=True)
class Streamed:
    """The bytes of a large object, in parts; each call of `parts` begins anew, and may raise."""

    size: int
    parts: Callable[[], Iterator[bytes]]


class BucketServer(Protocol):
    """The requests. Every method may raise `Unanswered`, and errors as the module says."""

    @property
    def url(self) -> str:
        """The place of all keys, for messages."""
        ...

    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        """Put an object, whole or not at all; return its ETag.

        `is_new`: only if no object has the key; `etag`: only if the object has this one.

        Raises:
            Exists: The condition did not hold, as the server says.
        """
        ...

    def put_streamed(self, key: str, body: Streamed) -> str:
        """Put a large object, whole or not at all; it replaces one of the same key."""
        ...

    def get(self, key: str, start: int = 0, end: int | None = None) -> FoundObject | None:
        """Return the bytes from `start` to `end`; perhaps fewer, if the connection broke."""
        ...

    def head(self, key: str) -> ObjectHead | None: ...

    def list_after(self, prefix: str, after: str) -> Iterator[list[ObjectHead]]:
        """Yield the objects whose keys begin with `prefix` and are above `after`, in their order.

        One request a page. `prefix` is empty or ends in a slash.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; nothing to do if there is none."""
        ...
