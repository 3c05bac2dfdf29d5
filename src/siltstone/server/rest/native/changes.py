"""Feed: every row version of the keyed tables since a seq, in seq order, as it is read.

As NDJSON, of any number of tables: `{"seq", "op", "table", "row"}` a line, and a last line
`{"until"}` that says that nothing is missing. As an Arrow IPC stream, of one table, with `_seq`
and `_op`. Nothing is read before the client has taken what was read before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.wire import NDJSON_TYPE, PIECE_BYTES, arrow, encoded
from siltstone.server.served import Served
from siltstone.text.spelled import listed, span_text


class ChangeRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def changes(self, call: RestCall[None]) -> Reply[Pieces]:
        """Return the changes (since, until] of some tables, or of all keyed ones."""
        since, until = call.number("since") or 0, call.number("until")
        names = [name for name in (call.query.get("tables") or "").split(",") if name]
        form = call.query.get("format") or "ndjson"
        if form not in {"ndjson", "arrow"}:
            raise invalid("format is ndjson or arrow")
        db = self._served.db
        end = db.durable_seq if until is None else until
        readers = db.changes(since, end, names or None)
        if form == "ndjson":
            return Reply(Pieces(NDJSON_TYPE, _lines(readers, end)), end)
        if len(readers) != 1:
            raise invalid("an Arrow stream has the changes of one table: tables=<name>")
        (reader,) = readers.values()
        return Reply(arrow(reader, reader.close, is_file=False), end)


def _lines(readers: dict[str, pa.RecordBatchReader], end: int) -> Iterator[bytes]:
    """Yield lines, some at a time; of several tables in the order of their seqs."""
    changes = heapq.merge(
        *(_changes(name, reader) for name, reader in readers.items()), key=lambda change: change[0]
    )
    piece = bytearray()
    for _, change in changes:
        piece += encoded(change) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + encoded({"until": end}) + b"\n"


def _changes(name: str, reader: pa.RecordBatchReader) -> Iterator[tuple[int, dict[str, object]]]:
    for batch in reader:
        for start in range(0, batch.num_rows, 1024):
            part = _spelled(batch.slice(start, 1024))
            for values in zip(*map(listed, part.columns), strict=True):
                row = dict(zip(part.schema.names, values, strict=True))
                seq, op = row.pop("_seq"), row.pop("_op")
                yield seq, {"seq": seq, "op": op, "table": name, "row": row}


def _spelled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with what has nanoseconds as text: Python's own end before."""
    columns: list[pa.Array] = []
    for column in batch.columns:
        kind = column.type
        if (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns":
            columns.append(pc.replace_substring(column.cast(pa.string()), " ", "T"))
        elif pa.types.is_duration(kind) and kind.unit == "ns":
            nanos = column.cast(pa.int64()).to_pylist()
            columns.append(pa.array([None if n is None else span_text(n) for n in nanos]))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
