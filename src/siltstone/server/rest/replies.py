"""Replies: what a handler returns, as the response to a request.

Rows are sent as they are read: while one piece is sent the next one is read and encoded, and no
other before that was taken. A client that reads nothing for too long is cut off; so is a stream
that fails in its middle: it has no footer, or no end-of-stream, and is not taken for whole.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone.deadline import Deadline, check, within
from siltstone.errors import UnavailableError
from siltstone.server.rest.refusals import JSON_TYPE

FILE_TYPE = "application/vnd.apache.arrow.file"
STREAM_TYPE = "application/vnd.apache.arrow.stream"
NDJSON_TYPE = "application/x-ndjson"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PIECE_BYTES = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_log = logging.getLogger("siltstone.server")


@dataclass(frozen=True, slots=True)
class Pieces:
    """A body that is made as it is sent; `close` is called when it ended, or was given up."""

    media_type: str
    chunks: Iterator[bytes]
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Reply:
    """A value (JSON), bytes of a media type, or pieces; `seq` is what it shows, or committed."""

    body: object = None
    seq: int | None = None
    status: int = 200
    media_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict[str, str])


def empty(seq: int | None = None) -> Reply:
    """Return an answer without a body."""
    return Reply(b"", seq)


def encoded(value: object) -> bytes:
    """Return a value as JSON: times as ISO 8601, bytes as base64, decimals as strings."""
    return msgspec.json.encode(value, enc_hook=_of_pandas)


def _of_pandas(value: object) -> str:
    """Arrow's moments of nanoseconds, in lists and structs: a `datetime` that pandas made more."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise NotImplementedError


def _stream(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield batches as an Arrow IPC stream: what its writer writes, but copied once less."""
    messages: list[Any] = [schema.serialize()]
    nbytes = 0
    for batch in batches:
        message = batch.serialize()
        messages.append(message)
        nbytes += message.size
        if nbytes >= PIECE_BYTES:
            yield b"".join(messages)
            messages, nbytes = [], 0
    yield b"".join([*messages, _END_OF_STREAM])


def _file(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield batches as an Arrow IPC file, which says at its end where each of them is."""
    sink = _Sink()
    writer = cast("Any", pa.ipc.new_file(pa.PythonFile(cast("Any", sink), "w"), schema))
    for batch in batches:
        writer.write_batch(batch)
        if sink.nbytes >= PIECE_BYTES:
            yield sink.take()
    writer.close()
    yield sink.take()


def arrow(reader: pa.RecordBatchReader, close: Callable[[], object], *, is_file: bool) -> Pieces:
    """Return rows as an Arrow IPC stream, or file."""

    def end() -> None:
        reader.close()
        close()

    chunks = (_file if is_file else _stream)(reader.schema, iter(reader))
    return Pieces(FILE_TYPE if is_file else STREAM_TYPE, chunks, end)


class _Sink:
    """A file that gives back what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self.nbytes = 0

    def write(self, data: object) -> int:
        piece = memoryview(data).tobytes()  # type: ignore[arg-type]
        self._written.append(piece)
        self.nbytes += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written.clear()
        self.nbytes = 0
        return taken


class Streamed(Response):
    """The response that sends `Pieces`. The first one is made already: its errors are answers."""

    def __init__(
        self,
        pieces: Pieces,
        first: bytes,
        headers: dict[str, str],
        *,
        executor: Executor,
        send_timeout_s: float,
        is_over: Callable[[], bool],
        deadline: Deadline,
    ) -> None:
        super().__init__(None, 200, headers, pieces.media_type)
        del self.headers["content-length"]  # nobody knows it yet
        self._pieces, self._first, self._executor = pieces, first, executor
        self._send_timeout_s, self._is_over = send_timeout_s, is_over
        self._deadline = deadline

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
                self._executor.submit(self._pieces.close)
            except RuntimeError:  # the server is closed
                self._pieces.close()

    async def _send_all(self, send: Send, gone: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: bytes | None = self._first
        while piece is not None:
            if gone.done():
                raise UnavailableError("the client went away")
            upcoming = loop.run_in_executor(self._executor, self._next)
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                # Also where sending failed: nobody may close what is still read.
                await asyncio.wait([upcoming])
            piece = upcoming.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _next(self) -> bytes | None:
        if self._is_over():
            raise UnavailableError("the server closes")
        with within(self._deadline):
            check()
            return next(self._pieces.chunks, None)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
