"""Turns: the calls of one transaction, one at a time, in the order in which they were made.

Tasks may share a transaction, whose sync handle takes one thread at a time. A call that was
cancelled keeps its turn until its thread is done with it. What waits for nothing is done in place.

No lock but the turns: the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from siltstone.aio.threads import Threads
from siltstone.process.given_ids import GivenIds

T = TypeVar("T")


class CallTurns:
    """See the module."""

    def __init__(self, threads: Threads) -> None:
        self._threads, self._lock = threads, asyncio.Lock()

    @property
    def is_free(self) -> bool:
        """Whether no call has its turn."""
        return not self._lock.locked()

    async def take(self) -> Callable[[], None]:
        """Wait for a turn; return what ends it."""
        await self._lock.acquire()
        return self._lock.release

    async def run(
        self,
        call: Callable[[], T],
        is_short: Callable[[], bool] = lambda: False,
        given: GivenIds | None = None,
    ) -> T:
        """Make a call in its turn: in place if it `is_short`, else in a thread."""
        end = await self.take()
        is_here = True
        try:
            self._threads.check()
            is_here = is_short()
            if is_here:
                return call()
        finally:
            if is_here:
                end()
        return await self._threads.run(call, then=end, given=given)
