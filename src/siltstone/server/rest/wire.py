"""REST wire: JSON and Arrow, in and out, for the pipeline of requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

import msgspec
import pyarrow as pa
from starlette.responses import Response

from siltstone.lance_namespace.specification.full_text import STRUCTURED
from siltstone.lance_versions.errors import Code, invalid
from siltstone.server.http.replies import ByteSink, Pieces, Reply
from siltstone.server.http.request import REQUEST_ID_HEADER, HttpRequest
from siltstone.server.http.route import Route
from siltstone.server.rest import refusals
from siltstone.server.rest.access import Gate
from siltstone.server.rest.call import OUR_PREFIX, RestCall, check_headers
from siltstone.server.rest.tokens import Principal
from siltstone.text.spelled import span_text

FILE_TYPE = "application/vnd.apache.arrow.file"
STREAM_TYPE = "application/vnd.apache.arrow.stream"
NDJSON_TYPE = "application/x-ndjson"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LANCEDB_VERSION_HEADER = "phalanx-version"
PIECE_BYTES = 256 << 10
"""About so large is a piece of a body. Its copies stay below what malloc maps anew each time
(`process.malloc`): larger ones cost a page fault for every 4 KiB."""
_PREFIX_SIZE = len(OUR_PREFIX)
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _of_pandas(value: object) -> str:
    """Arrow's moments of nanoseconds, in lists and structs: a `datetime` that pandas made more."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        exact: Any = cast("Any", value).to_timedelta64().astype("timedelta64[ns]")
        return span_text(int(exact.astype("int64")))
    raise NotImplementedError


EVENTS_TYPE = "text/event-stream"
encoded = msgspec.json.Encoder(enc_hook=_of_pandas).encode
"""Returns a value as JSON: times as ISO 8601, bytes as base64, decimals as strings."""


def _stream(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield batches as an Arrow IPC stream: what its writer writes, but copied once less."""
    messages: list[Any] = [schema.serialize()]
    nbytes = 0
    for batch in _cut(batches):
        message = batch.serialize()
        messages.append(message)
        nbytes += message.size
        if nbytes >= PIECE_BYTES:
            yield b"".join(messages)
            messages, nbytes = [], 0
    yield b"".join([*messages, _END_OF_STREAM])


def _cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about a piece, at least one row each."""
    for batch in batches:
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, max(1, batch.num_rows), rows):
            yield batch.slice(start, rows)


def _file(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield batches as an Arrow IPC file, which says at its end where each of them is."""
    sink = ByteSink()
    writer: Any = pa.ipc.new_file(sink, schema)
    for batch in _cut(batches):
        writer.write_batch(batch)
        if sink.tell() >= PIECE_BYTES:
            yield sink.take()
    writer.close()
    yield sink.take()


def arrow(reader: pa.RecordBatchReader, close: Callable[[], object], *, is_file: bool) -> Pieces:
    """Return rows as an Arrow IPC stream, or file."""
    chunks = (_file if is_file else _stream)(reader.schema, iter(reader))
    return Pieces(FILE_TYPE if is_file else STREAM_TYPE, chunks, close)


VERSIONS = "/v1/table/{id}/version/list"
"""Lance's own client sends null as the body of a list of versions."""


def _check_query(query: Mapping[str, str], route: Route) -> None:
    known = {*route.query, *(("delimiter",) if "{id}" in route.path else ())}
    unknown = sorted(query.keys() - known)
    if unknown:
        raise invalid(f"{route.path} reads {sorted(known)} of a query, not {unknown!r:.200}")


class RestWire:
    """See the module; a `WireFormat`."""

    encode = staticmethod(encoded)

    def __init__(self, gate: Gate) -> None:
        self.admit = gate.admit

    def client_of(self, caller: Principal) -> str:
        """Return whose share of the lane a statement takes."""
        return caller.name

    def run(self, request: HttpRequest, route: Route, caller: Principal, body: bytes) -> Reply:
        """Return the reply of the route's handler."""
        return route.handler(self._call(request, route, caller, body))

    def prepare(
        self, request: HttpRequest, route: Route, caller: Principal, body: bytes
    ) -> Any | None:
        """Return what the route's group needs of a request; None: its handler does it."""
        assert route.grouping is not None
        return route.grouping.prepare(self._call(request, route, caller, body))

    def _call(self, request: HttpRequest, route: Route, caller: Principal, body: bytes) -> RestCall:
        query = request.query() if request.scope["query_string"] else {}
        if body == b"null" and route.path == VERSIONS:
            body = b""
        ours = [each for each in request.scope["headers"] if each[0][:_PREFIX_SIZE] == OUR_PREFIX]
        if ours:
            check_headers(ours)
        call = RestCall(request.params, query, request.headers, body, caller, route.request)
        if query and not route.is_query_typed:
            _check_query(query, route)
        if route.is_checked:
            call.check()
        return call

    def refusal(self, error: Exception, request: HttpRequest, route: Route | None) -> Response:
        """Return the flat error; our log has it, too, if the client shows no reason."""
        if route is not None and route.is_commit_of_version:
            refusals.note(error, request.id)
        return refusals.response_of(error, request.id)

    def unknown(self, request: HttpRequest, status: int) -> Response:
        """Return the flat error where no route is: no such address, or no such method."""
        text = f"{HTTPStatus(status).phrase.lower()}: the routes are those of /openapi.json"
        return refusals.refusal(status, Code.UNSUPPORTED, text, request.id)

    def headers(self, request: HttpRequest, caller: Principal | None) -> dict[str, str]:  # noqa: ARG002
        """Return the id of the request, and what LanceDB's client takes for our version.

        Without it that client sends words without their operator, fuzziness, weights or phrase.
        """
        return {REQUEST_ID_HEADER: request.id, LANCEDB_VERSION_HEADER: STRUCTURED}
