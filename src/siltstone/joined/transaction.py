"""Transaction: a transaction that runs at the owner and lives with one connection of this process.

If this process ends, or is idle in it for too long, the owner rolls it back. When the answer to its
commit is lost, InDoubtError has its id, and `outcome` of the id tells what happened.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.write.transaction import Phase
from siltstone.errors import ClosedError, SiltstoneError
from siltstone.joined import protocol
from siltstone.joined.connection import Message
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.remote import ask, remote
from siltstone.lance_versions.fresh import KEYED
from siltstone.operations import Codec, Effect, Face, Operation, operation
from siltstone.process.turns import NONE_CLOSED, TableClosedError


@remote(Face.TRANSACTION)
class JoinedTransaction(Transaction):
    """See the module. A context manager: commits at the end of the block, or rolls back."""

    near = None

    def __init__(self, pool: ConnectionPool, named: dict[str, object]) -> None:
        self._pool = pool
        self._home, found = pool.open(protocol.ADDRESSES["transaction"], named)
        self._key: str = found["id"]
        self.read_seq = found["seq"]
        self.phase = Phase.OPEN
        self.receipt = None
        self.closed, self.closed_at = NONE_CLOSED, ""
        pool.closed = frozenset(found.get("closed", ()))
        self._ids: dict[str, int] = {}
        self._abandoned = weakref.finalize(self, self._home.close)

    def __repr__(self) -> str:
        return f"<Transaction {self.phase.value}, read seq {self.read_seq}>"

    def _require_open(self) -> None:
        self._pool.check()
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"the transaction is {self.phase.value}; begin a new one")

    # asking

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        if operation.codec is Codec.RESULT:
            return self.ask_table(operation, f"transaction/{self._key}", arguments, named)
        if operation.effect not in {Effect.READ, Effect.ONCE}:
            self._ids.clear()
        return self._within(f"transaction/{self._key}/{operation.name}", arguments, named)

    def _within(self, path: str, arguments: list[object], named: dict[str, object]) -> Any:
        """Ask on the connection that the transaction lives with."""
        self._require_open()
        message = self._pool.message(path, arguments, named, transaction=self._key)
        return self._pool.within(self._home, message)

    def ask_table(
        self, operation: Operation, path: str, arguments: list[object], named: dict[str, object]
    ) -> Any:
        """Ask for something of one table; the answer to a read has its own connection."""
        if operation.effect is not Effect.READ:
            return self._within(f"{path}/{operation.name}", arguments, named)
        self._require_open()
        return self._pool.call(operation, path, arguments, named, transaction=self._key)

    # tables

    def __getitem__(self, name: str) -> JoinedTransactionTable:
        self._require_open()
        found = self._ids.get(name) if type(name) is str else None
        if found is None:
            found = self._ids[name] = ask(self, operation(Face.TRANSACTION, "id_of"), name)
        if self.closed and name in self.closed:
            self.closed_at = name
            raise TableClosedError(name)
        return self._table(found)

    def table(self, table_id: int) -> JoinedTransactionTable:
        return JoinedTransactionTable(self, table_id)

    _table = table  # as `remote` asks for it

    def lance_catalog(
        self, operation_name: str, request: Mapping[str, object], data: bytes | None = None
    ) -> dict[str, Any]:
        """Have the owner answer a request of the Lance Namespace spec as a statement of it."""
        row = operation(Face.TRANSACTION, "lance_catalog")
        given = () if data is None else (data,)
        return ask(self, row, operation_name, dict(request), KEYED[0], *given)

    # the end

    def commit(self) -> Receipt:
        self._require_open()
        if self.closed_at:  # its work caught the error, and may have left a part out
            raise TableClosedError(self.closed_at)
        self.phase = Phase.ENDED
        self._abandoned.detach()
        path = f"transaction/{self._key}/commit"
        self.receipt = found = self._pool.commit(self._home, Message(path))
        self.phase = Phase.COMMITTED
        self._pool.committed(found.seq)
        return found

    def rollback(self) -> None:
        if self.phase is not Phase.OPEN:
            return
        try:
            ask(self, operation(Face.TRANSACTION, "rollback"))
        except SiltstoneError:
            self._home.close()  # which is a rollback, too
        else:
            self._abandoned.detach()
            self._pool.give(self._home)
        finally:
            self.phase = Phase.ENDED


@remote(Face.TRANSACTION_TABLE)
class JoinedTransactionTable(TransactionTable):
    """One table in a joined transaction; writes return how many rows they wrote."""

    near = None

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
