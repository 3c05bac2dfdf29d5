"""Exports: rows as a file, CSV or Parquet, in pieces, as they are read.

CSV has a first line of names; what is no number, text, time or truth is JSON in its cell, bytes are
base64, and a missing value is an empty cell, an empty text `""`. Parquet has the types as they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from siltstone.server.http.replies import ByteSink, Pieces
from siltstone.server.rest.wire import PIECE_BYTES, encoded
from siltstone.text.spelled import is_binary

CSV, PARQUET = "csv", "parquet"
_TYPES = {CSV: "text/csv; charset=utf-8", PARQUET: "application/vnd.apache.parquet"}
_GROUP_ROWS = 65_536
"""Rows of a group of a Parquet file: what is held of it at once."""


def exported(rows: pa.RecordBatchReader, form: str) -> Pieces:
    """Return rows as a file; `form` is `CSV` or `PARQUET`."""
    chunks = (_csv if form == CSV else _parquet)(rows)
    return Pieces(_TYPES[form], chunks, rows.close)


def _csv(rows: pa.RecordBatchReader) -> Iterator[bytes]:
    csv: Any = importlib.import_module("pyarrow.csv")
    fields = [f if _is_plain(f.type) else pa.field(f.name, pa.string()) for f in rows.schema]
    sink, schema = ByteSink(), pa.schema(fields)
    writer: Any = csv.CSVWriter(sink, schema)
    for batch in rows:
        columns = [_spelled(column) for column in batch.columns]
        writer.write_batch(pa.record_batch(columns, schema=schema))
        if sink.tell() >= PIECE_BYTES:
            yield sink.take()
    writer.close()
    yield sink.take()


def _parquet(rows: pa.RecordBatchReader) -> Iterator[bytes]:
    parquet: Any = importlib.import_module("pyarrow.parquet")  # 5 MiB, for whoever asks
    sink = ByteSink()
    writer: Any = parquet.ParquetWriter(sink, rows.schema)
    held, count = list[pa.RecordBatch](), 0
    for batch in rows:
        held.append(batch)
        count += batch.num_rows
        if count >= _GROUP_ROWS:
            writer.write_table(pa.Table.from_batches(held, rows.schema))
            held, count = [], 0
        if sink.tell() >= PIECE_BYTES:
            yield sink.take()
    writer.write_table(pa.Table.from_batches(held, rows.schema))
    writer.close()
    yield sink.take()


def _is_plain(kind: pa.DataType) -> bool:
    """Say whether Arrow writes values of this type into a cell by itself."""
    return not (pa.types.is_nested(kind) or is_binary(kind))


def _spelled(column: pa.Array) -> pa.Array:
    if _is_plain(column.type):
        return column
    values = (None if each is None else encoded(each).decode() for each in column.to_pylist())
    if not pa.types.is_nested(column.type):
        values = (None if each is None else each[1:-1] for each in values)
    return pa.array(list(values), pa.string())
