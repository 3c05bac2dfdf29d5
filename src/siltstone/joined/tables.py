"""Tables: the tables of a joined store: as they are now, in a transaction, at a snapshot.

Each method asks the owner for the same one; what is made of rows is made here. Handles carry the
table's id, not its name: a rename does not disturb them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from siltstone.api.tables import SnapshotTable, Table, TransactionTable
from siltstone.joined.remote import remote
from siltstone.operations import Face, Operation

if TYPE_CHECKING:
    from siltstone.joined.snapshot import JoinedSnapshot
    from siltstone.joined.store import JoinedStore
    from siltstone.joined.transaction import JoinedTransaction
    from siltstone.query.sql.dataset import SnapshotDataset


@remote(Face.TABLE)
class JoinedTable(Table):
    """One table of a joined store: reads are fresh, writes are a transaction each.

    A write whose answer is lost raises InDoubtError; `outcome` of its transaction id tells.
    """

    __slots__ = ("_db", "_id")

    def __init__(self, db: JoinedStore, table_id: int) -> None:
        self._db, self._id = db, table_id

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[object, ...]]:
        """Pickle as path and id: what comes back reads the files, as of any store."""
        self._db.require_near("to be pickled")
        return _table_now, (str(self._db.path), self._id)

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._db.pool.call(operation, f"table/{self._id}", arguments, named)

    @property
    def id(self) -> int:
        return self._id

    def dataset(self) -> SnapshotDataset:
        return self._db.snapshot()[self.name].dataset()


@remote(Face.TRANSACTION_TABLE)
class JoinedTransactionTable(TransactionTable):
    """One table in a joined transaction; writes return how many rows they wrote."""

    __slots__ = ("_id", "_tx")

    def __init__(self, tx: JoinedTransaction, table_id: int) -> None:
        self._tx, self._id = tx, table_id

    def __repr__(self) -> str:
        return f"<table {self.name!r} in {self._tx!r}>"

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._tx.ask_table(operation, f"table/{self._id}", arguments, named)

    @property
    def id(self) -> int:
        return self._id


@remote(Face.SNAPSHOT_TABLE)
class JoinedSnapshotTable(SnapshotTable):
    """One table at the seq of its snapshot."""

    __slots__ = ("_name", "_snapshot")

    def __init__(self, snapshot: JoinedSnapshot, name: str) -> None:
        self._snapshot, self._name = snapshot, name

    def __repr__(self) -> str:
        return f"<table {self._name!r} at seq {self._snapshot.seq}>"

    def __reduce__(self) -> tuple[Callable[..., SnapshotTable], tuple[object, ...]]:
        """Pickle as path, name and seq: another process reads the files, at the same seq."""
        return _table_at, (str(self._snapshot.root), self._name, self._snapshot.seq)

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._snapshot.ask_table(operation, f"table/{self._name}", arguments, named)

    @property
    def name(self) -> str:
        return self._name


def _table_at(root: str, table: str, seq: int) -> SnapshotTable:
    from siltstone.local.snapshot import table_at  # noqa: PLC0415 - it brings an owner's parts

    return table_at(root, "", "first_use", table, seq)


def _table_now(root: str, table_id: int) -> Table:
    from siltstone.local.snapshot import table_now  # noqa: PLC0415 - as above

    return table_now(root, "", "first_use", table_id)
