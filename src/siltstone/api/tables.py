"""Tables: one table of a store, at a snapshot or in a transaction; what can be read and written.

    db["orders"]     Table             reads see the newest commit, each write is a transaction
    tx["orders"]     TransactionTable  reads see the transaction's own writes; writes stay private
    past["orders"]   SnapshotTable     reads see one sequence number

Handles carry the table's id, not its name: they go on after a rename.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.results import IndexStatus, Receipt
from siltstone.errors import UnavailableError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from siltstone.query.sql.dataset import SnapshotDataset


class ReadableTable(ABC):
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
        """Return the rows of those `keys` that have one, in the order of the keys.

        Args:
            keys: A list of keys, or Arrow data with the key columns.

        Raises:
            RequestError: A plain table.
            SchemaMismatchError: A key is of another type.
        """

    @abstractmethod
    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
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

    @abstractmethod
    def count(self, filter: str | pc.Expression | None = None) -> int:  # noqa: A002
        """Return the number of rows, or of the rows that match `filter`; see `scan`."""

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
    ) -> pa.Table:
        """Return the rows as a table; see `scan`."""
        return self.scan(columns, filter).read_all()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
    ) -> pd.DataFrame:
        """Return the rows as a pandas data frame; see `scan`."""
        return self.to_arrow(columns, filter).to_pandas()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
    ) -> Any:
        """Return the rows as a Polars data frame; see `scan`.

        Raises:
            UnavailableError: Polars is not installed.
        """
        try:
            import polars as pl  # noqa: PLC0415 - optional  # type: ignore[import-not-found]
        except ImportError as error:
            raise UnavailableError("polars is not installed") from error
        return pl.from_arrow(self.to_arrow(columns, filter))


class SnapshotTable(ReadableTable):
    """One table at the sequence number of its snapshot."""

    __slots__ = ()

    @abstractmethod
    def dataset(self) -> SnapshotDataset:
        """Return the table as a pyarrow dataset: DuckDB, Polars and pandas push down into it."""


class Table(ReadableTable):
    """One table of an open store. Reads see the newest commit; each write is a transaction."""

    __slots__ = ()

    @abstractmethod
    def dataset(self) -> SnapshotDataset:
        """Return a fresh snapshot of the table as a pyarrow dataset."""

    # keyed tables

    @abstractmethod
    def upsert(self, rows: object) -> Receipt:
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
    def insert(self, rows: object) -> Receipt:
        """Add rows whose keys no row has yet.

        Raises:
            DuplicateKeyError: The table has a key, or one appears twice; nothing was written.
            SchemaMismatchError: A column or value does not fit; nothing was written.
        """

    @abstractmethod
    def update(self, key: object, /, **values: object) -> Receipt:
        """Change the named columns of one row; `receipt.rows` is 0 if no row has the key."""

    @abstractmethod
    def delete(self, keys: object) -> Receipt:
        """Delete the rows of some keys, one or a list. Absent keys are no error. No conflicts."""

    # plain tables

    @abstractmethod
    def append(self, rows: object) -> Receipt:
        """Add rows to a plain table."""

    @abstractmethod
    def overwrite(self, rows: object) -> Receipt:
        """Replace all rows of a plain table."""

    # both

    @abstractmethod
    def delete_where(self, filter: str) -> Receipt:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression."""

    @abstractmethod
    def truncate(self) -> Receipt:
        """Delete all rows at once; older snapshots still see them."""

    @abstractmethod
    def add_column(self, name: str, kind: object) -> Receipt:
        """Add a nullable column."""

    @abstractmethod
    def drop_column(self, name: str) -> Receipt:
        """Drop a column. A column that is added later under the same name is another column."""

    @abstractmethod
    def rename_column(self, name: str, new_name: str) -> Receipt:
        """Rename a column."""

    # indexes of keyed tables

    @abstractmethod
    def create_index(
        self,
        column: str,
        kind: str = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: object,
    ) -> IndexStatus:
        """Create an index on a column. It changes no result, and only the caller waits for it.

        The index covers the rows that are merged into base; merges and optimizes keep it up to
        date.

        Args:
            column: A column of a keyed table.
            kind: "btree" (equality, ranges), "bitmap" (the same, for few distinct values), "fts"
                (words of a text) or "vector" (nearest neighbours). Only other Lance clients use
                the last two.
            name: By default the column's name.
            build: False leaves building it to the next optimize or merge.
            options: For fts: language, base_tokenizer, stem, lower_case, remove_stop_words,
                ascii_folding, with_position. For vector: metric ("l2", "cosine", "dot"), encoding
                ("flat", "sq", "pq" with sub_vectors), partitions.

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


class TransactionTable(ReadableTable):
    """One table in one transaction: reads see own writes. Writes return how many rows they wrote.

    The arguments and errors are those of `Table`.
    """

    __slots__ = ()

    @abstractmethod
    def upsert(self, rows: object) -> int:
        """Add or replace whole rows; of rows with equal keys the last one counts."""

    @abstractmethod
    def insert(self, rows: object) -> int:
        """Add rows whose keys no row has yet."""

    @abstractmethod
    def update(self, key: object, /, **values: object) -> int:
        """Change the named columns of one row; return 1, or 0 if no row has the key."""

    @abstractmethod
    def delete(self, keys: object) -> int:
        """Delete the rows of some keys, one or a list; return how many keys were given."""

    @abstractmethod
    def append(self, rows: object) -> int:
        """Add rows to a plain table."""

    @abstractmethod
    def overwrite(self, rows: object) -> int:
        """Replace all rows of a plain table."""

    @abstractmethod
    def delete_where(self, filter: str) -> int:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression; return how many."""

    @abstractmethod
    def truncate(self) -> None:
        """Delete all rows at once; older snapshots still see them."""

    @abstractmethod
    def add_column(self, name: str, kind: object) -> None:
        """Add a nullable column."""

    @abstractmethod
    def drop_column(self, name: str) -> None:
        """Drop a column. A column that is added later under the same name is another column."""

    @abstractmethod
    def rename_column(self, name: str, new_name: str) -> None:
        """Rename a column."""
