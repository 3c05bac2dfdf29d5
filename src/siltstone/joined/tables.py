"""Tables: the tables of a joined store: as they are now, in a transaction, at a snapshot.

Each method asks the owner for the same one; what is made of rows is made here. Handles carry the
table's id, not its name: a rename does not disturb them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.row_input import stream_of
from siltstone.engine.commit.write_set import Receipt
from siltstone.errors import UnavailableError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from siltstone.joined.snapshot import JoinedSnapshot
    from siltstone.joined.store import JoinedStore
    from siltstone.joined.transaction import JoinedTransaction
    from siltstone.maintenance.index.index_plan import IndexStatus
    from siltstone.query.sql.dataset import SnapshotDataset

Filter = str | pc.Expression | None


class JoinedReadable:
    """How a table is read, wherever it is asked for."""

    __slots__ = ()

    def _read(self, verb: str, *arguments: object) -> Any:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What the table is called there."""
        return self._read("name")

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the names and types that are seen there."""
        return self._read("schema")

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key columns, in key order; empty for a plain table."""
        return self._read("primary_key")

    def get(self, key: object) -> dict[str, Any] | None:
        """Return the row of `key` as a dict, None if there is none."""
        rows = self._read("get", key).read_all()
        return rows.to_pylist()[0] if rows.num_rows else None

    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of those `keys` that have one, in the order of the keys."""
        return self._read("get_many", _sendable(keys)).read_all()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows, in no order; see `Readable.scan`."""
        return self._read("scan", columns, filter, limit)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Filter = None) -> pa.Table:  # noqa: A002
        """Return the rows as a table."""
        return self.scan(columns, filter).read_all()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,  # noqa: A002
    ) -> pd.DataFrame:
        """Return the rows as a pandas data frame."""
        return self.to_arrow(columns, filter).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, filter: Filter = None) -> Any:  # noqa: A002
        """Return the rows as a Polars data frame."""
        try:
            import polars as pl  # noqa: PLC0415 - optional  # type: ignore[import-not-found]
        except ImportError as error:
            raise UnavailableError("polars is not installed") from error
        return pl.from_arrow(self.to_arrow(columns, filter))

    def count(self, filter: Filter = None) -> int:  # noqa: A002
        """Return how many rows there are, or how many match `filter`."""
        return self._read("count", filter)


class JoinedTable(JoinedReadable):
    """One table of a joined store: reads are fresh, writes are a transaction each.

    A write whose answer is lost raises InDoubtError; `outcome` of its transaction id tells.
    """

    __slots__ = ("_db", "id")

    def __init__(self, db: JoinedStore, table_id: int) -> None:
        self._db, self.id = db, table_id

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"<table {self.name!r}, {f'key {key}' if key else 'plain'}: {self.schema.names}>"

    def _read(self, verb: str, *arguments: object) -> Any:
        return self._db.link.read(f"table/{self.id}/{verb}", *arguments)

    def _write(self, verb: str, *arguments: object, **named: object) -> Receipt:
        return self._db.link.write(f"table/{self.id}/{verb}", arguments, named)

    def dataset(self) -> SnapshotDataset:
        """Return a fresh snapshot of the table as a pyarrow dataset."""
        return self._db.snapshot()[self.name].dataset()

    def upsert(self, rows: object) -> Receipt:
        """Add or replace whole rows; of equal keys the last counts."""
        return self._write("upsert", _sendable(rows))

    def insert(self, rows: object) -> Receipt:
        """Add rows whose keys do not live."""
        return self._write("insert", _sendable(rows))

    def update(self, key: object, /, **values: object) -> Receipt:
        """Change the named columns of one row; receipt.rows is 0 if the key does not live."""
        return self._write("update", key, **values)

    def delete(self, keys: object) -> Receipt:
        """Delete rows by key, one or a list, whether they live or not."""
        return self._write("delete", _sendable(keys))

    def append(self, rows: object) -> Receipt:
        """Add rows to a plain table."""
        return self._write("append", _sendable(rows))

    def overwrite(self, rows: object) -> Receipt:
        """Replace all rows of a plain table."""
        return self._write("overwrite", _sendable(rows))

    def delete_where(self, filter: str) -> Receipt:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression."""
        return self._write("delete_where", filter)

    def truncate(self) -> Receipt:
        """Delete all rows at once; older snapshots still see them."""
        return self._write("truncate")

    def add_column(self, name: str, kind: object) -> Receipt:
        """Add a nullable column."""
        return self._write("add_column", name, kind)

    def drop_column(self, name: str) -> Receipt:
        """Drop a column; adding the same name later makes a new one."""
        return self._write("drop_column", name)

    def rename_column(self, name: str, new_name: str) -> Receipt:
        """Rename a column."""
        return self._write("rename_column", name, new_name)

    def create_index(
        self,
        column: str,
        kind: str = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: object,
    ) -> IndexStatus:
        """Have an index on a column, built by the owner; see `Table.create_index`.

        Raises:
            UnavailableError: The answer was lost: `indexes` tells.
        """
        return self._ask("create_index", column, kind, name=name, build=build, **options)

    def indexes(self) -> list[IndexStatus]:
        """Return the indexes, by name, and how far they are behind; the key's own comes last."""
        return self._read("indexes")

    def drop_index(self, name: str) -> None:
        """Give an index up; as `create_index`."""
        self._ask("drop_index", name)

    def _ask(self, verb: str, *arguments: object, **named: object) -> Any:
        return self._db.link.once(f"table/{self.id}/{verb}", *arguments, **named)


class JoinedTransactionTable(JoinedReadable):
    """One table in a joined transaction; writes return how many rows they wrote."""

    __slots__ = ("_tx", "id")

    def __init__(self, tx: JoinedTransaction, table_id: int) -> None:
        self._tx, self.id = tx, table_id

    def __repr__(self) -> str:
        return f"<table {self.name!r} in {self._tx!r}>"

    def _read(self, verb: str, *arguments: object) -> Any:
        return self._tx.read(f"table/{self.id}/{verb}", *arguments)

    def _write(self, verb: str, *arguments: object, **named: object) -> Any:
        return self._tx.ask(f"table/{self.id}/{verb}", arguments, named)

    def upsert(self, rows: object) -> int:
        """Add or replace whole rows; of equal keys the last counts."""
        return self._write("upsert", _sendable(rows))

    def insert(self, rows: object) -> int:
        """Add rows whose keys do not live."""
        return self._write("insert", _sendable(rows))

    def update(self, key: object, /, **values: object) -> int:
        """Change the named columns of one row; return 1, or 0 if the key does not live."""
        return self._write("update", key, **values)

    def delete(self, keys: object) -> int:
        """Delete rows by key, one or a list; return how many keys were given."""
        return self._write("delete", _sendable(keys))

    def append(self, rows: object) -> int:
        """Add rows to a plain table."""
        return self._write("append", _sendable(rows))

    def overwrite(self, rows: object) -> int:
        """Replace all rows of a plain table."""
        return self._write("overwrite", _sendable(rows))

    def delete_where(self, filter: str) -> int:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression; return how many."""
        return self._write("delete_where", filter)

    def truncate(self) -> None:
        """Delete all rows at once; older snapshots still see them."""
        self._write("truncate")

    def add_column(self, name: str, kind: object) -> None:
        """Add a nullable column."""
        self._write("add_column", name, kind)

    def drop_column(self, name: str) -> None:
        """Drop a column; adding the same name later makes a new one."""
        self._write("drop_column", name)

    def rename_column(self, name: str, new_name: str) -> None:
        """Rename a column."""
        self._write("rename_column", name, new_name)


class JoinedSnapshotTable(JoinedReadable):
    """One table at the seq of its snapshot."""

    __slots__ = ("_name", "_snapshot")

    def __init__(self, snapshot: JoinedSnapshot, name: str) -> None:
        self._snapshot, self._name = snapshot, name

    def __repr__(self) -> str:
        return f"<table {self._name!r} at seq {self._snapshot.seq}>"

    @property
    def id(self) -> int:
        """Its id in this store: stays when it is renamed, and is never given again."""
        return self._read("id")

    @property
    def name(self) -> str:
        """What the table was called at the snapshot's seq."""
        return self._name

    def _read(self, verb: str, *arguments: object) -> Any:
        return self._snapshot.read_table(self._name, verb, *arguments)

    def dataset(self) -> SnapshotDataset:
        """Return the table as a pyarrow dataset: DuckDB, Polars and pandas push down into it."""
        from siltstone.query.sql.dataset import SnapshotDataset  # noqa: PLC0415 - brings pandas

        return SnapshotDataset(cast("Any", self))


def _sendable(rows: object) -> object:
    """Return Arrow-shaped rows as a stream, iterables as lists, and all else as it is."""
    stream = stream_of(rows)
    if stream is not None:
        return stream
    is_whole = hasattr(rows, "__len__") or not isinstance(rows, Iterable)
    return rows if is_whole else list(cast("Iterable[object]", rows))
