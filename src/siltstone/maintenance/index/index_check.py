"""Index check: checks that an index finds the same rows as a scan, for some values and null.

The values come from rows spread over the whole base. It cannot check text and vector indexes; only
the checksums of their files are checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from siltstone.engine.filter.filters import filter_of
from siltstone.engine.filter.pushed import is_pushable
from siltstone.storage.tables.tables import POSITION, PinnedTable

SAMPLED_ROWS = 64


def wrong_indexes(opened: PinnedTable) -> Iterator[str]:
    """Yield the errors of the indexes of a version."""
    scalar = [segment for segment in opened.segments if segment.kind in {"btree", "bitmap"}]
    for column in sorted({name for segment in scalar for name in segment.columns}):
        # Who reads a float, or a type that Lance compares in its own way, reads no index.
        if is_pushable(opened.schema.field(column).type) and opened.rows:
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
