"""Local tail: the durable commits of a store's own log, behind what was shipped.

It reads segments up to MARK, as another process would, and holds none of them: the log is its
backlog, and goes on as without it. A segment that was recycled before it was read is gone. In
memory are the frames of one segment, about, or one frame that is larger.

Lock: none; one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from siltstone.formats.log.frame import Frame
from siltstone.formats.log.log_object import LoggedGroup
from siltstone.formats.manifest import Record
from siltstone.storage.site import Site
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.storage.wal.segments import read_mark
from siltstone.units import SegmentNumber

BATCH_BYTES = 8 << 20
"""So many bytes of commits go into one frame of a bucket, and more only if one group has more."""
_AHEAD_BYTES = 8 << 20


class Line(Enum):
    """Whether a log in a bucket has the same commits as this store."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    """The log of the store has them no more."""


class LocalTail:
    """See the module. `record` returns the newest record that the owner knows."""

    def __init__(self, site: Site, record: Callable[[], Record]) -> None:
        self._files, self._folder, self._record = site.files, site.root / "wal", record
        self._store_id = bytes.fromhex(record().store_id)
        self._follower = WalFollower(
            site.files,
            self._folder,
            store_id=self._store_id,
            trusts_mark=True,
            pause_bytes=_AHEAD_BYTES,
        )
        self._read: deque[Frame] = deque()

    def close(self) -> None:
        self._follower.close()

    def behind(self, seq: int) -> list[LoggedGroup] | None:
        """Return the durable commits that follow `seq`, at most one frame of a bucket.

        None: the log has no longer what follows; a record has it.

        Raises:
            CorruptionError: The log is damaged.
        """
        flushed = self._record().flushed_seq  # before the log is read, which then has all above
        self._drop(seq)
        if not self._read:
            return None if flushed > seq else []
        if self._read[0].first_seq != seq + 1:
            return None
        return self._batch()

    def line_of(self, last: LoggedGroup) -> Line:
        """Say whether this store has the commits that a log in a bucket ends with."""
        flushed = self._record().flushed_seq
        self._drop(last.last_seq - 1)
        if not self._read:
            return Line.UNKNOWN if flushed >= last.last_seq else Line.OTHER
        own = self._read[0]
        if own.first_seq > last.last_seq:
            return Line.UNKNOWN
        seqs = own.first_seq, own.last_seq
        is_same = seqs == (last.first_seq, last.last_seq) and own.payload == last.payload
        return Line.SAME if is_same else Line.OTHER

    def _drop(self, seq: int) -> None:
        """Read on, and forget what ends at or below `seq`, until something is above, or nothing."""
        while True:
            while self._read and self._read[0].last_seq <= seq:
                self._read.popleft()
            if self._read:
                return
            self._read.extend(self._more())
            if not self._read:
                return

    def _more(self) -> list[Frame]:
        mark = read_mark(self._files, self._folder, self._store_id)
        found = None if mark is None else self._follower.forward(mark)
        if found is not None:
            return found
        floor = SegmentNumber(self._record().wal_floor)
        try:
            return self._follower.poll(floor)
        except SegmentRecycled as signal:
            if self._record().wal_floor <= signal.segment:
                raise signal.damage from signal
            return self._follower.poll(SegmentNumber(self._record().wal_floor))

    def _batch(self) -> list[LoggedGroup]:
        found: list[LoggedGroup] = []
        size = 0
        for frame in self._read:
            size += len(frame.payload)
            if found and (size > BATCH_BYTES or frame.first_seq != found[-1].last_seq + 1):
                break
            found.append(LoggedGroup(frame.first_seq, frame.last_seq, frame.payload))
        return found
