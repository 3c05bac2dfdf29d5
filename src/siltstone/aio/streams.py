"""Streams: rows and changes that are read as they are asked for, in a thread.

What a thread read for a task that was cancelled meanwhile is there for the next call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Self

import pyarrow as pa

from siltstone.aio.commits import LoopStore
from siltstone.aio.threads import CallSite, CallTurns, Threads
from siltstone.api.following import pauses
from siltstone.api.results import Change, commits_of
from siltstone.errors import ClosedError, UnavailableError

_CHANGES_MAX, _ROWS_MAX = 64, 65_536
"""So many changes, and about so many rows of them, are read at once."""


class RowStream:
    """Batches of rows: `async for batch in stream`, once.

    It keeps what it reads from vacuum until its end, or `aclose`.
    """

    def __init__(self, calls: CallSite, opens: Callable[[], pa.RecordBatchReader]) -> None:
        """Open by `opens`, in a thread, when the first batch is asked for."""
        self._calls = CallTurns(calls) if isinstance(calls, Threads) else calls
        self._opens = opens
        self._reader: pa.RecordBatchReader | None = None
        self._read: deque[pa.RecordBatch] = deque()

    def _opened(self) -> pa.RecordBatchReader:
        if self._reader is None:
            self._reader = self._opens()
        return self._reader

    def _fill(self) -> None:
        if not self._read:
            found = next(self._opened(), None)
            if found is not None:
                self._read.append(found)

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The columns."""
        return self._calls.run(lambda: self._opened().schema)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if not self._read:
            await self._calls.run(self._fill)
        if not self._read:
            raise StopAsyncIteration
        return self._read.popleft()

    async def read_all(self) -> pa.Table:
        """Return the rows that are left, all of them in memory."""
        return await self._calls.run(self._rest)

    def _rest(self) -> pa.Table:
        reader = self._opened()
        self._read.extend(reader)
        found, self._read = self._read, deque()
        return pa.Table.from_batches(list(found), reader.schema)

    async def aclose(self) -> None:
        """Release what is read; a second call does nothing."""
        reader = self._reader
        if reader is not None:
            await self._calls.run(reader.close)


class ChangeStream:
    """Commits as they become durable: `async for change in stream`; it ends with its store.

    One that failed stays so: it would miss the commits that it could not read.
    """

    def __init__(self, store: LoopStore, since: int, tables: Sequence[str] | None) -> None:
        """See `siltstone.Store.follow`."""
        self._store, self._since, self._tables = store, since, tables
        self._calls = CallTurns(store.threads)
        self._commits: Iterator[Change] | None = None
        self._read: deque[Change] = deque()
        self._is_new = True
        self._failure: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        try:
            while not self._read:
                if self._commits is None and not self._is_new:
                    await self._news()
                await self._calls.run(self._fill)
        except (ClosedError, UnavailableError) as error:
            # What was asked for as the store closed, its server may have refused.
            is_over = isinstance(error, ClosedError) or self._store.threads.is_closed
            if is_over and not self._is_new:
                raise StopAsyncIteration from None
            raise
        return self._read.popleft()

    def _fill(self) -> None:
        """Read some changes; none if all were read."""
        if self._read:
            return
        if self._failure is not None:
            raise self._failure
        if self._commits is None:
            until = self._store.db.durable_seq
            readers = self._store.db.changes(self._since, until, self._tables)
            self._commits, self._since, self._is_new = commits_of(readers), until, False
        rows = 0
        try:
            for change in self._commits:
                self._read.append(change)
                rows += sum(table.num_rows for table in change.tables.values())
                if rows >= _ROWS_MAX or len(self._read) >= _CHANGES_MAX:
                    return
        except Exception as error:
            self._failure = error
            raise
        self._commits = None

    async def _news(self) -> None:
        """Wait until more is durable."""
        store, above, news = self._store, self._since, self._store.news
        if news is None:
            for pause_s in pauses():
                if await self._durable_seq() > above:
                    return
                await asyncio.sleep(pause_s)
            return
        while True:
            store.threads.check()
            told = asyncio.Event()
            with news.heard(lambda told=told: store.threads.tell(told.set)):
                if await self._durable_seq() > above:
                    return
                try:
                    async with asyncio.timeout(news.patience_s):
                        await told.wait()
                except TimeoutError:
                    continue

    async def _durable_seq(self) -> int:
        """Return the last seq that is durable: its owner knows it without a wait."""
        store = self._store
        if store.groups is not None:
            return store.db.durable_seq
        return await store.threads.run(lambda: store.db.durable_seq)
