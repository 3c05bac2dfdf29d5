"""Streams: rows that are read as they are asked for, batch by batch, in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

import pyarrow as pa

from siltstone.aio.threads import Calls


class RowStream:
    """Batches of rows: `async for batch in stream`. One task at a time iterates, and once.

    It keeps what it reads from vacuum until its end, or `aclose`.
    """

    def __init__(self, calls: Calls, opens: Callable[[], pa.RecordBatchReader]) -> None:
        """Open by `opens`, in a thread, when the first batch is asked for."""
        self._calls, self._opens = calls, opens
        self._reader: pa.RecordBatchReader | None = None

    def _opened(self) -> pa.RecordBatchReader:
        if self._reader is None:
            self._reader = self._opens()
        return self._reader

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The columns."""
        return self._calls.run(lambda: self._opened().schema)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        found = await self._calls.run(lambda: next(self._opened(), None))
        if found is None:
            raise StopAsyncIteration
        return found

    async def read_all(self) -> pa.Table:
        """Return the rows that are left, all of them in memory."""
        return await self._calls.run(lambda: self._opened().read_all())

    async def aclose(self) -> None:
        """Let go of what is read; a second call does nothing."""
        reader = self._reader
        if reader is not None:
            await self._calls.run(reader.close)
