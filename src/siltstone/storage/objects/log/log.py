"""Log: the objects of a log in a bucket, one by one, and in their order.

    1 ─fence─▶ claimed epoch: frame, frame, ... ─fence─▶ a later epoch: frame, ... ─▶ nothing yet

A walk goes from a place that a record of the bucket names to the first number that has no object:
the end. What lies behind it, or behind a fence in the epoch that the fence ended, does not count.
One put is in flight, so no owner puts a frame behind a number that is absent: a frame there means
that an object is gone (`LogWalk.refuse_a_hole`). Of the last one only the server knows.

Lock: none; a walk belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from siltstone.errors import CorruptionError
from siltstone.formats.log import log_object as formats
from siltstone.formats.log.log_object import (
    FENCE_BYTES,
    LOG,
    Kind,
    LoggedGroup,
    LogObject,
    LogPlace,
)
from siltstone.storage.objects.objects import Objects, Taken, submitted

AHEAD_MAX = 16
"""So many objects are asked for at once, where one comes after the other."""


class NamedObject(NamedTuple):
    """An object as a list has it. `is_fence`: it has no payload, as a claim has none."""

    place: LogPlace
    key: str
    is_fence: bool
    is_part: bool


@dataclass(frozen=True, slots=True)
class ObjectLog:
    """See the module. Threads may share it."""

    objects: Objects

    def url(self, key: str) -> str:
        return f"{self.objects.url}/{key}"

    def get(self, place: LogPlace) -> LogObject | None:
        """Return the object at a place; None: there is none.

        Raises:
            CorruptionError, UnsupportedFormatError: It is damaged, or of another siltstone.
            UnavailableError: The server does not answer, or refuses.
        """
        found = self.objects.get(place.key)
        return None if found is None else formats.decode(found.data, place, self.url(place.key))

    def put_new(self, place: LogPlace, data: bytes) -> LogObject | None:
        """Put an object; return the one of another writer that has the place, None: it is ours.

        Raises:
            CorruptionError, UnsupportedFormatError, UnavailableError: As `get`.
        """
        done = self.objects.put_new(place.key, data)
        if isinstance(done, Taken):
            return formats.decode(done.found.data, place, self.url(place.key))
        return None

    def groups(self, found: LogObject) -> Iterator[LoggedGroup]:
        """Yield the commits of a frame, as they were synced together.

        Raises:
            CorruptionError: A part of it is damaged, or gone.
        """
        if found.kind is Kind.FRAME:
            return formats.decode_groups(found.payload)
        parts = formats.decode_parts(found.payload)
        whole = (self._part(found.place.part(at), each) for at, each in enumerate(parts))
        return formats.decode_groups(b"".join(whole))

    def _part(self, key: str, expected: tuple[int, int]) -> bytes:
        found = self.objects.get(key)
        if found is None:
            raise CorruptionError(self.url(key), None, "the object is missing")
        formats.require_part(found.data, expected, self.url(key))
        return found.data

    def names(self, after: str) -> Iterator[NamedObject]:
        """Yield the objects of the log whose keys are above `after`, in the order of their keys."""
        for head in self.objects.list_after(LOG, after):
            named = formats.place_of(head.key)
            if named is not None:
                place, is_part = named
                is_fence = head.size <= FENCE_BYTES and not is_part
                yield NamedObject(place, head.key, is_fence, is_part)


class LogWalk:
    """A walk over the log; `at` is the next place, `previous` the checksum of the object before.

    Until the first object, `previous` is 0: what was there may be deleted. An object that was asked
    for ahead, and was not there, is asked for again, unless `is_prompt`: such a walk ends there,
    however fast its owner goes on.
    """

    def __init__(self, log: ObjectLog, start: LogPlace, *, is_prompt: bool = False) -> None:
        self._log, self.at, self.previous = log, start, 0
        self._is_prompt = is_prompt
        self._pool: ThreadPoolExecutor | None = None
        self._window = 1
        self._asked: dict[LogPlace, Future[LogObject | None]] = {}

    def step(self) -> LogObject | None:
        """Go over the next object, a frame or a fence; None: it is not there, or not yet.

        Raises:
            CorruptionError: It is damaged, or does not follow the one before.
            UnsupportedFormatError, UnavailableError: As `ObjectLog.get`.
        """
        found = self._next()
        if found is None:
            self._window = 1
            return None
        self._window = min(2 * self._window, AHEAD_MAX)
        is_other = self.previous and found.previous != self.previous and not _is_barrier(found)
        if is_other or found.kind is Kind.CLAIM:
            reason = "the object does not follow the one before it"
            raise CorruptionError(self._log.url(found.place.key), None, reason)
        self.went_over(found)
        return found

    def step_to_the_end(self) -> LogObject | None:
        """Go over the next object; None: the log ends here, and no object of it is gone.

        It costs a list at the end.

        Raises:
            CorruptionError, UnsupportedFormatError, UnavailableError: As `step`; an object is gone.
        """
        found = self.step()
        if found is not None:
            return found
        try:
            self.refuse_a_hole()
        except CorruptionError:
            found = self.step()  # its owner goes on meanwhile
            if found is None:
                raise
        return found

    @contextmanager
    def reading_ahead(self) -> Generator[None]:
        """Meanwhile ask for 2, 4, ... `AHEAD_MAX` objects at once, as long as they are there."""
        pool = ThreadPoolExecutor(AHEAD_MAX, thread_name_prefix="siltstone-log")
        self._pool = pool
        try:
            yield
        finally:
            self._pool = None
            self._asked.clear()
            pool.shutdown(cancel_futures=True)

    def went_over(self, found: LogObject) -> None:
        """Go on behind an object that was put by this process."""
        self.previous, self.at = found.checksum, found.place.behind
        if found.kind is Kind.FENCE:
            self.at = LogPlace(found.next_epoch, self.at.number)
            self._asked.clear()

    def _next(self) -> LogObject | None:
        asked = self._asked.pop(self.at, None)
        if self._pool is not None:
            for number in range(self.at.number + 1, self.at.number + self._window):
                place = LogPlace(self.at.epoch, number)
                if place not in self._asked:
                    self._asked[place] = submitted(self._pool, self._log.get, place)
        found = None if asked is None else asked.result()
        if found is None and (asked is None or not self._is_prompt):  # it may be there by now
            found = self._log.get(self.at)
        if found is None:
            self._asked.clear()
        return found

    def refuse_a_hole(self) -> None:
        """Check, at the end of the log, that no object is gone.

        Raises:
            CorruptionError: One is: there are frames behind it, or the fence that followed it.
        """
        ahead: dict[int, NamedObject] = {}
        for named in self._log.names(self.at.key):
            if named.is_part or (named.is_fence and named.place.number <= self.at.number):
                continue  # a claim, or a fence of who died over deleted frames: numbers go on
            if not named.is_fence or self._is_behind(named.place):
                raise self._missing(named)
            if named.place.epoch > self.at.epoch:
                ahead.setdefault(named.place.epoch, named)
        if not ahead:
            return
        dead = self._dead_epochs()
        for epoch, named in ahead.items():
            if epoch not in dead:
                raise self._missing(named)

    def _is_behind(self, fence: LogPlace) -> bool:
        """Say whether a fence was put by who had seen what came before it, in this epoch."""
        if fence.epoch > self.at.epoch:
            return False
        found = self._log.get(fence)
        return found is not None and not _is_barrier(found)

    def _missing(self, behind: NamedObject) -> CorruptionError:
        reason = f"the object is missing; {behind.key} is there"
        return CorruptionError(self._log.url(self.at.key), None, reason)

    def _dead_epochs(self) -> set[int]:
        """Return the later epochs to which no way leads from here, whatever may be gone here.

        The log has one object of each number, and that of `at` is one of the epoch `at`. So an
        epoch that began at or below that number is off the log: who claimed it had read a floor of
        before, and died over deleted frames, or was refused by its second look. So is an epoch that
        a fence of such a one began. Fences are never deleted, and an epoch without a frame has its
        first one where it begins.
        """
        begin: dict[int, int] = {}
        fences: dict[int, list[LogPlace]] = {}
        for named in self._log.names(""):
            place = named.place
            if named.is_fence and place.number and place.epoch > self.at.epoch:
                begin.setdefault(place.epoch, place.number)
                fences.setdefault(place.number, []).append(place)
        dead: set[int] = set()
        for epoch, number in begin.items():
            before = (each for each in fences.get(number - 1, ()) if each.epoch in dead)
            if number <= self.at.number or any(self._begins(each, epoch) for each in before):
                dead.add(epoch)
        return dead

    def _begins(self, fence: LogPlace, epoch: int) -> bool:
        found = self._log.get(fence)
        return found is not None and found.next_epoch == epoch


def _is_barrier(found: LogObject) -> bool:
    """Say whether a fence may be one that was put ahead, by who did not know what came before."""
    return found.kind is Kind.FENCE and not found.previous


@contextmanager
def walking(log: ObjectLog, start: LogPlace) -> Generator[LogWalk]:
    """Return a walk that reads ahead."""
    walk = LogWalk(log, start)
    with walk.reading_ahead():
        yield walk
