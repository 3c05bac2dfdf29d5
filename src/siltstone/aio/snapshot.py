"""Snapshot: all tables at one sequence number, awaited."""

from __future__ import annotations

from typing import Any, Self

from siltstone.aio.awaited import awaited, like
from siltstone.aio.commits import LoopStore
from siltstone.aio.streams import RowStream
from siltstone.aio.tables import AsyncSnapshotTable
from siltstone.api import snapshot


class AsyncSnapshot:
    """See the module. `async with` closes it. Vacuum keeps what it reads."""

    def __init__(self, store: LoopStore, past: snapshot.Snapshot) -> None:
        """Use `Store.snapshot`."""
        self._store, self._past = store, past

    def __repr__(self) -> str:
        return f"<aio.Snapshot {self.seq}>"

    @property
    def seq(self) -> int:
        """The sequence number."""
        return self._past.seq

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        del kind
        await self.close()

    async def _call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        return await self._store.threads.run(lambda: getattr(self._past, name)(*arguments, **named))

    def __getitem__(self, name: str) -> AsyncSnapshotTable:
        """Return the table that had this name; the first call of it raises if there was none."""
        return AsyncSnapshotTable(self._store.threads, name, lambda: self._past[name])

    @like(snapshot.Snapshot.sql_reader)
    def sql_reader(self, *arguments: Any, **named: Any) -> RowStream:
        """Run a query over this snapshot; return its rows as batches to iterate over."""
        return RowStream(self._store.threads, lambda: self._past.sql_reader(*arguments, **named))

    tables = awaited(snapshot.Snapshot.tables)
    scan_tasks = awaited(snapshot.Snapshot.scan_tasks)
    sql = awaited(snapshot.Snapshot.sql)
    close = awaited(snapshot.Snapshot.close)
