"""Bucket log: a `LogFollower` of the log in a bucket, for those who read a store at its URL.

    a look  the objects behind the last one, in order, up to the first number that has none; once a
            second at most. It ends early while more of the log is held in memory than `bytes_max`:
            the next record of the bucket makes room
    first   also: no record came meanwhile, which would hold frames that were deleted before they
            were read; and, as once a minute from then on, no object is gone (a list)

What a look returns is what a restore would take: a prefix, along the fences (`LogWalk`), of the
record's line (`LineAbove`). An object that is absent, damaged, or not the next one may be one that
a newer record holds, so the follower reads the newest record; if that is the one it began with, it
is damage. Where no log was ever begun, a first look is one request.

Lock: none; one thread at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import Logged, Mark
from siltstone.formats.log.log_object import BEGINNING, LoggedGroup, LogObject
from siltstone.formats.manifest import Record
from siltstone.storage.bucket import bucket_chain
from siltstone.storage.bucket.bucket_chain import BucketChain
from siltstone.storage.bucket.line_above import LineAbove
from siltstone.storage.objects.log.log import LogWalk, ObjectLog
from siltstone.storage.wal.chain import Confirmed
from siltstone.storage.wal.follower import SegmentRecycled
from siltstone.units import SegmentNumber

HOLE_S = 60.0
"""How often a log without news is looked at for an object that is gone."""
_GROUP_BYTES = 256
"""What a group of commits takes in memory besides its bytes, about."""
_logger = logging.getLogger(__name__)


class BucketLog:
    """See the module.

    Args:
        chain: The records of the bucket.
        record: That above which the log is read; the chain has leased it.
        bytes_max: So much of the log above the newest record is read, and one frame more.
    """

    trusts_mark = False
    confirmed: Confirmed | None = None

    def __init__(self, chain: BucketChain, record: Record, *, bytes_max: int) -> None:
        self._chain, self._record = chain, record
        self._log, self._bytes_max = ObjectLog(chain.objects.of("log")), bytes_max
        self._walk = LogWalk(self._log, chain.log_begin(record), is_prompt=True)
        self._line = LineAbove(record.flushed_seq, record.last_time_us, self._log.url("wal"))
        self._held: deque[tuple[int, int]] = deque()
        """The last seq and the bytes of groups above the newest record."""
        self._nbytes, self._had_room = 0, True
        self._looked: float | None = None
        self._looks_now = chain.looks_now
        self._checked: float | None = None

    def poll(self, floor: SegmentNumber) -> list[Logged]:
        """Return the commits that no poll returned; `floor` says nothing of this log.

        Raises:
            SegmentRecycled: They are in a newer record, or the log is damaged.
            UnsupportedFormatError: A siltstone of another format wrote an object.
            UnavailableError: The server does not answer, or refuses.
        """
        del floor
        now, is_first = self._chain.clock(), self._looked is None
        looks_now, self._looks_now = self._looks_now, self._chain.looks_now
        is_wanted = is_first or looks_now != self._looks_now
        if not is_wanted and now - (self._looked or 0.0) < bucket_chain.LOOK_S:
            return []
        self._looked = now
        self._forget_held()
        try:
            found = self._read(now)
            if is_first:
                self._require_newest()
        except CorruptionError as error:
            number = SegmentNumber(self._walk.at.number)
            raise SegmentRecycled(error.path, number, error.offset, error) from None
        return found

    def forward(self, mark: Mark) -> list[Logged] | None:
        del mark
        return None

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _read(self, now: float) -> list[Logged]:
        is_first = self._checked is None
        is_checked = self._checked is None or now - self._checked >= HOLE_S
        if is_checked:
            self._checked = now
        found: list[Logged] = []
        with self._walk.reading_ahead():
            for each in self._objects_behind(is_checked=is_checked, is_first=is_first):
                if each.is_frame:
                    found += (group for group in self._log.groups(each) if self._takes(group))
        return found

    def _objects_behind(self, *, is_checked: bool, is_first: bool) -> Generator[LogObject]:
        """Yield what follows, as long as there is room for it."""
        while self._has_room():
            to_the_end = is_checked and (self._is_begun or not is_first)
            found = self._walk.step_to_the_end() if to_the_end else self._walk.step()
            if found is None:
                return
            yield found

    @property
    def _is_begun(self) -> bool:
        """Whether there is a log: it begins with a fence, which stays."""
        return self._walk.at != BEGINNING

    def _has_room(self) -> bool:
        has_room = self._nbytes < self._bytes_max
        if not has_room and self._had_room:
            _logger.warning(
                "%s: more than %d bytes of its log are above the newest record; this reader stays"
                " at seq %d until the next record is mirrored", self._log.objects.url,
                self._bytes_max, self._line.end,
            )  # fmt: skip
        self._had_room = has_room
        return has_room

    def _takes(self, found: LoggedGroup) -> bool:
        if not self._line.takes(found):
            return False
        nbytes = found.payload.nbytes + _GROUP_BYTES
        self._held.append((found.last_seq, nbytes))
        self._nbytes += nbytes
        return True

    def _forget_held(self) -> None:
        """Forget what the newest record that was seen has flushed."""
        seq = self._chain.seen_seq
        while self._held and self._held[0][0] <= seq:
            self._nbytes -= self._held.popleft()[1]

    def _require_newest(self) -> None:
        """Refuse to have read the log above a record that is the newest no more.

        Raises:
            CorruptionError: It is not: what it seems to end with may have been deleted.
        """
        if self._is_begun and not self._chain.is_newest(self._record.number):
            url = self._log.url(self._walk.at.key)
            raise CorruptionError(url, None, "it is below the floor of a newer record")
