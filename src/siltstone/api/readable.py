"""Readable: how a table is read, wherever it comes from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.public_class import PublicClass
from siltstone.choices import SearchMetric, TextOperator
from siltstone.errors import SiltstoneError
from siltstone.formats.types.unfit_types import refuse_decimal256
from siltstone.given import Key, Keys, Query, Vector
from siltstone.process import extras
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

    from siltstone.query.search.search_result import SearchResult

Columns: TypeAlias = Sequence[str] | None
"""The columns to return, in this order; None returns all."""
Order: TypeAlias = str | Sequence[str] | None
"""The key column, or several in key order; None is no order."""
Condition: TypeAlias = str | pc.Expression | None
"""A SQL boolean expression, or an Arrow expression; None is true for all rows."""


class ReadableTable(PublicClass):
    """How a table is read, wherever it comes from."""

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> int:
        """The table's id in this store: a rename keeps it, and no other table ever gets it.

        Examples:
            >>> before, receipt = orders.id, db.rename_table("orders", "sales")
            >>> db["sales"].id == before
            True
        """

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name at the sequence number that is read.

        Examples:
            >>> orders.name
            'orders'
        """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, with names, types and metadata at the sequence number that is read.

        Examples:
            >>> orders.schema.names
            ['id', 'amount', 'note']
        """

    @property
    @abstractmethod
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key columns, in key order; empty for a plain table.

        Examples:
            >>> orders.primary_key, events.primary_key
            (('id',), ())
        """

    @abstractmethod
    def scan(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
        *,
        order_by: Order = None,
        descending: bool = False,
        offset: int = 0,
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows: by their keys, by a column with an index, or in no order.

        Args:
            columns: The columns to return, in this order; None returns all.
            filter: A SQL boolean expression, or an Arrow expression. Lance reads only the columns
                and rows that columns and filter need.
            limit: The highest number of rows.
            order_by: The key columns, or the first ones of them, in key order; or a column with a
                btree index, then rows with equal values come by key, and nulls last; None: no
                order. Texts are ordered by their bytes. An index, and a key of one integer, date,
                timestamp or bool, are found in order, so that a few rows cost the same in a table
                of any size; of other keys all rows that match are read and sorted.
            descending: From high to low.
            offset: How many of the first rows to leave out; only with `order_by`.

        Raises:
            RequestError: An unknown column, a filter that does not parse, an order by what is
                neither the key nor indexed, or an offset or a direction without an order.

        Examples:
            >>> for batch in orders.scan(["id"], filter="amount > 10"):
            ...     batch.to_pylist()
            [{'id': 1}]
            >>> orders.scan(["id"], order_by="id", descending=True, limit=1).read_all().to_pylist()
            [{'id': 2}]
        """

    @abstractmethod
    def range(
        self,
        low: Key | None = None,
        high: Key | None = None,
        *,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        descending: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the rows whose keys are in [low, high), in the order of the keys.

        Args:
            low: The first key; None: from the lowest key on. For a composite key a tuple in key
                order, or a dict by column.
            high: The key before which the range ends; None: up to the highest key, and with it.
            columns: The columns to return; None returns all.
            filter: Which of the rows, as for `scan`.
            limit: The highest number of rows.
            offset: How many of the first rows to leave out.
            descending: From high to low keys; `low` stays the lower end.

        Raises:
            RequestError: A plain table, a low end above the high end, or as for `scan`.
            SchemaMismatchError: An end is not of the key's type.

        Examples:
            >>> orders.range(1, 2, columns=["id", "note"]).read_all().to_pylist()
            [{'id': 1, 'note': 'a'}]
            >>> orders.range(2, columns=["id"]).read_all().to_pylist()
            [{'id': 2}]
        """

    def to_arrow(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
    ) -> pa.Table:
        """Return the rows as a table; see `scan`.

        Examples:
            >>> orders.to_arrow(["id", "note"]).sort_by("id").to_pylist()
            [{'id': 1, 'note': 'a'}, {'id': 2, 'note': 'b'}]
        """
        return self.scan(columns, filter, limit).read_all()

    def to_pandas(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Return the rows as a pandas data frame; see `scan`.

        Raises:
            UnavailableError: pandas is not installed.

        Examples:
            >>> orders.to_pandas(["amount"])["amount"].sum()
            np.float64(25.0)
        """
        extras.imported("pandas", "to_pandas()", "pandas", "pandas")
        return self.to_arrow(columns, filter, limit).to_pandas()

    def to_polars(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
    ) -> pl.DataFrame:
        """Return the rows as a Polars data frame; see `scan`.

        Raises:
            UnavailableError: Polars is not installed.

        Examples:
            >>> orders.to_polars(filter="id = 1").rows()
            [(1, 20.0, 'a')]
        """
        polars = extras.imported("polars", "to_polars()", "Polars", "polars")
        rows = self.to_arrow(columns, filter, limit)
        refuse_decimal256(rows.schema, "Polars")  # it would end the process
        return polars.from_arrow(rows)

    def head(
        self,
        limit: int = 5,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
    ) -> pa.Table:
        """Return some rows, at most `limit`, in no order; see `scan`.

        Examples:
            >>> orders.head(1).num_rows
            1
        """
        return self.to_arrow(columns, filter, limit)

    def limit(
        self,
        limit: int,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
    ) -> pa.Table:
        """Return at most `limit` rows, in no order: `head` under the name that SQL has for it.

        Examples:
            >>> orders.limit(1).num_rows
            1
        """
        return self.head(limit, columns, filter)

    @abstractmethod
    def get(self, key: Key) -> dict[str, Any] | None:
        """Return the row of `key` as a dict, or None if no row has that key.

        A timestamp with nanoseconds is a pandas Timestamp, because Python's own type ends at
        microseconds; a time of day is cut to microseconds. `get_many` and `scan` return all digits.

        Args:
            key: A value; for a composite key a tuple in key order, or a dict by column.

        Raises:
            RequestError: A plain table.
            SchemaMismatchError: The key has another type.
            ValueError: The row has a timestamp with nanoseconds, and pandas is not installed.

        Examples:
            >>> orders.get(1), orders.get(99)
            ({'id': 1, 'amount': 20.0, 'note': 'a'}, None)
        """

    @abstractmethod
    def get_many(self, keys: Keys) -> pa.Table:
        """Return the rows of those `keys` that have one, each once, in the order of the keys.

        Args:
            keys: An iterable of keys; a column of them (of Arrow, pandas, Polars or NumPy); or
                Arrow data with the key columns.

        Raises:
            RequestError: A plain table.
            SchemaMismatchError: A key has another type.

        Examples:
            >>> orders.get_many([2, 99, 1])["note"].to_pylist()
            ['b', 'a']
        """

    @abstractmethod
    def search(
        self,
        query: Query | None = None,
        k: int = 10,
        *,
        column: str | None = None,
        filter: Condition = None,  # noqa: A002
        columns: Columns = None,
        exact: bool = False,
        operator: TextOperator | None = None,
        phrase: bool = False,
        fuzzy: int | None = None,
        boost: float | Mapping[str, float] | None = None,
        metric: SearchMetric | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        vector: Vector | None = None,
        vector_column: str | None = None,
        fusion: str | Mapping[str, float] | None = None,
        rerank: Callable[[pa.Table], object] | None = None,
    ) -> SearchResult:
        """Return the k rows that fit best, the best first: with the nearest vectors, or with words.

        Every row of the sequence number that is read is seen, also one that came a moment ago. Of
        rows that fit equally well the lower keys come first.

        With vectors, rows have their `_distance`. An index of that metric finds nearly the nearest
        of the merged rows; all newer rows are measured. Without one, or with `exact`, the answer is
        exact. Rows without a vector, or with a NaN in it, are never found.

        With words, rows have their `_score` (BM25). An index of texts is needed; which rows have
        the words is always exact.

        With words and `vector` both searches are done, and their rankings become one. Rows have the
        `_score` of it, and `_distance` and `_words_score`, null for those that one search lacks.

        Args:
            query: A text: words to search for. Or the numbers of one vector, or a list of up to
                1,000 vectors: then each gets k rows, and `_query` (int32, from 0) is the position
                of its vector.
            k: How many rows, 1 to 10,000; of many vectors at most 100,000 together.
            column: The column to search; it may be left out where only one holds vectors, or has an
                index of texts.
            filter: As for `scan`. Only rows that match take a place among the k.
            columns: The columns to return; None returns all.
            exact: Of vectors: ask no index. Of words: all scores are by the statistics of the rows
                that are read, without those of replaced and deleted ones.
            operator: Of words: "or" (a row has one of them; the default) or "and" (all of them).
            phrase: Of words: they follow each other; needs an index `with_position`.
            fuzzy: Of words: each is found with so many letters more, less or changed, 0 to 2.
            boost: Of words: scores are multiplied by it. As {column: weight} it names the columns
                to search; a row has the highest of its scores.
            metric: Of vectors: "l2" (squared; the default), "cosine" (1 - cosine) or "dot" (1 -
                product) of floats; "hamming" (different bits) of uint8. An index never chooses it.
            distance_range: Of vectors: (lower, upper): only rows with lower <= distance < upper;
                None: no bound.
            nprobes: Of vectors: how many partitions of an index are looked into; None leaves it to
                Lance.
            refine: Of vectors: measure so many times k rows that an index found; None: none.
            vector: With words, the numbers of one vector: search for both. Alone it is `query`.
            vector_column: With words, the column of vectors; `column` is that of the texts.
            fusion: Of both: "rrf" (by ranks, 1 / (60 + rank); the default), or the weights of
                scores from 0 to 1, {"words": 0.3, "vector": 0.7}.
            rerank: Of both: a function that gets the rows as an Arrow table, with the columns asked
                for and the three of the search, and returns a score for each. Not in a process that
                joined.

        Raises:
            RequestError: A vector that does not fit the column or has a NaN, an empty text, a k
                beyond its bounds, a metric that the column does not have, no index of texts, an
                argument of the other kind of search, or a filter that does not parse.
            SchemaMismatchError: There is no such column.

        Examples:
            >>> points = db.create_table("points", {"id": int, "at": "vector(float32, 2)"}, "id")
            >>> receipt = points.upsert([{"id": 1, "at": [0, 0]}, {"id": 2, "at": [3, 4]}])
            >>> points.search([3, 3], k=1).to_pylist()
            [{'id': 2, 'at': [3.0, 4.0], '_distance': 1.0}]
        """

    @abstractmethod
    def count(self, filter: Condition = None) -> int:  # noqa: A002
        """Return the number of rows, or of the rows that match `filter`; see `scan`.

        Examples:
            >>> orders.count(), orders.count("amount > 10")
            (2, 1)
        """

    def __len__(self) -> int:
        """Return the number of rows: see `count`."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True, without a look at the rows: an empty table is a table."""
        return True

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of Arrow's C interface: `pa.table(db["orders"])`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str | None:
        """Return some rows as HTML, for a notebook; None if the table cannot be read any more."""
        try:
            found = self.head(shown.ROWS_MAX)
            rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
            return shown.as_html(found.column_names, rows, repr(self))
        except SiltstoneError:
            return None
