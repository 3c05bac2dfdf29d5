"""Transaction: one snapshot over all tables, private changes, one commit for all of them, awaited.

What needs only memory is done in place: in the process that owns the store, that is its begin, its
writes of single rows, and reads of rows that are there. A few rows are committed in a group of the
loop; all else commits in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from siltstone.aio.awaited import awaited, like
from siltstone.aio.commits import LoopStore
from siltstone.aio.streams import RowStream
from siltstone.aio.tables import AsyncTransactionTable
from siltstone.aio.threads import CallTurns
from siltstone.api import transaction
from siltstone.api.results import Receipt
from siltstone.local.group_upserts import WriteSet
from siltstone.local.transaction import LocalTransaction

_rolling_back: set[asyncio.Task[None]] = set()
"""A loop keeps no task alive by itself."""


class AsyncTransaction:
    """See the module. `async with` commits at the end of the block; an error rolls back.

    Tasks may share it: its calls take turns. A block that is cancelled while a call of it runs in a
    thread ends at once, and the transaction when that call is done.
    """

    def __init__(self, store: LoopStore, tx: transaction.Transaction) -> None:
        """Use `Store.transaction`."""
        self._store, self._tx = store, tx
        self._turns = CallTurns(store.threads)
        self._given = store.threads.given()
        self._id: str | None = None

    def __repr__(self) -> str:
        return f"<aio.{repr(self._tx).removeprefix('<')}"

    @property
    def is_open(self) -> bool:
        """Whether it is neither committed nor rolled back."""
        return self._tx.is_open

    @property
    def phase(self) -> Any:
        """How far it is."""
        return self._tx.phase

    @property
    def read_seq(self) -> int:
        """The sequence number of its snapshot."""
        return self._tx.read_seq

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the commit; None before it."""
        return self._tx.receipt

    @property
    def seq(self) -> int:
        """The sequence number of the commit; see `siltstone.Transaction.seq`."""
        return self._tx.seq

    @property
    def transaction_id(self) -> str | None:
        """The id under which its commit began, for `Store.outcome`; None: none has begun.

        A task that was cancelled in a commit finds here what to ask for.
        """
        return self._id or self._given.last

    @property
    async def is_applied(self) -> bool:
        """Whether its token was applied before it began: the commit returns the old receipt."""
        return await self._turns.run(lambda: self._tx.is_applied)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.is_open:
            return
        if kind is not None:
            await self._roll_back()
            return
        try:
            await self.commit()
        except BaseException:
            if self.is_open:  # cancelled before its commit began
                await self._roll_back()
            raise

    async def _roll_back(self) -> None:
        """Roll back now; behind a call that still runs, if it was cancelled."""
        is_free = self._turns.is_free
        task = asyncio.ensure_future(self.rollback())
        _rolling_back.add(task)
        task.add_done_callback(_rolling_back.discard)
        if is_free:
            await asyncio.shield(task)

    async def _call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        return await self._turns.run(lambda: getattr(self._tx, name)(*arguments, **named))

    def __getitem__(self, name: str) -> AsyncTransactionTable:
        """Return the table called `name`; see `siltstone.Transaction`."""
        return self._table(name, lambda: self._tx[name])

    def table(self, table_id: int) -> AsyncTransactionTable:
        """Return the table with this id (`Table.id`), whatever its name is in this transaction."""
        return self._table(f"#{table_id}", lambda: self._tx.table(table_id))

    def _table(self, name: str, find: Callable[[], Any]) -> AsyncTransactionTable:
        is_here = self._store.groups is not None
        return AsyncTransactionTable(self._turns, name, find, is_here=is_here)

    @like(transaction.Transaction.create_table)
    async def create_table(self, name: str, *arguments: Any, **named: Any) -> AsyncTransactionTable:
        """Create a table, and fill it; see `siltstone.Transaction`."""
        made = await self._call("create_table", name, *arguments, **named)
        return self._table(name, lambda: made)

    @like(transaction.Transaction.sql_reader)
    def sql_reader(self, *arguments: Any, **named: Any) -> RowStream:
        """Run a query; return its rows as batches to iterate over."""
        return RowStream(self._turns, lambda: self._tx.sql_reader(*arguments, **named))

    tables = awaited(transaction.Transaction.tables)
    drop_table = awaited(transaction.Transaction.drop_table)
    rename_table = awaited(transaction.Transaction.rename_table)
    claim = awaited(transaction.Transaction.claim)
    sql = awaited(transaction.Transaction.sql)
    attach = awaited(transaction.Transaction.attach)
    put_back = awaited(transaction.Transaction.put_back)
    changed_since = awaited(transaction.Transaction.changed_since)
    tag = awaited(transaction.Transaction.tag)

    async def commit(self) -> Receipt:
        """Commit and return the receipt; see `siltstone.Transaction.commit`.

        Raises:
            CancelledError: The task was cancelled. Without a `transaction_id` nothing of it was
                committed, nor will be; else `Store.outcome` of it tells.
        """
        groups, tx = self._store.groups, self._tx
        if self._given.last is None:  # that of a call that was cancelled lets no commit begin
            self._given = self._store.threads.given()
        if groups is None or not isinstance(tx, LocalTransaction):
            return await self._turns.run(tx.commit, given=self._given)
        end = await self._turns.take()
        made = None
        try:
            self._store.threads.check()
            made = tx.begin_commit()
        finally:
            if not isinstance(made, WriteSet):
                end()
        if isinstance(made, Receipt):
            return made
        if made is None:
            return await self._turns.run(tx.commit, given=self._given)
        self._id = groups.id_of(made)

        def ended(receipt: Receipt | None) -> None:
            try:
                tx.finish(receipt)
            finally:
                end()

        return await groups.commit(made, lambda: tx.commit_alone(made), ended)

    async def rollback(self) -> None:
        """End without a trace; a second call does nothing."""
        await self._turns.run(self._tx.rollback, lambda: self._store.groups is not None)
