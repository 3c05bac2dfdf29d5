"""Row query: which rows a request asks for, and the rows that answer it.

With a vector these are the k rows with the nearest ones, over every row that is committed, in the
order of their distance and then of their keys. With `prefilter` false the filter takes from the k
nearest rows those that match, so there may be fewer. Bounds of the distance are [lower, upper).

    a column of floats, or of uint8 by hamming       the search of the table: an index ranks the
    (`SEARCHED_MAX` rows at most)                    merged rows, newer ones are compared
    fields of structs, other numbers, more rows      all rows that match are compared (`comparison`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.engine.filter.filters import filter_of
from siltstone.lance_namespace.errors import invalid
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.rows import bodies
from siltstone.lance_namespace.rows.comparison import DISTANCE_FIELD, Comparison, VectorColumn
from siltstone.lance_namespace.rows.selection import Columns, Selection
from siltstone.lance_namespace.scope import SearchedTable

K_DEFAULT = 10
K_ALL = 1 << 62
"""From here on a client that must send a number means all rows: LanceDB sends 2**63 - 1."""
SEARCHED_MAX = 10_000
"""As many rows a search of a table ranks."""
_PROBES_MAX, _REFINE_MAX = 65_536, 100
_ROWS_READ = 256


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query of either kind of client, all of which is offered; `limit` None is all."""

    asked: bodies.QueryRequest
    columns: Columns
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]

    @classmethod
    def of(cls, asked: bodies.QueryRequest) -> RowQuery:
        """Return the query of a body.

        Raises:
            Refused: Bounds of a distance, and no vector; or the nearest 0 rows.
        """
        vector = asked.vector
        if isinstance(vector, bodies.QueryVector):
            vector = vector.single_vector
        if not vector and not (asked.lower_bound is None and asked.upper_bound is None):
            raise invalid("lower_bound and upper_bound are of a distance: give a vector")
        limit = asked.k
        if limit is None and vector:
            limit = K_DEFAULT
        if limit is not None and limit >= K_ALL:
            limit = None
        if vector and limit == 0:
            raise invalid("k must be an integer from 1; got 0")
        filter_ = asked.filter or None
        return cls(asked, asked.columns, filter_, limit, asked.offset or 0, vector or [])

    @property
    def _takes_before(self) -> bool:
        """Whether the nearest rows are taken before the filter: `prefilter` is false."""
        return bool(self.vector) and self.asked.prefilter is False and self.filter is not None

    def chosen(self, schema: pa.Schema) -> Selection:
        """Return which columns the answer has, of a table with these.

        Raises:
            RequestError: An expression that does not fit them.
        """
        return Selection.of(self.columns, schema.append(DISTANCE_FIELD) if self.vector else schema)

    def read(self, table: SearchedTable, limits: RowLimits) -> pa.RecordBatchReader:
        """Return the rows.

        Raises:
            Refused: No vector column, not of that length, or a distance that is not known.
        """
        if self.vector:
            return self._nearest(table, limits).to_reader()
        chosen = self.chosen(table.schema)
        most = None if self.limit is None else self.limit + self.offset
        reader = table.scan(chosen.read, self.filter, most)
        if self.offset:
            rows = _after(reader, self.offset)
            reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
        return chosen.of_reader(reader)

    def _nearest(self, table: SearchedTable, limits: RowLimits) -> pa.Table:
        """Return the nearest rows, the nearest first, with their distance."""
        schema, most = table.schema, self._most(limits)
        column = self._column(schema)
        chosen = self.chosen(schema)
        later = filter_of(self.filter if self._takes_before else None, schema)
        needed = [*dict.fromkeys([*chosen.read, *(later.columns if later else ())])]
        before = None if later else self.filter
        if self._is_searched(column, most):
            best = self._searched(table, column, before, needed, most, limits)
        else:
            best = Comparison(column, self._bounds, most, limits).best(table, needed, before)
        if later is not None:
            best = later.keep(best)
        return chosen.of_rows(best.slice(self.offset))

    def _column(self, schema: pa.Schema) -> VectorColumn:
        name, metric = self.asked.vector_column or None, self.asked.distance_type
        return VectorColumn.of(schema, name, self.vector, (metric or "l2").lower())

    def _is_searched(self, column: VectorColumn, most: int) -> bool:
        least, end = self._bounds
        is_empty = least is not None and end is not None and least >= end
        return column.is_searched and most <= SEARCHED_MAX and not is_empty

    def _searched(
        self,
        table: SearchedTable,
        column: VectorColumn,
        before: str | None,
        needed: list[str],
        most: int,
        limits: RowLimits,
    ) -> pa.Table:
        """Return the nearest rows by the search of the table.

        Raises:
            Refused: They are more bytes than one statement may hold.
        """
        reader = table.search_in_parts(
            self.vector,
            most,
            _ROWS_READ,
            filter=before,
            columns=needed,
            column=column.path[0],
            metric=column.metric,
            distance_range=self._bounds,
            **self._of_index,
        )
        schema = reader.schema.remove(len(needed)).append(DISTANCE_FIELD)
        parts = list[pa.RecordBatch]()
        nbytes = rows = 0
        for batch in reader:
            parts.append(batch.cast(schema))
            nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
            limits.refuse_collected(nbytes, rows, most)
        return pa.Table.from_batches(parts, schema)

    def search_told(self, schema: pa.Schema, limits: RowLimits) -> str:
        """Return in words how the nearest rows are found.

        Raises:
            Refused: As by `read`.
        """
        column = self._column(schema)
        rows = "all rows, filtered after that" if self._takes_before else "all rows that match"
        (least, end), within = self._bounds, ""
        if not (least is None and end is None):
            within = f", at a distance from {0 if least is None else least}"
            within += "" if end is None else f" to below {end}"
        how = "each row is compared"
        probes, refine, exact = self._of_index.values()
        if self._is_searched(column, self._most(limits)) and not exact:
            how = f"merged rows by an index of {column.metric}, if there is one, others compared"
            how += f"; nprobes {probes or 'by Lance'}, refine {refine or 'by Lance'}"
        return f"{column.metric}, in {'.'.join(column.path)}, over {rows}{within}: {how}"

    @property
    def _of_index(self) -> dict[str, Any]:
        """What is said of an index: partitions, rows to measure again, or to ask none.

        LanceDB says the first in two members, and any number in them.
        """
        asked = self.asked
        probes = max(asked.nprobes or 0, asked.minimum_nprobes or 0)
        return {
            "nprobes": min(probes, _PROBES_MAX) or None,
            "refine": min(asked.refine_factor or 0, _REFINE_MAX) or None,
            "exact": bool(asked.bypass_vector_index),
        }

    @property
    def _bounds(self) -> tuple[float | None, float | None]:
        return self.asked.lower_bound, self.asked.upper_bound

    def _most(self, limits: RowLimits) -> int:
        if self.limit is None:
            return limits.collected_rows_max
        most = self.limit + self.offset
        if most > limits.collected_rows_max:
            raise invalid(f"k is at most {limits.collected_rows_max}")
        return most


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)
