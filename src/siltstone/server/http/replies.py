"""Replies: what the handler of a request returns, and the response that sends a long one.

Rows are sent as they are read: once one piece is sent, or while it is, the next one is read and
encoded, and no other before that was taken. A client that reads nothing for too long is cut off; so
is a stream that fails in its middle, if its format has no words for that: it has no footer, or no
end-of-stream, and is not taken for whole.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone.deadline import Deadline, check, within
from siltstone.errors import UnavailableError
from siltstone.server.http.policy import RequestPolicy

JSON_TYPE = "application/json"
Body_co = TypeVar("Body_co", covariant=True)
_log = logging.getLogger("siltstone.server")


@dataclass(frozen=True, slots=True)
class Pieces:
    """A body that is made as it is sent; `close` is called when it ended, or was given up."""

    media_type: str
    chunks: Iterator[bytes]
    close: Callable[[], object] = lambda: None
    told: Callable[[Exception], bytes] | None = None
    """Returns the last piece of a body that failed in its middle, if its format has one."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Body_co]):
    """A value, bytes of a media type, or pieces; `seq` is what it shows, or committed."""

    body: Body_co
    seq: int | None = None
    status: int = 200
    media_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict[str, str])


class ByteSink:
    """A file that gives back what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self.nbytes = 0

    def write(self, data: object) -> int:
        """Keep the bytes."""
        piece = memoryview(data).tobytes()  # type: ignore[arg-type]
        self._written.append(piece)
        self.nbytes += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken = b"".join(self._written)
        self._written.clear()
        self.nbytes = 0
        return taken

    def file(self) -> Any:
        """Return it as a file of Arrow's."""
        return pa.PythonFile(cast("Any", self), "w")


class StreamedResponse(Response):
    """The response that sends `Pieces`. The first one is made already: its errors are answers."""

    def __init__(
        self,
        pieces: Pieces,
        first: bytes,
        headers: dict[str, str],
        *,
        executor: Executor,
        policy: RequestPolicy,
        is_over: Callable[[], bool],
        deadline: Callable[[], Deadline | None],
    ) -> None:
        super().__init__(None, 200, headers, pieces.media_type)
        del self.headers["content-length"]  # nobody knows it yet
        self._pieces, self._first, self._executor = pieces, first, executor
        self._policy, self._is_over = policy, is_over
        self._deadline = deadline
        self._lock, self._has_failed = threading.Lock(), False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the rows end, or nobody reads them any more."""
        gone = asyncio.get_running_loop().create_task(_disconnected(receive))
        try:
            await self._send_all(send, gone)
        except Exception as error:  # noqa: BLE001 - the answer has begun: it can only be cut off
            _log.warning("a stream of rows was cut off: %s: %s", type(error).__name__, error)
            scope["state"]["connection"].transport.abort()
        finally:
            gone.cancel()
            try:
                self._executor.submit(self.close)
            except RuntimeError:  # the server is closed
                self.close()

    async def _send_all(self, send: Send, gone: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: bytes | None = self._first
        while piece is not None:
            if gone.done():
                _log.info("a client went away while it read rows")
                return
            read = partial(loop.run_in_executor, self._executor, self.read_next)
            upcoming = read() if self._policy.reads_ahead else None
            try:
                async with asyncio.timeout(self._policy.send_timeout_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                if upcoming is not None:  # also where sending failed: `close` would wait for it
                    await asyncio.wait([upcoming])
            piece = await (upcoming or read())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def read_next(self) -> bytes | None:
        """Return the next piece, None at the end."""
        pieces = self._pieces
        with self._lock, within(self._deadline()):
            if self._has_failed:
                return None
            try:
                check()
                if self._is_over():
                    raise UnavailableError("the server closes")
                return next(pieces.chunks, None)
            except Exception as error:
                if pieces.told is None:
                    raise
                self._has_failed = True
                return pieces.told(error)

    def close(self) -> None:
        """Give up what is left. It waits for a piece that is just read."""
        with self._lock:
            self._pieces.close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
