"""Commits: the commits of an event loop, which one thread makes, group by group.

    commit ─▶ WAITING ──the thread takes all that wait──▶ TAKEN ──its group is through──▶ told
                 └──the task is cancelled: it never comes       └──the task is cancelled: it comes,
                                                                   or not, and `outcome` knows
The thread has places in the store's queue only while it commits: a loop is one writer among others.
While it waits for the disk, the next commits gather. At most `WAITING_MAX` wait; further tasks wait
for room, for at most `room_timeout_s`.

Lock: one, over what waits and whether the thread runs; held for steps of a list.
"""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from siltstone.aio.threads import Threads, tell_id
from siltstone.api.results import Receipt
from siltstone.api.store import Store
from siltstone.errors import BusyError
from siltstone.joined.news.server_news import ServerNews
from siltstone.local.group_upserts import PlannedTable, WriteSet
from siltstone.local.loop_commits import LoopCommits, News
from siltstone.process.given_ids import note

WAITING_MAX = 4_096
GROUP_MAX = 256
"""So many are told to the loop at once, which wakes as many tasks."""
Ended = Callable[[Receipt | None], object]


class _Commit(msgspec.Struct, eq=False):
    """One commit; `ended` hears its receipt, None if there is none, when it is over."""

    write_set: WriteSet
    id: str
    done: asyncio.Future[Receipt | None]
    ended: Ended


class GroupCommits:
    """See the module. The loop's thread, but `_run`."""

    def __init__(self, threads: Threads, store: LoopCommits, room_timeout_s: float) -> None:
        self._threads, self._store, self._room_timeout_s = threads, store, room_timeout_s
        self._lock = allocate_lock()
        self._waiting: deque[_Commit] = deque()
        self._runs = False
        self._rooms: deque[asyncio.Future[None]] = deque()

    def table(self, table_id: int) -> PlannedTable | None:
        """Return how rows of a table become write sets; see `LoopCommits.table`."""
        return self._store.table(table_id)

    def id_of(self, write_set: WriteSet) -> str:
        """Return the id of its commit."""
        return self._store.id_of(write_set.number)

    async def commit(
        self, write_set: WriteSet, alone: Callable[[], Receipt], ended: Ended = lambda _: None
    ) -> Receipt:
        """Commit, and return the receipt; errors as of a commit, and those of `Threads.run`.

        `alone` commits by itself, in a thread, what a group cannot. `ended` hears how it ended,
        also after the task was cancelled.
        """
        threads = self._threads
        entry = _Commit(write_set, self.id_of(write_set), threads.loop.create_future(), ended)
        threads.under_way.ids.add(entry.id)
        try:
            threads.check()
            if len(self._waiting) >= WAITING_MAX:
                await self._room()
                threads.check()  # it may be closed by now
        except BaseException:
            self._end(entry, None)
            raise
        found = await self._grouped(entry)
        return await self._alone(entry, alone) if found is None else found

    async def _grouped(self, entry: _Commit) -> Receipt | None:
        with self._lock:
            self._waiting.append(entry)
            starts, self._runs = not self._runs, True
        if starts:
            self._threads.commits.submit(self._run)
        try:
            return await entry.done
        except asyncio.CancelledError as error:
            if self._is_taken_back(entry) or _goes_alone(entry):
                self._end(entry, None)
            else:
                tell_id(error, entry.id)
            raise

    async def _alone(self, entry: _Commit, alone: Callable[[], Receipt]) -> Receipt:
        found: list[Receipt] = []

        def call() -> Receipt:
            note(entry.id)
            found.append(alone())
            return found[0]

        return await self._threads.run(
            call, then=lambda: self._end(entry, found[0] if found else None)
        )

    async def _room(self) -> None:
        room = self._threads.loop.create_future()
        self._rooms.append(room)
        try:
            async with asyncio.timeout(self._room_timeout_s):
                await room
        except TimeoutError:
            raise BusyError(
                f"{WAITING_MAX} commits of this event loop waited for {self._room_timeout_s:g} s"
            ) from None

    def _is_taken_back(self, entry: _Commit) -> bool:
        """Take a commit back, if the thread has not taken it."""
        with self._lock:
            try:
                self._waiting.remove(entry)
            except ValueError:
                return False
        return True

    # the thread

    def _run(self) -> None:
        """Commit what waits, until nothing does."""
        while True:
            with self._lock:
                count = min(GROUP_MAX, len(self._waiting))
                taken = [self._waiting.popleft() for _ in range(count)]
                self._runs = bool(taken)
            if not taken:
                return
            found: Sequence[Receipt | BaseException | None]
            try:
                found = self._store.commit([each.write_set for each in taken])
            except BaseException as error:  # noqa: BLE001 - it is told to each of them
                found = [error] * count
            through = zip(taken, found, strict=True)
            self._threads.under_way.ids.difference_update(
                each.id for each, outcome in through if outcome is not None
            )
            self._threads.tell(lambda taken=taken, found=found: self._told(taken, found))

    # the loop again

    def _told(
        self, taken: Sequence[_Commit], found: Sequence[Receipt | BaseException | None]
    ) -> None:
        for each, outcome in zip(taken, found, strict=True):
            is_left = each.done.cancelled()
            if is_left or outcome is not None:
                self._end(each, outcome if isinstance(outcome, Receipt) else None)
            if is_left:
                continue
            if isinstance(outcome, BaseException):
                each.done.set_exception(outcome)
            else:
                each.done.set_result(outcome)
        left = len(taken)
        while left and self._rooms:
            room = self._rooms.popleft()
            if not room.done():  # its task was not cancelled, nor refused
                room.set_result(None)
                left -= 1

    def _end(self, entry: _Commit, receipt: Receipt | None) -> None:
        entry.ended(receipt)
        self._threads.under_way.end(entry.id)


@dataclass(frozen=True, slots=True)
class LoopStore:
    """What the handles of one awaited store share.

    `groups`: its commits, where this process owns the store; else None. `news`: where that, or the
    server that is asked, tells of commits.
    """

    db: Store
    threads: Threads
    groups: GroupCommits | None
    news: News | ServerNews | None


def _goes_alone(entry: _Commit) -> bool:
    """Say whether its task was told that nothing was written, and cancelled before it heard."""
    done = entry.done
    return done.done() and not done.cancelled() and not done.exception() and done.result() is None
