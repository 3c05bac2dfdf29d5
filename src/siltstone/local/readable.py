"""Readable: what the tables of this process have in common: how they are read and searched.

The table of a store, of a snapshot and of a transaction differ only in their reader: each of them
has a `_reader`, and a transaction records its reads. How one row is read by its key is in each of
them, for that must be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.arguments import flag_of
from siltstone.choices import SearchMetric, TextOperator
from siltstone.engine.catalog.row_input import key_input
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.order.column_order import ByColumn
from siltstone.engine.order.key_range import KeyRange, RangePredicate
from siltstone.engine.order.ordered_rows import Page
from siltstone.engine.read.read_arguments import (
    key_named,
    key_pushed,
    keyed,
    known_columns,
    order_asked,
    page_asked,
)
from siltstone.engine.read.read_union import KeyedReader, Order
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.row_ids import ROW_ID, rows_with_ids, scan_with_ids
from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats.keys import Key

if TYPE_CHECKING:
    from siltstone.query.search.search_result import SearchResult


class LocalReadable:
    """See the module. Any thread; see `api.readable` for arguments and errors."""

    __slots__ = ()
    _in_any_order = False
    """Whether each scan may have its own order: true where each reads another seq."""
    _is_of_statement = False
    """Whether a statement of SQL scans it: then base is read out of memory if it is there."""

    def _reader(self) -> Reader:
        """Return what answers one call: asked once in it, so that it sees one seq."""
        raise NotImplementedError

    def _note(
        self, reader: Reader, keys: Sequence[Key], wanted: Filter | RangePredicate | None
    ) -> None:
        """Hear what is read: `keys` if there are some, else a scan of `wanted`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, with their names and types at the seq of this reader."""
        return self._reader().table_schema.shown

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key columns, in key order; empty for a plain table."""
        keys = self._reader().table_schema.keys
        return () if keys is None else keys.names

    @property
    def ordered_key(self) -> tuple[str, ...]:
        """The names of the key columns, if rows are found in their order; else none."""
        reader = self._reader()
        return reader.ordered_key if isinstance(reader, KeyedReader) else ()

    def is_at_hand(self, key: object) -> bool:
        """Say whether `get` of a key would read no file; of a key of another type, too: it raises.

        A plain table has none.
        """
        reader = self._reader()
        if not isinstance(reader, KeyedReader):
            return False
        try:
            return reader.is_at_hand(reader.table_schema.codec.from_user(key))
        except SchemaMismatchError:
            return True

    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of the existing `keys`, each once, in the order of the keys.

        Args:
            keys: An iterable of keys; a column of them (of Arrow, pandas, Polars or NumPy); or
                Arrow data with the key columns.
        """
        reader = keyed(self._reader())
        wanted = key_input(keys, reader.table_schema)
        if wanted:
            self._note(reader, wanted, None)
        return reader.many(wanted)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
        *,
        order_by: str | Sequence[str] | None = None,
        descending: bool = False,
        offset: int = 0,
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows; see `api.readable` for arguments and errors."""
        reader = self._reader()
        page = page_asked(limit, offset)
        if order_by is not None:
            order = order_asked(reader, order_by, descending=descending)
            return self._in_order(reader, order, page, columns, filter)
        if descending or offset:
            raise RequestError("descending and offset need order_by: else rows come in no order")
        fields, shown = self._shown(reader, columns)
        batches = self._matching(reader, filter, shown, limit)
        if limit is not None:
            batches = _limited(batches, limit)
        return pa.RecordBatchReader.from_batches(fields, batches)

    def has_order_of(self, column: str) -> bool:
        """Say whether rows are found in the order of a column, and of the key if it is equal."""
        reader = self._reader()
        return isinstance(reader, KeyedReader) and reader.has_order_of(column)

    def scan_by(
        self,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,  # noqa: A002 - the contract's name
        *,
        column: str | None = None,
        ends: Sequence[tuple[str, object]] = (),
        descending: bool,
        limit: int | None,
        likely: int,
    ) -> pa.RecordBatchReader:
        """Return the rows by a column, or the key (None), of which so many are `likely` read.

        `ends`: how the keys of rows compare with some, as (">", key).
        """
        page = Page(limit=limit, likely=likely)
        if column is not None:
            order = ByColumn(column, descending)
            return self._in_order(self._reader(), order, page, columns, filter)
        reader, keys = keyed(self._reader()), KeyRange(descending=descending)
        for sign, key in ends:
            keys = keys.cut(sign, reader.table_schema.codec.from_user(key))
        return self._in_order(reader, keys, page, columns, filter)

    def range(
        self,
        low: object = None,
        high: object = None,
        *,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
        offset: int = 0,
        descending: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the rows with keys in [low, high), by key; see `api.readable`."""
        reader = keyed(self._reader())
        page, codec = page_asked(limit, offset), reader.table_schema.codec
        keys = KeyRange.of_user(low, high, codec, descending=flag_of("descending", descending))
        return self._in_order(reader, keys, page, columns, filter)

    def _in_order(
        self,
        reader: Reader,
        order: Order,
        page: Page,
        columns: Sequence[str] | None,
        wanted: str | pc.Expression | None,
    ) -> pa.RecordBatchReader:
        reader = keyed(reader)
        fields, shown = self._shown(reader, columns)
        parsed = filter_of(wanted, reader.table_schema.arrow)
        predicate = parsed
        if isinstance(order, KeyRange):
            predicate = RangePredicate(order, reader.table_schema.codec, parsed)
        self._note(reader, (), predicate)
        batches = reader.in_order(order, page, shown, parsed)
        return pa.RecordBatchReader.from_batches(fields, batches)

    @staticmethod
    def _shown(reader: Reader, columns: Sequence[str] | None) -> tuple[pa.Schema, list[str] | None]:
        shown = known_columns(reader.table_schema.arrow, columns)
        return reader.table_schema.fields(shown), shown

    def scan_with_ids(
        self,
        columns: Sequence[str],
        filter: str | None,  # noqa: A002 - the contract's name
        limit: int | None,
        *,
        order_by: Sequence[str] | None = None,
        descending: bool = False,
        offset: int = 0,
    ) -> pa.RecordBatchReader:
        """Return the rows of `scan`, and last their `_rowid`: see `row_ids`."""
        reader, order = self._reader(), None
        if order_by is not None:
            asked = order_asked(reader, order_by, descending=descending)
            order = asked, page_asked(limit, offset)
        shown = known_columns(reader.table_schema.arrow, columns) or []
        wanted = filter_of(filter, reader.table_schema.arrow)
        self._note(reader, (), wanted)
        fields = reader.table_schema.fields(shown).append(ROW_ID)
        batches = scan_with_ids(reader, shown, wanted, order)
        batches = batches if limit is None else _limited(batches, limit)
        return pa.RecordBatchReader.from_batches(fields, batches)

    def rows_with_ids(self, ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return the rows that have some `_rowid`, with some columns, and last their `_rowid`."""
        reader = self._reader()
        shown = known_columns(reader.table_schema.arrow, columns) or []
        self._note(reader, (), None)
        return rows_with_ids(reader, ids, shown)

    def _matching(
        self,
        reader: Reader,
        wanted: str | pc.Expression | None,
        shown: list[str] | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(reader, KeyedReader):
            named = key_pushed if self._is_of_statement else key_named
            key = named(wanted, reader.table_schema.codec)
            if key is not None:
                self._note(reader, (key,), None)
                found = reader.many((key,))
                return iter((found if shown is None else found.select(shown)).to_batches())
        parsed = filter_of(wanted, reader.table_schema.arrow)
        self._note(reader, (), parsed)
        if isinstance(reader, KeyedReader):
            in_any_order = limit is None and self._in_any_order
            return reader.scan(
                shown,
                parsed,
                in_any_order=in_any_order,
                from_memory=self._is_of_statement,
                limit=limit,
            )
        return reader.scan(shown, parsed, limit=limit)

    def found_by(self) -> frozenset[str] | None:
        """Return the columns whose filters find rows; None: a filter of any one is of use."""
        reader = self._reader()
        return reader.found_by() if isinstance(reader, KeyedReader) else None

    def count(self, filter: str | pc.Expression | None = None) -> int:  # noqa: A002
        """Return the number of rows, or of the rows that match `filter`."""
        reader = self._reader()
        wanted = filter_of(filter, reader.table_schema.arrow)
        self._note(reader, (), wanted)
        if wanted is None:
            return reader.count()
        return sum(batch.num_rows for batch in reader.scan([], wanted))

    def search(
        self,
        query: object = None,
        k: int = 10,
        *,
        column: str | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        exact: bool = False,
        operator: TextOperator | None = None,
        phrase: bool = False,
        fuzzy: int | None = None,
        boost: float | Mapping[str, float] | None = None,
        metric: SearchMetric | None = None,
        distance_range: object = None,
        nprobes: int | None = None,
        refine: int | None = None,
        vector: object = None,
        vector_column: str | None = None,
        fusion: str | Mapping[str, float] | None = None,
        rerank: Callable[[pa.Table], object] | None = None,
    ) -> SearchResult:
        """See `api.readable.ReadableTable.search`."""
        from siltstone.query.search.request import search_of  # noqa: PLC0415 - few ask for it
        from siltstone.query.search.search_result import SearchResult  # noqa: PLC0415 - as above

        reader = self._reader()
        search = search_of(
            reader,
            query,
            vector,
            common={"k": k, "column": column, "exact": exact},
            of_words={"operator": operator, "phrase": phrase, "fuzzy": fuzzy, "boost": boost},
            of_vectors={
                "metric": metric,
                "distance_range": distance_range,
                "nprobes": nprobes,
                "refine": refine,
            },
            of_both={"vector_column": vector_column, "fusion": fusion, "rerank": rerank},
        )
        return SearchResult(search(*self._noted(reader, columns, filter)))

    def search_in_parts(
        self,
        query: object,
        k: int,
        rows_max: int,
        *,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        numbered: bool = False,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """Return the rows of `search`, ranked now, and read as they are asked for.

        Args:
            query: A text, or a vector, as for `search`.
            k: How many rows.
            rows_max: How many rows are read at once.
            filter: Only rows that match are ranked.
            columns: The columns; None: all.
            numbered: Before the distance or score comes the `_rowid`: see `engine.read.row_ids`.
            options: All the other arguments of that kind of search.
        """
        from siltstone.query.search.request import search_in_parts  # noqa: PLC0415 - as above

        reader = self._reader()
        search = search_in_parts(reader, query, rows_max, numbered=numbered, k=k, **options)
        return search(*self._noted(reader, columns, filter))

    def _noted(
        self,
        reader: Reader,
        columns: object,
        filter: str | pc.Expression | None,  # noqa: A002 - the contract's name
    ) -> tuple[Filter | None, list[str]]:
        """Return the checked filter and columns of a search, which is noted as a scan."""
        arrow = reader.table_schema.arrow
        shown = known_columns(arrow, columns)
        wanted = filter_of(filter, arrow)
        self._note(reader, (), wanted)
        return wanted, arrow.names if shown is None else shown


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        rows = min(left, batch.num_rows)
        yield batch.slice(0, rows)
        left -= rows
