"""Tables: one table of a store, at a snapshot or in a transaction; what can be read and written.

    db["orders"]     Table             reads see the newest commit, each write is a transaction
    tx["orders"]     TransactionTable  reads see the transaction's own writes; writes stay private
    past["orders"]   SnapshotTable     reads see one sequence number

Handles carry the table's id, not its name: they go on after a rename.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from siltstone import extras, shown
from siltstone.api.declared import Declared
from siltstone.api.results import IndexStatus, Receipt
from siltstone.choices import IndexKind, IndexOptions, SearchMetric, TextOperator
from siltstone.errors import RequestError, SiltstoneError
from siltstone.formats.unfit_types import refuse_decimal256

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from siltstone.query.search.search_result import SearchResult
    from siltstone.query.sql.dataset import SnapshotDataset


Columns: TypeAlias = Sequence[str] | None
"""The columns to return, in this order; None returns all."""
Condition: TypeAlias = str | pc.Expression | None
"""A SQL boolean expression, or an Arrow expression; None is true for all rows."""
Rows = TypeVar("Rows")
Handle = TypeVar("Handle")
Done = TypeVar("Done")


class ScannedTable(Declared):
    """How many rows of a table are read at once: as a stream, or in memory."""

    __slots__ = ()

    @abstractmethod
    def scan(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows, in no order.

        Args:
            columns: The columns to return, in this order; None returns all.
            filter: A SQL boolean expression, or an Arrow expression. Lance reads only the columns
                and rows that columns and filter need.
            limit: The highest number of rows.

        Raises:
            RequestError: An unknown column, or a filter that does not parse.
        """

    def to_arrow(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
    ) -> pa.Table:
        """Return the rows as a table; see `scan`."""
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
        """
        extras.imported("pandas", "to_pandas()", "pandas", "pandas")
        return self.to_arrow(columns, filter, limit).to_pandas()

    def to_polars(
        self,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
        limit: int | None = None,
    ) -> Any:
        """Return the rows as a Polars data frame; see `scan`.

        Raises:
            UnavailableError: Polars is not installed.
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
        """Return some rows, at most `limit`, in no order; see `scan`."""
        return self.to_arrow(columns, filter, limit)

    def limit(
        self,
        limit: int,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002
    ) -> pa.Table:
        """Return at most `limit` rows, in no order: `head` under the name that SQL has for it."""
        return self.head(limit, columns, filter)


class ReadableTable(ScannedTable):
    """How a table is read, wherever it comes from."""

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> int:
        """The table's id in this store: a rename keeps it, and no other table ever gets it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name at the sequence number that is read."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, with their names and types at the sequence number that is read."""

    @property
    @abstractmethod
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key columns, in key order; empty for a plain table."""

    @abstractmethod
    def get(self, key: object) -> dict[str, Any] | None:
        """Return the row of `key` as a dict, or None if no row has that key.

        A timestamp with nanoseconds is a pandas Timestamp, because Python's own type ends at
        microseconds; a time of day is cut to microseconds. `get_many` and `scan` return all digits.

        Args:
            key: A value; for a composite key a tuple in key order, or a dict by column.

        Raises:
            RequestError: A plain table.
            SchemaMismatchError: The key is of another type.
            ValueError: The row has a timestamp with nanoseconds, and pandas is not installed.
        """

    @abstractmethod
    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of those `keys` that have one, each once, in the order of the keys.

        Args:
            keys: An iterable of keys; a column of them (of Arrow, pandas, Polars or NumPy); or
                Arrow data with the key columns.

        Raises:
            RequestError: A plain table.
            SchemaMismatchError: A key is of another type.
        """

    @abstractmethod
    def search(
        self,
        query: object = None,
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
        vector: object = None,
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
                1,000 vectors: then each has its k rows, and `_query` (int32, from 0) says whose a
                row is.
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
            vector: Beside words, the numbers of one vector: search for both. Alone it is `query`.
            vector_column: Beside words, the column of vectors; `column` is that of the texts.
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
        """

    @abstractmethod
    def count(self, filter: Condition = None) -> int:  # noqa: A002
        """Return the number of rows, or of the rows that match `filter`; see `scan`."""

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


class SnapshotTable(ReadableTable):
    """One table at the sequence number of its snapshot."""

    __slots__ = ()

    def dataset(self) -> SnapshotDataset:
        """Return the table as a pyarrow dataset: DuckDB, Polars and pandas push down into it."""
        # Late: pyarrow.dataset brings all of pandas with it, more than a second.
        from siltstone.query.sql.dataset import SnapshotDataset  # noqa: PLC0415

        return SnapshotDataset(self)


class WritableTable(ReadableTable, Generic[Rows, Done]):
    """How a table is written.

    `Rows` is what a write of rows returns, and `Done` any other: `Table` returns the receipt of its
    commit, `TransactionTable` how many rows it wrote, or None.
    """

    __slots__ = ()

    # keyed tables

    @abstractmethod
    def upsert(self, rows: object) -> Rows:
        """Add or replace whole rows; of rows with equal keys the last one counts.

        An upsert never conflicts. If another commit renames or drops a column at the same time,
        the upsert counts as the later one.

        Args:
            rows: A dict, a list of dicts, or anything Arrow-shaped. Nullable columns that are
                missing become null.

        Raises:
            SchemaMismatchError: A column or value does not fit; nothing was written.
            ConflictError: A column was renamed or dropped while a stream was read that can be read
                only once and is too large to keep; nothing was written.
        """

    @abstractmethod
    def insert(self, rows: object) -> Rows:
        """Add rows whose keys no row has yet.

        Raises:
            DuplicateKeyError: The table has a key, or one appears twice; nothing was written.
            SchemaMismatchError: A column or value does not fit; nothing was written.
        """

    @abstractmethod
    def update(self, key: object, /, **values: object) -> Rows:
        """Change the named columns of one row; the number of rows is 0 if no row has the key."""

    @abstractmethod
    def delete(self, keys: object) -> Rows:
        """Delete the rows of some keys. Absent keys are no error. No conflicts.

        The number of rows is the number of given keys, each counted once.

        Args:
            keys: One key, or as in `get_many`.
        """

    # plain tables

    @abstractmethod
    def append(self, rows: object) -> Rows:
        """Add rows to a plain table."""

    @abstractmethod
    def overwrite(self, rows: object) -> Rows:
        """Replace all rows of a plain table."""

    # both

    @abstractmethod
    def delete_where(self, filter: str) -> Rows:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression."""

    @abstractmethod
    def truncate(self) -> Done:
        """Delete all rows at once; older snapshots still see them."""

    @abstractmethod
    def add_column(self, name: str, kind: object) -> Done:
        """Add a nullable column."""

    @abstractmethod
    def drop_column(self, name: str) -> Done:
        """Drop a column. A column that is added later under the same name is another column."""

    @abstractmethod
    def rename_column(self, name: str, new_name: str) -> Done:
        """Rename a column."""


class Table(WritableTable[Receipt, Receipt]):
    """One table of an open store. Reads see the newest commit; each write is a transaction."""

    __slots__ = ()

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"<table {self.name!r}, {f'key {key}' if key else 'plain'}: {self.schema.names}>"

    @abstractmethod
    def dataset(self) -> SnapshotDataset:
        """Return a fresh snapshot of the table as a pyarrow dataset."""

    # indexes of keyed tables

    @abstractmethod
    def create_index(
        self,
        column: str,
        kind: IndexKind = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: Unpack[IndexOptions],
    ) -> IndexStatus:
        """Create an index on a column. It changes no result, and only the caller waits for it.

        The index covers the rows that are merged into base; merges and optimizes keep it up to
        date.

        Args:
            column: A column of a keyed table.
            kind: "btree" (equality, ranges), "bitmap" (the same, for few distinct values), "fts"
                (words of a text) or "vector" (nearest neighbours), both for `search` and other
                Lance clients.
            name: By default the column's name.
            build: False leaves building it to the next optimize or merge.
            options: For fts: language, base_tokenizer, stem, lower_case, remove_stop_words,
                ascii_folding, with_position. For vector: metric ("l2", "cosine", "dot"), encoding
                ("flat", "sq", "rq", "pq" with sub_vectors, "hnsw_sq", "hnsw_flat"; by default
                chosen by the number and size of the vectors), partitions.

        Raises:
            RequestError: A plain table; no such column; a kind, name or option that does not fit
                or exists already: nothing was changed. Or another process dropped the index as
                soon as it was made.
            TableNotFoundError: The table was dropped.
            ReadOnlyError: This handle only reads.
            UnavailableError: The answer of the owner was lost; `indexes` shows the outcome.
        """

    @abstractmethod
    def indexes(self) -> list[IndexStatus]:
        """Return the indexes, by name, and how many rows they lag behind; the key's comes last."""

    @abstractmethod
    def drop_index(self, name: str) -> None:
        """Drop an index.

        Raises:
            RequestError: No index has that name, or it is the key's own.
            TableNotFoundError: The table was dropped.
            ReadOnlyError: This handle only reads.
        """


class TransactionTable(WritableTable[int, None]):
    """One table in one transaction: reads see own writes. Writes return how many rows they wrote.

    The arguments and errors are those of `Table`.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, as its transaction.

        Raises:
            RequestError: Always.
        """
        refuse_travel()


def refuse_travel() -> NoReturn:
    """Refuse to pickle or copy what belongs to a transaction.

    Raises:
        RequestError: Always.
    """
    raise RequestError(
        "a transaction and its tables cannot be pickled or copied: what they wrote is known to one"
        " process alone. Commit first, and pickle a table of the store or a snapshot. To write one"
        " commit from several processes use `stage` and `attach`"
    )


class NamedTables(Declared):
    """The tables of a store, a transaction or a snapshot, by their names, like the keys of a dict.

    `"orders" in db`, `len(db)` and `list(db)` are about the names; `db["orders"]` is a table.
    """

    __slots__ = ()

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of all tables, sorted; in a transaction with its own changes."""

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __len__(self) -> int:
        return len(self.tables())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __bool__(self) -> bool:
        """Return True: a store without tables is a store."""
        return True

    def _ipython_key_completions_(self) -> list[str]:
        """Return what a notebook may complete after `db["`."""
        return self.tables()

    def _repr_html_(self) -> str | None:
        """Return the names of the first tables as HTML; None if it is closed."""
        try:
            names = self.tables()
        except SiltstoneError:
            return None
        some = [(name,) for name in names[: shown.NAMES_MAX]]
        return shown.as_html(["table"], some, repr(self))


class TableDefinitions(NamedTables, Generic[Handle, Done]):
    """The tables of a store or of a transaction: how they are found, made, dropped and renamed."""

    @abstractmethod
    def __getitem__(self, name: str) -> Handle:
        """Return the table called `name`; in a transaction as that sees it.

        Raises:
            TableNotFoundError: No table has that name.
        """

    @abstractmethod
    def create_table(
        self,
        name: str,
        schema: object = None,
        primary_key: str | Sequence[str] = (),
        *,
        data: object = None,
        exist_ok: bool = False,
    ) -> Handle:
        """Create a table, and fill it, in one step; without `primary_key` a plain one.

        Args:
            name: 1-128 letters, digits, `_`, `-`, `.`; not starting with `.` or `_`.
            schema: A pyarrow schema, or a dict of name to type ("int64", "string", ...). By default
                that of `data`.
            primary_key: One column or several: int, string, binary, date, timestamp, decimal, bool.
            data: The first rows, as for `insert`. Those of a table with a key are held in memory
                until the commit.
            exist_ok: Return a table that has the name already, and change nothing: not a row of
                `data` is written. A schema and a key that are given must be the table's.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed; a bad schema or key.
            SchemaMismatchError: The rows do not fit, or `data` has no schema. With `exist_ok`: the
                table lacks a column, or has it with another type, or has another key.
            DuplicateKeyError: A key appears twice in `data`.
        """

    @abstractmethod
    def drop_table(self, name: str) -> Done:
        """Drop a table; older snapshots still see it."""

    @abstractmethod
    def rename_table(self, name: str, new_name: str) -> Done:
        """Rename a table; handles of it go on."""

    @abstractmethod
    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app and return the claim; from this commit on older claims are fenced.

        Args:
            app: The app of tokens (app, batch).
            holder: A name of the claimant (the id of a run). While the holder has the app, it gets
                the same claim again.
            at: The number for a new claim of this holder. Of several holders the one with the
                highest number has the app in the end, in whatever order they come.

        Raises:
            FencedError: The holder had claimed the app, and another holder claimed it later. With
                `at`: another holder has the app at that number or a higher one. In a transaction
                whose token was applied before: the claim is not `holder`'s any more, or had none.
        """
