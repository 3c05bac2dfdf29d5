"""Row query: which rows a request asks for, and the rows that answer it.

With a vector these are the k rows with the nearest ones, exact, over every row that is committed:
all rows that match are read, a batch at a time, and k of them kept. No index is asked, so no row
that came a moment ago is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.scope import ReadTable

DISTANCE = "_distance"
K_DEFAULT = 10
_NOT_OFFERED = ("full_text_query", "with_row_id", "order_by", "lower_bound", "upper_bound")


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query of either kind of client, all of which is offered; `limit` None is all."""

    asked: bodies.QueryRequest
    columns: list[str] | None
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]

    @classmethod
    def of(cls, asked: bodies.QueryRequest) -> RowQuery:
        """Return the query of a body.

        Raises:
            Refused: A member that is not offered.
        """
        refused = [name for name in _NOT_OFFERED if getattr(asked, name)]
        if refused:
            raise unsupported(f"a query with {', '.join(refused)} is not offered")
        columns, vector = asked.columns, asked.vector
        if isinstance(columns, bodies.ColumnNames):
            if columns.column_aliases:
                raise unsupported("columns under other names, or computed, are not offered")
            columns = columns.column_names
        if isinstance(vector, bodies.QueryVector):
            if vector.multi_vector:
                raise unsupported("a query with several vectors is not offered")
            vector = vector.single_vector
        return cls(asked, columns, asked.filter or None, asked.k, asked.offset or 0, vector or [])

    @property
    def distance_type(self) -> str:
        """How far two vectors are from each other."""
        return (self.asked.distance_type or "l2").lower()

    def read(self, table: ReadTable, limits: Limits) -> pa.RecordBatchReader:
        """Return the rows.

        Raises:
            Refused: No vector column, not of that length, or a distance that is not known.
        """
        if self.vector:
            return self._nearest(table, limits).to_reader()
        most = None if self.limit is None else self.limit + self.offset
        reader = table.scan(self.columns, self.filter, most)
        if not self.offset:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, _after(reader, self.offset))

    def _nearest(self, table: ReadTable, limits: Limits) -> pa.Table:
        """Return the nearest rows, the nearest first, with their distance."""
        schema = table.schema
        column = _column(schema, self.asked.vector_column or None, len(self.vector))
        distance = _DISTANCES.get(self.distance_type)
        if distance is None:
            raise invalid(f"distance_type is one of {sorted(_DISTANCES)}")
        k = (K_DEFAULT if self.limit is None else self.limit) + self.offset
        if k > limits.collected_rows_max:
            raise invalid(f"k is at most {limits.collected_rows_max}")
        names = schema.names if self.columns is None else self.columns
        needed = names if column in names else [*names, column]
        best = _best(table.scan(needed, self.filter), column, self.vector, distance, k)
        return best.select([*names, DISTANCE]).slice(self.offset)


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)


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


def _cosine(rows: Any, asked: Any) -> Any:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - (rows @ asked) / lengths


_DISTANCES: dict[str, Callable[[Any, Any], Any]] = {
    "l2": lambda rows, asked: ((rows - asked) ** 2).sum(axis=1),
    "cosine": _cosine,
    "dot": lambda rows, asked: 1 - rows @ asked,
}
