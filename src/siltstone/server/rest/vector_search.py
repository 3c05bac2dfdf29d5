"""Vector search: the k rows with the nearest vectors, exact, over every row that is committed.

It reads all rows that match, a batch at a time, and keeps k of them: no index is asked, so no row
that came a moment ago is missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import Code, Refused, invalid
from siltstone.server.rest.scope import ReadTable

if TYPE_CHECKING:
    from siltstone.server.rest.queries import RowQuery

DISTANCE = "_distance"
K_DEFAULT = 10


def vector_search(table: ReadTable, wanted: RowQuery, limits: Limits) -> pa.Table:
    """Return the nearest rows, the nearest first, with their distance.

    Raises:
        Refused: No vector column, not of that length, or a distance that is not known.
    """
    schema = table.schema
    column = _column(schema, wanted.vector_column, len(wanted.vector))
    distance = _DISTANCES.get(wanted.distance_type)
    if distance is None:
        raise invalid(f"distance_type is one of {sorted(_DISTANCES)}")
    k = (K_DEFAULT if wanted.limit is None else wanted.limit) + wanted.offset
    if k > limits.collected_rows_max:
        raise invalid(f"k is at most {limits.collected_rows_max}")
    names = list(schema.names if wanted.columns is None else wanted.columns)
    needed = names if column in names else [*names, column]
    best = _best(table.scan(needed, wanted.filter), column, wanted.vector, distance, k)
    return best.select([*names, DISTANCE]).slice(wanted.offset)


def _best(
    reader: pa.RecordBatchReader,
    column: str,
    vector: list[float],
    distance: Callable[[Any, Any], Any],
    k: int,
) -> pa.Table:
    asked = np.asarray(vector, np.float64)
    schema = reader.schema.append(pa.field(DISTANCE, pa.float32()))
    best = schema.empty_table()
    for batch in reader:
        array = batch.column(column)
        valid = batch.filter(array.is_valid())
        if not valid.num_rows:
            continue
        flat = cast("pa.FixedSizeListArray", valid.column(column)).flatten().cast(pa.float64())
        found = distance(flat.to_numpy(zero_copy_only=False).reshape(-1, len(asked)), asked)
        column_of = pa.array(found.astype(np.float32), pa.float32())
        rows = pa.Table.from_batches([valid]).append_column(DISTANCE, column_of)
        both = pa.concat_tables([best, rows.cast(schema)])
        order = np.argsort(both.column(DISTANCE).to_numpy(), kind="stable")[:k]
        best = both.take(pa.array(order, pa.int64()))
    return best


def _column(schema: pa.Schema, name: str | None, length: int) -> str:
    """Return the vector column: the one that is named, or the only one there is."""
    vectors = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if name is not None and name not in schema.names:
        raise Refused(Code.COLUMN_NOT_FOUND, f"no column {name[:128]!r}")
    if name is None and len(vectors) != 1:
        raise invalid(f"vector_column is one of {vectors}: name it")
    found = vectors[0] if name is None else name
    if found not in vectors:
        raise invalid(f"column {found!r} holds no vectors")
    size = schema.field(found).type.list_size
    if size != length:
        raise invalid(f"column {found!r} holds vectors of {size} numbers, the query has {length}")
    return found


def _l2(rows: Any, asked: Any) -> Any:
    return ((rows - asked) ** 2).sum(axis=1)


def _cosine(rows: Any, asked: Any) -> Any:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - (rows @ asked) / lengths


def _dot(rows: Any, asked: Any) -> Any:
    return 1 - rows @ asked


_DISTANCES: dict[str, Callable[[Any, Any], Any]] = {"l2": _l2, "cosine": _cosine, "dot": _dot}
