"""Stored rows: compares the rows of two readers, and what indexes find with what a scan finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.filter.pushed import is_pushable
from siltstone.engine.read.read_union import KeyedReader
from siltstone.formats.types.blobs import is_blob
from siltstone.formats.types.layouts import replaced_type
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION

SAMPLED_ROWS = 64


def sorted_rows(reader: KeyedReader, table_schema: TableSchema) -> list[str]:
    """Return every row as text, sorted: NaN equals itself there, and no nanosecond is cut."""
    fields = table_schema.arrow
    exact = pa.schema([pa.field(f.name, replaced_type(f.type, _whole_number_of)) for f in fields])
    batches = (batch.cast(exact) for batch in reader.scan(table_schema.arrow.names))
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def _whole_number_of(kind: Any) -> pa.DataType | None:
    """Return the integers that stand for days, moments and times: Python's own end before."""
    types = pa.types
    if types.is_date32(kind):
        return pa.int32()
    is_moment = types.is_timestamp(kind) or types.is_time64(kind) or types.is_date64(kind)
    return pa.int64() if is_moment or types.is_duration(kind) else None


def wrong_indexes(opened: PinnedTable) -> Iterator[str]:
    """Yield the errors of the indexes of a version, where they find other rows than a scan.

    It checks null, and values from rows spread over the whole base. It cannot check text and vector
    indexes; only the checksums of their files are checked.
    """
    scalar = [segment for segment in opened.segments if segment.kind in {"btree", "bitmap"}]
    for column in sorted({name for segment in scalar for name in segment.columns}):
        # Who reads a float, or a type that Lance compares in its own way, reads no index.
        field = opened.schema.field(column)
        if is_pushable(field.type) and not is_blob(field) and opened.rows:
            by_index, by_scan = (_found(opened, column, is_indexed) for is_indexed in (True, False))
            if not np.array_equal(by_index, by_scan):
                lost = len(np.setdiff1d(by_scan, by_index))
                more = len(np.setdiff1d(by_index, by_scan))
                yield f"the indexes of {column!r} miss {lost} rows and find {more} too many"


def _found(opened: PinnedTable, column: str, is_indexed: bool) -> np.ndarray:
    """Return the positions of all rows with one of some values, or with none."""
    some = np.unique(np.linspace(0, opened.rows - 1, SAMPLED_ROWS).astype(np.int64))
    values = opened.take(some, [column]).column(column).unique().drop_null()
    tests = [pc.field(column).isin(values), pc.field(column).is_null()]
    filters = [filter_of(test, opened.schema) for test in tests]
    sent = [each.prefilter({column: column}) for each in filters if each is not None]
    parts = [
        batch.column(POSITION).to_numpy()
        for test in sent
        if test is not None  # of a column that holds nothing but nulls
        for batch in opened.scan([], prefilter=test, positions=True, indexed=is_indexed)
    ]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
