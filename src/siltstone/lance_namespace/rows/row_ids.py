"""Row ids of queries: the column `_rowid`, and the filter that takes rows by it.

What the numbers are says `engine.read.row_ids`. LanceDB's client asks for them (`with_row_id`, or
by the name of the column), takes rows by them (`_rowid IN (1, 2)`), and its hybrid search finds by
them which rows two of its queries have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from siltstone.engine.read.row_ids import ROW_ID
from siltstone.lance_namespace.rows.selection import Columns
from siltstone.lance_versions.errors import invalid

_TAKEN = re.compile(
    r"\s*_rowid\s*(?:IN\s*\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)|=\s*(\d+))\s*", re.IGNORECASE | re.ASCII
)
_IDS_END = 1 << 64


def are_asked_for(columns: Columns, with_row_id: bool | None) -> bool:
    """Say whether a query wants row ids."""
    names = columns.get("column_names") if isinstance(columns, dict) else columns
    return bool(with_row_id) or (isinstance(names, list) and ROW_ID.name in names)


def taken(filter_: str | None) -> tuple[int, ...] | None:
    """Return the row ids that a filter names; None: it has another form.

    Raises:
        Refused: One is beyond 64 bits.
    """
    found = None if filter_ is None else _TAKEN.fullmatch(filter_)
    if found is None:
        return None
    texts = [text.strip() for text in (found[1] or found[2]).split(",")]
    if max(map(len, texts)) > len(str(_IDS_END)) or max(map(int, texts)) >= _IDS_END:
        raise invalid("a _rowid is an integer from 0 to below 2**64")
    return tuple(map(int, texts))


def told_apart(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a reader that ends in an error if two of its rows have one `_rowid`."""
    return pa.RecordBatchReader.from_batches(reader.schema, _checked(reader))


def _checked(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    seen = list[np.ndarray]()
    for batch in reader:
        seen.append(batch.column(ROW_ID.name).to_numpy())
        yield batch
    ids = np.sort(np.concatenate(seen)) if seen else np.zeros(0, np.uint64)
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise invalid(
            f"two keys of the answer have one _rowid, {twice[0]}, as one of 2**64 pairs has: ask"
            " for the key instead"
        )
