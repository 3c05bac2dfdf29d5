"""Threads: where the calls of one event loop wait, so that the loop does not.

    calls      a bounded pool; a call that finds no free thread waits in its line, of at most
               `WAITING_MAX`
    commits    one thread, which commits for the loop, group by group, and closes the store

A task that is cancelled stops waiting at once. Its call goes on in its thread, if it has begun, but
no commit of it begins any more; the id of one that is on its way is in the error.

No lock: all but the calls is done in the loop's thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Protocol, TypeVar

from siltstone.arguments import count_of
from siltstone.errors import BusyError, ClosedError, RequestError
from siltstone.process.given_ids import GivenIds

T = TypeVar("T")
THREADS_MAX = 16
WAITING_MAX = 10_000


class CallSite(Protocol):
    """Where the calls of a handle are made."""

    async def run(self, call: Callable[[], T], /) -> T: ...


class UnderWay:
    """The ids of commits that began and are not known to have ended. The loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ids: set[str] = set()
        self._watchers: list[asyncio.Future[None]] = []

    def end(self, transaction_id: str) -> None:
        """Hear that a commit is through, or never comes."""
        self.ids.discard(transaction_id)
        watchers, self._watchers = self._watchers, []
        for each in watchers:
            if not each.done():
                each.set_result(None)

    async def until_over(self, transaction_id: str) -> None:
        """Wait until a commit has ended; not at all if none with that id is under way."""
        while transaction_id in self.ids:
            changed = self._loop.create_future()
            self._watchers.append(changed)
            await changed


class Threads:
    """See the module."""

    def __init__(self, most: int) -> None:
        """Belong to the running loop.

        Raises:
            RequestError: `most` is no integer from 1.
        """
        count_of("threads_max", most, 1)
        self.loop = asyncio.get_running_loop()
        self.calls = ThreadPoolExecutor(most, "siltstone-aio")
        self.commits = ThreadPoolExecutor(1, "siltstone-aio-commits")
        self.under_way = UnderWay(self.loop)
        self._pid, self._waiting, self._most = os.getpid(), 0, most
        self.is_closed = False

    def check(self) -> None:
        """Refuse a call from another loop, or in the child of a fork, which has no such threads.

        Raises:
            ClosedError, RequestError: It is one.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "the store was inherited by a fork, and its event loop and threads were not;"
                " connect in the child"
            )
        if asyncio.get_running_loop() is not self.loop:
            raise RequestError(
                "the store was connected in another event loop; connect in the one that uses it"
            )
        if self.is_closed:
            raise ClosedError("the store is closed")

    def tell(self, call: Callable[[], object]) -> None:
        """Have the loop call something soon, from any thread; a closed loop hears nothing."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call)

    def given(self) -> GivenIds:
        """Return where the ids of the commits of a call are noted."""
        return GivenIds(self.under_way.ids.add, self._ended)

    async def run(
        self,
        call: Callable[[], T],
        *,
        then: Callable[[], object] = lambda: None,
        given: GivenIds | None = None,
    ) -> T:
        """Make a call in a thread; `then` is called in the loop when it is over, in any way.

        `given`: where its ids are noted, for a caller that keeps them.

        Raises:
            BusyError: Too many calls wait for a thread already.
            CancelledError: The task was cancelled. With a `transaction_id`, a commit with that id
                had begun; else nothing was committed, nor will be.
        """
        given = self.given() if given is None else given
        made = self._submit(given, call, then)
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError as error:
            made.cancel()
            tell_id(error, given.withdraw())
            raise

    def _submit(
        self, given: GivenIds, call: Callable[[], T], then: Callable[[], object]
    ) -> Future[T]:
        try:
            self.check()
            if self._waiting >= WAITING_MAX + self._most:
                raise BusyError(f"{WAITING_MAX} calls wait for a thread of this event loop")
            made = self.calls.submit(copy_context().run, given.noted, call)
        except BaseException:
            then()
            raise
        self._waiting += 1
        made.add_done_callback(lambda _: self.tell(lambda: self._over(then)))
        return made

    def _over(self, then: Callable[[], object]) -> None:
        self._waiting -= 1
        then()

    def _ended(self, transaction_id: str) -> None:
        self.under_way.ids.discard(transaction_id)
        self.tell(lambda: self.under_way.end(transaction_id))

    async def close(self, call: Callable[[], T]) -> T:
        """Make a last call, behind all commits, and end the threads; it is made in any case."""
        self.check()
        self.is_closed = True
        made = self.commits.submit(copy_context().run, call)
        self.calls.shutdown(wait=False)
        self.commits.shutdown(wait=False)
        return await asyncio.shield(asyncio.wrap_future(made))


class CallTurns:
    """The calls of one transaction, one at a time, in the order in which they were made.

    Tasks may share a transaction, whose sync handle takes one thread at a time. A call that was
    cancelled keeps its turn until its thread is done with it. What waits for nothing is done in
    place. No lock but the turns: the loop's thread.
    """

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


def tell_id(error: BaseException, transaction_id: str | None) -> None:
    """Give an error the id of a commit that was under way, for `Store.outcome`."""
    if transaction_id is None:
        return
    error.transaction_id = transaction_id  # type: ignore[attr-defined]
    error.add_note(f"a commit was under way: ask the store for outcome({transaction_id!r})")
