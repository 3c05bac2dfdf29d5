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
from siltstone.process.threads import submitted
from siltstone.storage.objects.objects import Objects, Taken

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
        if found.kind is Kind.CLAIM or (is_other and not self._came_another_way(found)):
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
            CorruptionError: One is: there are frames behind it, or a fence that followed it.
        """
        ahead: list[NamedObject] = []
        for named in self._log.names(self.at.key):
            if named.is_part:
                continue
            if not named.is_fence:
                raise self._missing(named)
            if named.place.number > self.at.number:
                ahead.append(named)
        off = self._off_the_log() if ahead else frozenset[LogPlace]()
        for named in ahead:
            if named.place not in off:
                raise self._missing(named)

    def _missing(self, behind: NamedObject) -> CorruptionError:
        reason = f"the object is missing; {behind.key} is there"
        return CorruptionError(self._log.url(self.at.key), None, reason)

    def _off_the_log(self) -> frozenset[LogPlace]:
        """Return the fences from the number of `at` on that say nothing of what may be gone here.

        The log has one object of each number, and that of `at` is one of its epoch. So a fence of
        this number in another epoch is off the log, and so is one that follows such a one, by its
        checksum: who put them had read a floor of before, and went over deleted frames. He may have
        died, or looked again and gone on in the log, so his epoch does not tell. A barrier follows
        nothing. Fences are never deleted, so each is there that another one followed.
        """
        off, barriers = set[LogPlace](), set[LogPlace]()
        checksums, entered = set[int](), set[LogPlace]()
        for each in self._fences(self.at.number):
            is_barrier = _is_barrier(each)
            if is_barrier:
                barriers.add(each.place)
            is_entered = is_barrier and each.place in entered
            if each.place.number == self.at.number or is_entered or each.previous in checksums:
                off.add(each.place)
                checksums.add(each.checksum)
                entered.add(LogPlace(each.next_epoch, each.place.number + 1))
        return frozenset(off | barriers)

    def _came_another_way(self, fence: LogObject) -> bool:
        """Say whether a fence was put by who came over one that is off the log; see there.

        He came into the epoch of a process which had come that way, too, but looked again.
        """
        number = fence.place.number - 1
        return fence.kind is Kind.FENCE and any(
            each.checksum == fence.previous for each in self._fences(number, number)
        )

    def _fences(self, first: int, last: int | None = None) -> Iterator[LogObject]:
        """Yield the fences of all epochs whose numbers are within these bounds, in their order."""
        found = [
            (named.place.number, named.place)
            for named in self._log.names("")
            if named.is_fence and first <= named.place.number <= (last or named.place.number)
        ]
        for _, place in sorted(found):
            fence = None if place == self.at else self._log.get(place)
            if fence is not None:
                yield fence


def _is_barrier(found: LogObject) -> bool:
    """Say whether a fence may be one that was put ahead, by who did not know what came before."""
    return found.kind is Kind.FENCE and not found.previous


@contextmanager
def walking(log: ObjectLog, start: LogPlace) -> Generator[LogWalk]:
    """Return a walk that reads ahead."""
    walk = LogWalk(log, start)
    with walk.reading_ahead():
        yield walk
