"""Tables: the tables of a store, of a snapshot and of a transaction, awaited.

Each has the sync handle, or finds it with its first call (`OfTable`). One row that is in the memory
of the process that owns the store is read in place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from siltstone.aio.awaited import awaited, like
from siltstone.aio.commits import LoopStore
from siltstone.aio.streams import RowStream
from siltstone.aio.threads import CallSite, CallTurns
from siltstone.api import readable, tables
from siltstone.api.results import Receipt
from siltstone.choices import Missing
from siltstone.given import Key, Rows
from siltstone.local.tables import LocalTable

_BLIND = ("refuse", "null")
"""What an upsert may say of missing columns to go into a group: it needs no look at other rows."""
_IN_MEMORY = frozenset({"id", "name", "schema"})
_SHORT = frozenset({"get", "upsert", "insert", "update", "delete"})
_KEYS = frozenset({int, str, bytes, tuple})
"""The types of what can only be one key."""


class AsyncReadableTable:
    """What all tables have in common; `find` gives the sync handle, and may wait."""

    def __init__(self, calls: CallSite, name: str, find: Callable[[], Any]) -> None:
        self._calls, self._name, self._find = calls, name, find
        self._found: Any = None

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__.removeprefix('Async')} {self._name}>"

    def _handle(self) -> Any:
        if self._found is None:
            self._found = self._find()
        return self._found

    async def _call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        return await self._calls.run(lambda: getattr(self._handle(), name)(*arguments, **named))

    async def _value(self, name: str) -> Any:
        return await self._calls.run(lambda: getattr(self._handle(), name))

    def _stream(self, name: str, *arguments: Any, **named: Any) -> RowStream:
        return RowStream(self._calls, lambda: getattr(self._handle(), name)(*arguments, **named))

    @property
    def id(self) -> Awaitable[int]:
        """The id, which no other table gets; a rename keeps it."""
        return self._value("id")

    @property
    def name(self) -> Awaitable[str]:
        """The name."""
        return self._value("name")

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The columns."""
        return self._value("schema")

    @property
    def primary_key(self) -> Awaitable[tuple[str, ...]]:
        """The names of the key columns, in key order; empty for a plain table."""
        return self._value("primary_key")

    @like(readable.ReadableTable.scan)
    def scan(self, *arguments: Any, **named: Any) -> RowStream:
        """Return the rows as batches to iterate over; see `siltstone.Table.scan`.

        The first batch decides at which seq all of them are read, and raises what is wrong.
        """
        return self._stream("scan", *arguments, **named)

    @like(readable.ReadableTable.range)
    def range(self, *arguments: Any, **named: Any) -> RowStream:
        """Return the rows with keys in [low, high), by key; see `scan`."""
        return self._stream("range", *arguments, **named)

    to_arrow = awaited(readable.ReadableTable.to_arrow)
    to_pandas = awaited(readable.ReadableTable.to_pandas)
    to_polars = awaited(readable.ReadableTable.to_polars)
    head = awaited(readable.ReadableTable.head)
    limit = awaited(readable.ReadableTable.limit)
    get = awaited(readable.ReadableTable.get)
    get_many = awaited(readable.ReadableTable.get_many)
    search = awaited(readable.ReadableTable.search)
    count = awaited(readable.ReadableTable.count)


class AsyncSnapshotTable(AsyncReadableTable):
    """A table as a snapshot has it."""

    dataset = awaited(tables.SnapshotTable.dataset)


class AsyncTable(AsyncReadableTable):
    """A table of an open store: reads see the newest commit, each write is a transaction."""

    def __init__(self, store: LoopStore, name: str, find: Callable[[], Any]) -> None:
        super().__init__(store.threads, name, find)
        self._store = store
        if store.groups is not None:  # found in memory: what is wrong with a name is said at once
            self._handle()

    async def _value(self, name: str) -> Any:
        if self._store.groups is None or name not in _IN_MEMORY:
            return await super()._value(name)
        self._store.threads.check()
        return getattr(self._handle(), name)

    async def get(self, key: Key) -> dict[str, Any] | None:
        """Return the row of `key` as a dict, or None; see `siltstone.Table.get`."""
        found = self._found
        if type(found) is LocalTable and self._store.groups is not None:
            self._store.threads.check()
            if found.is_at_hand(key):
                return found.get(key)
        return await self._call("get", key)

    async def upsert(self, rows: Rows, missing: Missing = "refuse") -> Receipt:
        """Insert or replace rows; see `siltstone.Table.upsert`."""
        found, groups = self._found, self._store.groups
        if groups is not None and type(rows) is dict and missing in _BLIND:
            planned = groups.table(found.id)
            if planned is not None:
                made = planned.upsert(rows, is_whole=missing == "refuse")
                return await groups.commit(made, lambda: found.upsert(rows, missing))
        return await self._call("upsert", rows, missing)

    insert = awaited(tables.Table.insert)
    update = awaited(tables.Table.update)
    update_many = awaited(tables.Table.update_many)
    delete = awaited(tables.Table.delete)
    append = awaited(tables.Table.append)
    overwrite = awaited(tables.Table.overwrite)
    delete_where = awaited(tables.Table.delete_where)
    update_where = awaited(tables.Table.update_where)
    truncate = awaited(tables.Table.truncate)
    add_column = awaited(tables.Table.add_column)
    drop_column = awaited(tables.Table.drop_column)
    alter_column = awaited(tables.Table.alter_column)
    rename_column = awaited(tables.Table.rename_column)
    create_index = awaited(tables.Table.create_index)
    indexes = awaited(tables.Table.indexes)
    drop_index = awaited(tables.Table.drop_index)
    dataset = awaited(tables.Table.dataset)


class AsyncTransactionTable(AsyncReadableTable):
    """A table as a transaction sees it: with its own writes, which stay private until it commits.

    What is done to one row that is in memory is done in place.
    """

    def __init__(
        self, turns: CallTurns, name: str, find: Callable[[], Any], *, is_here: bool
    ) -> None:
        """`is_here`: the transaction runs in the process that owns the store."""
        super().__init__(turns, name, find)
        self._turns, self._is_here = turns, is_here
        if is_here:
            self._handle()

    async def _call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        def call() -> Any:
            return getattr(self._handle(), name)(*arguments, **named)

        if self._is_here and name in _SHORT and arguments:
            return await self._turns.run(call, lambda: self._is_short(name, arguments[0]))
        return await self._turns.run(call)

    def _is_short(self, name: str, given: Any) -> bool:
        """Say whether a call needs nothing that is not in memory."""
        found = self._handle()
        if name == "upsert":
            return type(given) is dict
        if name != "insert":
            return type(given) in _KEYS and found.is_at_hand(given)
        if type(given) is not dict:
            return False
        names = found.primary_key
        if not names or not all(map(given.__contains__, names)):
            return False
        key = given[names[0]] if len(names) == 1 else tuple(given[each] for each in names)
        return found.is_at_hand(key)

    upsert = awaited(tables.TransactionTable.upsert)
    insert = awaited(tables.TransactionTable.insert)
    update = awaited(tables.TransactionTable.update)
    update_many = awaited(tables.TransactionTable.update_many)
    delete = awaited(tables.TransactionTable.delete)
    append = awaited(tables.TransactionTable.append)
    overwrite = awaited(tables.TransactionTable.overwrite)
    delete_where = awaited(tables.TransactionTable.delete_where)
    update_where = awaited(tables.TransactionTable.update_where)
    truncate = awaited(tables.TransactionTable.truncate)
    add_column = awaited(tables.TransactionTable.add_column)
    drop_column = awaited(tables.TransactionTable.drop_column)
    alter_column = awaited(tables.TransactionTable.alter_column)
    rename_column = awaited(tables.TransactionTable.rename_column)
