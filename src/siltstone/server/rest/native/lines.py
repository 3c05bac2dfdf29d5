"""Lines: rows as NDJSON, an object a line, in pieces, as they are read.

A last line says that nothing is missing: an answer that fails in its middle is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Pieces
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.wire import NDJSON_TYPE, PIECE_BYTES, encoded
from siltstone.text.spelled import listed, span_text

Row = dict[str, object]
_ROWS = 1024
LINES, ARROW = "ndjson", "arrow"


def form_of(call: RestCall, *others: str) -> str:
    """Return the form that an answer is asked for in: lines, an Arrow stream, or one of others.

    Raises:
        Refused: It is another one.
    """
    form, known = call.query.get("format") or LINES, (LINES, ARROW, *others)
    if form not in known:
        raise invalid(f"format is {', '.join(known[:-1])} or {known[-1]}")
    return form


def is_arrow(call: RestCall) -> bool:
    """Say whether the answer is an Arrow stream; else it is lines.

    Raises:
        Refused: It is asked for in another form.
    """
    return form_of(call) == ARROW


def lines(values: Iterable[object]) -> Pieces:
    """Return values as lines."""
    return Pieces(NDJSON_TYPE, pieces(values))


def pieces(values: Iterable[object]) -> Iterator[bytes]:
    """Yield lines, some at a time."""
    piece = bytearray()
    for value in values:
        piece += encoded(value) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield rows as objects that JSON has a form for."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            part = _spelled(batch.slice(start, _ROWS))
            names = part.schema.names
            for values in zip(*map(listed, part.columns), strict=True):
                yield dict(zip(names, values, strict=True))


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
