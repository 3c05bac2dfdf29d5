"""Searchable: the search of a table, the same through a store, a snapshot and a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.choices import SearchMetric
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.read.readable import Readable, known_columns

if TYPE_CHECKING:
    from siltstone.query.search.search_result import SearchResult


class Searchable(Readable):
    """A table that can be searched. Any thread."""

    __slots__ = ()

    def search(
        self,
        vector: object,
        k: int = 10,
        *,
        column: str | None = None,
        metric: SearchMetric | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        distance_range: object = None,
        nprobes: int | None = None,
        refine: int | None = None,
        exact: bool = False,
    ) -> SearchResult:
        """See `api.tables.ReadableTable.search`."""
        from siltstone.query.search import plan  # noqa: PLC0415 - few ask for it
        from siltstone.query.search.search_result import SearchResult  # noqa: PLC0415 - as above
        from siltstone.query.search.vector_query import vector_query  # noqa: PLC0415 - as above

        reader = self._reader()
        arrow = reader.table_schema.arrow
        query = vector_query(
            arrow,
            vector,
            k=k,
            column=column,
            metric=metric,
            distance_range=distance_range,
            nprobes=nprobes,
            refine=refine,
            exact=exact,
        )
        shown = known_columns(arrow, columns)
        wanted = filter_of(filter, arrow)
        self._note(reader, (), wanted)
        return SearchResult(
            plan.search(reader, query, wanted, arrow.names if shown is None else shown)
        )

    def search_in_parts(
        self,
        vector: object,
        k: int,
        rows_max: int,
        *,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """Return the rows of `search`, ranked now, and read as they are asked for.

        Args:
            vector: As for `search`, as the others.
            k: How many rows.
            rows_max: How many rows are read at once.
            filter: Only rows that match are ranked.
            columns: The columns; None: all.
            options: All the other arguments of `search`.
        """
        from siltstone.query.search import plan  # noqa: PLC0415 - as above
        from siltstone.query.search.vector_query import vector_query  # noqa: PLC0415 - as above

        reader = self._reader()
        arrow = reader.table_schema.arrow
        query = vector_query(arrow, vector, k=k, **options)
        shown = known_columns(arrow, columns)
        wanted = filter_of(filter, arrow)
        self._note(reader, (), wanted)
        return plan.search_in_parts(
            reader, query, wanted, arrow.names if shown is None else shown, rows_max
        )
