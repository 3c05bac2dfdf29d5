"""Runs: `Store.run` with a coroutine function; losers take turns as in `siltstone.api.runs`.

The tasks of a loop that lost at a table wait for each other first, so that at most one thread waits
for the turn of a table, with all other writers of the store. A run within a run takes no turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakValueDictionary

from siltstone.aio.commits import LoopStore
from siltstone.aio.transaction import AsyncTransaction
from siltstone.api.runs import ClosedTables, TurnHolder, TurnLines
from siltstone.arguments import count_of
from siltstone.errors import ConflictError, RequestError, told
from siltstone.process.turns import NOBODY, NONE_CLOSED, WAIT_S, TableClosedError

T = TypeVar("T")
_holds: ContextVar[bool] = ContextVar("siltstone_run", default=False)


class LoopTurns:
    """The lines of the tasks of one loop, by table. The loop's thread."""

    def __init__(self) -> None:
        # Each lives for as long as a task has its turn or waits.
        self._lines = WeakValueDictionary[str, asyncio.Lock]()

    async def take(self, table: str) -> asyncio.Lock | None:
        """Wait for at most a second for the tasks that come before; return what is then held."""
        line = self._lines.setdefault(table, asyncio.Lock())
        try:
            async with asyncio.timeout(WAIT_S):
                await line.acquire()
        except TimeoutError:
            return None
        return line


class TaskRun:
    """One run: its tries, and the turn that it holds."""

    def __init__(
        self,
        store: LoopStore,
        lines: LoopTurns,
        turns: TurnLines,
        begin: Callable[[], Awaitable[AsyncTransaction]],
    ) -> None:
        self._store, self._lines, self._turns, self._begin = store, lines, turns, begin
        self._holder = TurnHolder(turns, thread=NOBODY)
        self._table = ""
        self._line: asyncio.Lock | None = None

    async def run(self, work: Callable[[AsyncTransaction], Awaitable[T]], attempts: int) -> T:
        """Run `work` until a try commits; see `Store.run` for arguments and errors."""
        if not callable(work):
            raise RequestError(f"run() calls a function with a transaction; got {told(work)}")
        count_of("attempts", attempts, 1)
        is_outer = not _holds.get()
        token = _holds.set(True)
        try:
            for tried in range(1, attempts + 1):
                try:
                    return await (self._tried(work) if tried > 1 else self._first(work))
                except ConflictError as error:
                    if tried == attempts:
                        error.tell_tries(tried)
                        raise
                    lost = error
                if is_outer:
                    await self._lost(lost)
                del lost
        finally:
            _holds.reset(token)
            await self._end()
        raise AssertionError

    async def _first(self, work: Callable[[AsyncTransaction], Awaitable[T]]) -> T:
        try:
            return await self._tried(work, self._turns.closed)
        except TableClosedError as closed:
            table = closed.table
        await self._store.threads.run(lambda: self._turns.wait_open(table))
        return await self._tried(work)

    async def _tried(
        self,
        work: Callable[[AsyncTransaction], Awaitable[T]],
        closed: frozenset[str] = NONE_CLOSED,
    ) -> T:
        tx = await self._begin()
        async with tx:
            with ClosedTables(tx._tx, closed):  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as in `api`
                return await work(tx)
        raise AssertionError

    async def _lost(self, error: ConflictError) -> None:
        """Keep the turn, or take that of the table where the try lost."""
        table = error.table
        if self._line is not None and self._table != table:
            await self._end()
        if self._line is None and table != "*":
            self._table, self._line = table, await self._lines.take(table)
            if self._line is None:
                return
        await self._store.threads.run(lambda: self._holder.lost(error))

    async def _end(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            try:
                if self._store.groups is None:
                    await self._store.threads.run(self._holder.end)
                else:  # it is given up in memory
                    self._holder.end()
            finally:
                line.release()
