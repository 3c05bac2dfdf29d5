"""RPC wire: messages and Arrow streams, in and out, for the pipeline of requests.

A stream of rows is an Arrow IPC stream, sent batch by batch as the client reads. Its last batch is
empty, and its metadata says that it is the last, or which error ended the stream: one that was cut
off is never taken for whole.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from starlette.responses import Response

from siltstone import errors
from siltstone.errors import ClosedError, RequestError, SiltstoneError, UnavailableError, in_words
from siltstone.joined import protocol
from siltstone.joined.values import decode, encode, error_fields, stream_of_bytes, too_large
from siltstone.server.http.replies import JSON_TYPE, RETRY_AFTER, ByteSink, Pieces, Reply
from siltstone.server.http.request import BodyTooLargeError, HttpRequest
from siltstone.server.http.route import Route
from siltstone.server.rpc.calls import Outcome, RpcCall, Turn
from siltstone.server.sessions import Session, Sessions
from siltstone.telemetry.notices import NoticeLog

ONE_PIECE_BYTES_MAX = 1 << 20
_log = NoticeLog("siltstone.server")

_CONTEXT = (protocol.TRANSACTION_HEADER, protocol.SNAPSHOT_HEADER, protocol.ID_HEADER)
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
    (errors.BusyError, 429),
    (errors.UnavailableError, 503),
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a gate knows of a client: `client` has its own share of what servers run."""

    may_write: bool = True
    client: str | None = None


class RpcWire:
    """See the module; a `WireFormat`."""

    encode = staticmethod(encode)

    def __init__(
        self,
        sessions: Sessions,
        *,
        tells_all: bool = True,
        gate: Callable[[HttpRequest, Route], Admitted] = lambda _, __: Admitted(),
        ended: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Serve the sessions of connections.

        Args:
            tells_all: Whether clients get an unexpected error in its own words, which
                may hold what only this user may know.
            gate: Says who asks, and whether it may write, or raises AccessError.
            ended: Says why the store here takes no calls any more, once it is being closed:
                to clients, whose own are open, it is gone.
        """
        self._sessions, self._gate = sessions, gate
        self._tells_all, self._ended = tells_all, ended

    def admit(self, request: HttpRequest, route: Route) -> Session:
        """Return the session of the connection."""
        admitted = self._gate(request, route)
        session = request.connection.session()
        session.may_write, session.client = admitted.may_write, admitted.client
        if session.refusal is not None:
            request.may_go_on = False
            raise session.refusal
        return session

    def client_of(self, caller: Session) -> str | None:
        """Return whose share of the lane a statement takes."""
        return caller.client

    def run(self, request: HttpRequest, route: Route, caller: Session, body: bytes) -> Reply:
        """Return the reply of the route's handler; rows as a stream, or in one piece if few."""
        headers = request.headers
        verb = route.name or request.params["verb"]
        arguments, named = _arguments(body, headers.get("content-type", ""))
        context = map(headers.get, _CONTEXT)
        call = RpcCall(caller, verb, arguments, named, *context, path=request.params)
        outcome: Outcome = route.handler(call)
        found = outcome.value
        if not isinstance(found, pa.RecordBatchReader | pa.Table):
            return Reply(encode(found), media_type=protocol.VALUES_TYPE)
        rows = self.pieces(found, outcome.turn)
        if isinstance(found, pa.Table) and found.nbytes <= ONE_PIECE_BYTES_MAX:
            return Reply(b"".join(rows.chunks), media_type=protocol.ARROW_TYPE)
        return Reply(rows)

    def prepare(self, *_: object) -> None:
        """No verb has a group: each request runs alone."""

    def pieces(self, found: pa.RecordBatchReader | pa.Table, turn: Turn | None) -> Pieces:
        """Return rows as the pieces of a stream."""
        batches = found.to_reader() if isinstance(found, pa.Table) else found
        rows = _RowStream(batches, turn, self._told)
        return Pieces(protocol.ARROW_TYPE, rows.chunks(), rows.close, rows.told)

    def _told(self, error: Exception) -> SiltstoneError:
        """Return an error that may travel; an unexpected one is logged here."""
        if type(error) is ClosedError and self._ended() is not None:
            return UnavailableError("the owner closes the store; nothing was changed by this call")
        if isinstance(error, SiltstoneError):
            return error
        _log.error("a request failed", exc_info=error)
        text = in_words(error) if self._tells_all else "its log says why"
        return SiltstoneError(f"the owner failed: {text}")

    def refusal(self, error: Exception, request: HttpRequest, route: Route | None) -> Response:  # noqa: ARG002
        """Return the answer that `values.raised` makes an error of, in words for people, too."""
        is_large = isinstance(error, BodyTooLargeError)
        told = too_large(error.bytes_max) if is_large else self._told(error)
        if isinstance(told, errors.AccessError):
            return _refusal(told, told.status)
        known = (status for kind, status in _STATUS if isinstance(told, kind))
        return _refusal(told, next(known, 500))

    def unknown(self, request: HttpRequest, status: int) -> Response:  # noqa: ARG002
        """Return the answer where no route is."""
        words = {404: "Not Found", 405: "Method Not Allowed"}[status]
        text = f"{words}: the routes are those of siltstone's joined protocol"
        return _refusal(RequestError(text), status)

    def headers(self, request: HttpRequest, caller: Session | None) -> dict[str, str]:  # noqa: ARG002
        """Return the id under which the connection's next commit is to be asked for."""
        if caller is None:
            return {}
        return {protocol.ID_HEADER: self._sessions.reserved(caller)}


def _refusal(error: SiltstoneError, status: int) -> Response:
    body = {
        "error": str(error),
        "code": status,
        "type": type(error).__name__,
        "fields": b64encode(encode(error_fields(error))).decode(),
    }
    headers = RETRY_AFTER if status == 429 else None
    return Response(json.dumps(body), status, headers, JSON_TYPE)


def _arguments(body: bytes, kind: str) -> tuple[list[Any], dict[str, Any]]:
    if kind == protocol.ARROW_TYPE:
        return [stream_of_bytes(body).read_all()], {}
    if not body:
        return [], {}
    match decode(body):
        case [list() as arguments, dict() as named]:
            return arguments, named
        case _:
            raise RequestError("a message holds [positional arguments, named arguments]")


class _RowStream:
    """Rows as they are read, each batch in its own turn."""

    def __init__(
        self,
        batches: pa.RecordBatchReader,
        turn: Turn | None,
        error_of: Callable[[Exception], SiltstoneError],
    ) -> None:
        self._alone = threading.Lock()
        self._turn: Turn = turn or nullcontext
        self._batches, self._error_of, self._is_ended = batches, error_of, False
        self._sink = ByteSink()
        self._writer: Any = pa.ipc.new_stream(self._sink, batches.schema)

    def chunks(self) -> Iterator[bytes]:
        while True:
            with self._alone, self._turn():
                try:
                    self._writer.write_batch(self._batches.read_next_batch())
                except StopIteration:
                    break
            yield self._sink.take()
        yield self._end({protocol.END_KEY: b""})

    def told(self, error: Exception) -> bytes:
        if self._is_ended:
            return b""
        fields = encode(error_fields(self._error_of(error)))
        return self._end({protocol.ERROR_KEY: fields})

    def _end(self, metadata: dict[bytes, bytes]) -> bytes:
        self._is_ended = True
        schema = self._batches.schema
        empty = [pa.array([], field.type) for field in schema]
        last = pa.RecordBatch.from_arrays(empty, schema=schema)
        self._writer.write_batch(last, custom_metadata=metadata)
        self._writer.close()
        return self._sink.take()

    def close(self) -> None:
        with self._alone, self._turn():
            self._batches.close()
            del self._batches  # what makes them ends with the last that refers to them
