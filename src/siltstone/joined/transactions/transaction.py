"""Transaction: a transaction of a joined process: it runs here, until it needs its owner.

    HERE ──commit──▶ one request with what it wrote (`owner_commits`)
      └──a definition, tag, plain table, bulk load, catalog of Lance──▶ AT THE OWNER ──commit──▶

Here it reads the files of the store at its snapshot, and its owner does not know of it. At the
owner it lives with one connection: there it goes on at the same seq, with all that it wrote and
read. It begins there if it takes turns, or if this process does not read the files; and it ends
there if it wrote many rows, which go as files (`large_writes`). A statement of SQL that writes is
run there. If this process ends, or is idle in it for too long, it is rolled back.

When the answer to its commit is lost, InDoubtError has its id, and `outcome` of the id tells what
happened.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.recover.nearby import AskOwner
from siltstone.engine.write import sent_writes
from siltstone.engine.write.transaction import Phase
from siltstone.errors import ClosedError, ConflictError, SiltstoneError, SnapshotExpiredError
from siltstone.joined import protocol
from siltstone.joined.connection import Message
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.owner_turns import UNHEARD
from siltstone.joined.remote import ask, asked_sql, is_write, near_first, remote, written
from siltstone.joined.transactions import large_writes
from siltstone.joined.transactions.large_writes import StagedWrites
from siltstone.joined.transactions.owner_commits import first_try
from siltstone.lance_versions.fresh import KEYED
from siltstone.local.snapshot import seen_by
from siltstone.local.transaction import LocalTransaction
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.operations import Codec, Effect, Face, Operation, operation
from siltstone.process.turns import NONE_CLOSED, TableClosedError

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.query.sql import sql as queries

T = TypeVar("T")


_HERE = frozenset({"isolation", "durability", "token", "claim", "read_seq"})
"""With these alone a transaction may run here."""
_WRITES = (
    *("upsert", "insert", "update", "update_many"),
    *("delete", "delete_where", "update_where"),
)


def writes_here(kind: type[T]) -> type[T]:
    """Let a class of tables write rows of keyed tables by `near_keyed`."""
    for name in _WRITES:
        setattr(kind, name, near_first(getattr(kind, name), "near_keyed"))
    return kind


@remote(Face.TRANSACTION)
class JoinedTransaction(Transaction):
    """See the module. A context manager: commits at the end of the block, or rolls back."""

    def __init__(
        self, pool: ConnectionPool, named: dict[str, object], core: Core | None = None
    ) -> None:
        """Begin; in this process if there is a `core` to run it in.

        Raises:
            RequestError, SnapshotExpiredError, BusyError: As the owner's `transaction`.
        """
        self._pool, self._named = pool, named
        self.phase = Phase.OPEN
        self.receipt = None
        self.closed, self.closed_at = NONE_CLOSED, ""
        self._is_at_owner = False
        self._ids: dict[str, int] = {}
        self._used_s = time.monotonic()
        self._here: LocalTransaction | None = None
        is_shipped = named.get("durability") == "shipped"  # only the owner knows when it is
        if core is not None and named.keys() <= _HERE and not is_shipped:
            with suppress(AskOwner):
                self._here = LocalTransaction(core, **cast("dict[str, Any]", named))
        if self._here is not None:
            self.read_seq = self._here.read_seq
        else:
            self._begin(named)

    def _begin(self, named: dict[str, object]) -> None:
        """Begin at the owner."""
        self._home, found = self._pool.open(protocol.ADDRESSES["transaction"], named)
        self._is_at_owner = True
        self._key: str = found["id"]
        self.read_seq = found["seq"]
        self._pool.closed = frozenset(found.get("closed", ()))
        self._abandoned = weakref.finalize(self, self._home.close)

    def _move(self, *, to_commit: bool = False) -> None:
        """Go on at the owner, if it runs here.

        Raises:
            ConflictError: The owner does not keep its seq any more, or another table is there now.
                Or its token was applied meanwhile, and it would read at another seq; not if it only
                moves `to_commit`, which returns the old receipt.
        """
        here = self.near
        if here is None:
            return
        try:
            made = here.row_writes()
            self._begin({**self._named, "read_seq": here.read_seq})
            if self.read_seq != here.read_seq and not to_commit:
                explained = "its token was applied meanwhile; run it again"
                raise ConflictError("*", "*", here.read_seq, self.read_seq, explained=explained)
            if made.parts or made.reads is not None or "token" in self._named:
                sent = sent_writes.encode(made)
                self._within(f"transaction/{self._key}/adopt", [sent], {})
        except SnapshotExpiredError as error:
            seq = here.read_seq
            raise ConflictError("*", "*", seq, seq, explained=f"{error}; run it again") from error
        except BaseException:
            if self._is_at_owner:
                self._home.close()
            self.rollback()
            raise
        here.rollback()
        self._here = None

    @property
    def near(self) -> LocalTransaction | None:
        """The transaction as it runs here; None: it is at the owner.

        Raises:
            ClosedError: It ended, or was idle for too long.
        """
        here = self._here
        if here is None:
            return None
        self._require_open()
        if not here.is_open:  # a statement could not be taken back
            self.phase = Phase.ENDED
            self._require_open()
        now_s, idle_s = time.monotonic(), self._pool.hello["idle_s"]
        if now_s - self._used_s > idle_s:
            self.rollback()
            raise ClosedError(
                f"the transaction was idle for more than {idle_s:g} s; nothing of it was committed"
            )
        self._used_s = now_s
        return here

    def can_read_alone(self) -> bool:
        """Say that a transaction whose owner is needed, and gone, is over."""
        return False

    def __repr__(self) -> str:
        return f"<Transaction {self.phase.value}, read seq {self.read_seq}>"

    def _require_open(self) -> None:
        self._pool.check()
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"the transaction is {self.phase.value}; begin a new one")

    # asking

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        self._move()
        if operation.codec in {Codec.RESULT, Codec.STREAM}:
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
        self._move()
        if operation.effect is not Effect.READ:
            return self._within(f"{path}/{operation.name}", arguments, named)
        self._require_open()
        return self._pool.call(operation, path, arguments, named, transaction=self._key)

    # tables

    def __getitem__(self, name: str) -> JoinedTransactionTable:
        here = self.near
        found = self._id_at_owner(name) if here is None else here.named(name).id
        if self.closed and name in self.closed:
            self.closed_at = name
            raise TableClosedError(name)
        return self._table(found)

    def _id_at_owner(self, name: str) -> int:
        self._require_open()
        found = self._ids.get(name) if type(name) is str else None
        if found is None:
            found = self._ids[name] = ask(self, operation(Face.TRANSACTION, "id_of"), name)
        return found

    def table(self, table_id: int) -> JoinedTransactionTable:
        return JoinedTransactionTable(self, table_id)

    _table = table  # as `remote` asks for it

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        if is_write(statement):
            return written(self, Face.TRANSACTION, caller, statement, parameters)
        here = self.near
        if here is not None:
            with suppress(AskOwner):
                return collected(here.read_sql(statement, parameters, seen_by(caller)))
        return asked_sql(self, Face.TRANSACTION, "sql", caller, statement, parameters)

    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        # At the owner: a write that moved the transaction there would end what is read here.
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return asked_sql(self, Face.TRANSACTION, "sql_reader", caller, statement, parameters)

    @property
    def is_applied(self) -> bool:
        here = self.near
        if here is not None:
            return here.is_applied
        return ask(self, operation(Face.TRANSACTION, "is_applied"))

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
        here = self.near
        if here is None:
            return self._committed_there()
        staged = large_writes.staged(self._pool, here)
        if staged is not None:
            return self._commit_staged(here, staged)
        self.phase = Phase.ENDED
        with first_try() if self.closed is UNHEARD else nullcontext():
            self.receipt = here.commit()
        self.phase = Phase.COMMITTED
        return self.receipt

    def _commit_staged(self, here: LocalTransaction, staged: StagedWrites) -> Receipt:
        """Commit at the owner, with the files of what was written here."""
        try:
            tables = here.rows.keyed_writes if self.closed is UNHEARD else ()
            names = [catalogs.name_of(here.definition(each)) for each in tables]
            here.let_go(staged.writes)
            self._move(to_commit=True)
            closed = self._pool.closed.intersection(names)
            if closed:  # a first try, which hears of it just now
                raise TableClosedError(min(closed))
            for task, pieces in staged.jobs:
                ask(self, operation(Face.TRANSACTION, "attach"), task, pieces)
            return self._committed_there()
        finally:
            self.rollback()  # if it is open: an error came before the commit
            staged.discard(here)

    def _committed_there(self) -> Receipt:
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
        here, self._here = self._here, None
        if here is not None:
            self.phase = Phase.ENDED
            here.rollback()
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


@writes_here
@remote(Face.TRANSACTION_TABLE)
class JoinedTransactionTable(TransactionTable):
    """One table in a joined transaction; writes return how many rows they wrote."""

    __slots__ = ("_id", "_tx")

    def __init__(self, tx: JoinedTransaction, table_id: int) -> None:
        self._tx, self._id = tx, table_id

    def __repr__(self) -> str:
        return f"<table {self.name!r} in {self._tx!r}>"

    @property
    def near(self) -> LocalTransactionTable | None:
        """The table as the transaction sees it here; None: the owner is asked."""
        here = self._tx.near
        return None if here is None else here.table(self._id)

    def can_read_alone(self) -> bool:
        """See `JoinedTransaction`."""
        return False

    @property
    def near_keyed(self) -> LocalTransactionTable | None:
        """The same, of a table with a key: rows of others are written at the owner."""
        found = self.near
        return found if found is not None and found.has_key else None

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._tx.ask_table(operation, f"table/{self._id}", arguments, named)

    @property
    def id(self) -> int:
        return self._id
