"""Answers: what a call returned, as the body of a response.

A stream of rows is an Arrow IPC stream, sent batch by batch as the client reads. Its last batch is
empty, and its metadata says that it is the last, or which error ended the stream: one that was cut
off is never taken for whole.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any, cast

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone import errors
from siltstone.deadline import Deadline, within
from siltstone.errors import SiltstoneError, UnavailableError, in_words
from siltstone.joined.protocol import ARROW_TYPE, END_KEY, ERROR_KEY, VALUES_TYPE
from siltstone.joined.values import encode, error_fields

_log = logging.getLogger("siltstone.server")

Turn = Callable[[], AbstractContextManager[object]]
"""What one batch of rows is read within, and nothing else that uses the same transaction."""

_STATUS: tuple[tuple[type[SiltstoneError], int], ...] = (
    (errors.TableNotFoundError, 404),
    (errors.TableExistsError, 409),
    (errors.DuplicateKeyError, 409),
    (errors.SnapshotExpiredError, 410),
    (errors.ClosedError, 410),
    (errors.ReadOnlyError, 403),
    (errors.RequestError, 400),
    (errors.ConflictError, 409),
    (errors.FencedError, 409),
    (errors.BusyError, 503),
    (errors.UnavailableError, 503),
)


def status_of(error: SiltstoneError) -> int:
    """Return the HTTP status of an error; 500 if it is not the caller's."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def as_error(error: Exception, *, is_told: bool) -> SiltstoneError:
    """Return an error that may travel; one that nobody foresaw is logged here, where it arose.

    Args:
        is_told: Also in its own words, which may hold what is not a stranger's to know.
    """
    if isinstance(error, SiltstoneError):
        return error
    _log.exception("a request failed", exc_info=error)
    return SiltstoneError(f"the owner failed: {in_words(error) if is_told else 'its log says why'}")


def refusal(error: SiltstoneError, headers: dict[str, str], status: int | None = None) -> Response:
    """Return the response to a call that raised: for people, and for `values.raised`."""
    status = status or status_of(error)
    body = {
        "error": str(error),
        "code": status,
        "type": type(error).__name__,
        "fields": b64encode(encode(error_fields(error))).decode(),
    }
    return Response(json.dumps(body), status, headers, "application/json")


def answer(value: object, headers: dict[str, str]) -> Response:
    """Return the response that holds one value."""
    return Response(encode(value), 200, headers, VALUES_TYPE)


def rows(table: pa.Table) -> Response:
    """Return the response that holds a few rows, in one piece; as a `Stream` would."""
    pieces = _Pieces()
    writer = _writer_of(pieces, table.schema)
    for batch in table.to_batches():
        writer.write_batch(batch)
    _end(writer, table.schema, {END_KEY: b""})
    return Response(pieces.take(), 200, None, ARROW_TYPE)


def _writer_of(pieces: _Pieces, schema: pa.Schema) -> Any:
    return pa.ipc.new_stream(pa.PythonFile(cast("Any", pieces), "w"), schema)


def _end(writer: Any, schema: pa.Schema, metadata: dict[bytes, bytes]) -> None:
    empty = [pa.array([], field.type) for field in schema]
    last = pa.RecordBatch.from_arrays(empty, schema=schema)
    writer.write_batch(last, custom_metadata=metadata)
    writer.close()


class _Pieces:
    """A file that gives back what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: object) -> int:
        self._written.append(memoryview(data).tobytes())  # type: ignore[arg-type]
        return len(self._written[-1])

    def flush(self) -> None:
        """Nothing waits."""

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written.clear()
        return taken


class Stream(Response):
    """Rows as they are read: one batch is read, sent, and only then the next one is read."""

    media_type = ARROW_TYPE

    def __init__(
        self,
        batches: pa.RecordBatchReader,
        headers: dict[str, str],
        *,
        executor: Executor,
        is_over: Callable[[], bool],
        turn: Turn | None,
        deadline: Callable[[], Deadline | None],
        tells_all: bool,
    ) -> None:
        super().__init__(None, 200, headers)
        del self.headers["content-length"]  # nobody knows it yet
        self._batches, self._executor, self._is_over = batches, executor, is_over
        alone = threading.Lock()
        self._turn = turn or (lambda: alone)
        self._deadline = deadline
        self._pieces = _Pieces()
        self._writer = _writer_of(self._pieces, batches.schema)
        self._is_ended, self._tells_all = False, tells_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the rows until they end, or nobody reads them any more."""
        loop = asyncio.get_running_loop()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            while not self._is_ended:
                piece = await loop.run_in_executor(self._executor, self._next)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            try:
                self._executor.submit(self._close)
            except RuntimeError:  # the process ends without `close`
                self._close()

    def _next(self) -> bytes:
        with self._turn(), within(self._deadline()):
            try:
                if self._is_over():
                    raise UnavailableError("the owner closes the store, or the connection ended")
                self._writer.write_batch(self._batches.read_next_batch())
            except StopIteration:
                self._end({END_KEY: b""})
            except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it
                told = as_error(error, is_told=self._tells_all)
                self._end({ERROR_KEY: encode(error_fields(told))})
            return self._pieces.take()

    def _end(self, metadata: dict[bytes, bytes]) -> None:
        self._is_ended = True
        _end(self._writer, self._batches.schema, metadata)

    def _close(self) -> None:
        with self._turn():
            self._batches.close()
