"""Line above: which commits of a log in a bucket follow a record.

A restore and a reader at a URL take the same. The log may have commits that the record has, too,
and it may be of another line: another copy of the store was shipped, or this one was rolled back,
and then one of the two was mirrored. Then its commit at the record's seq has another time, and
nothing of it counts.

Lock: none; one thread.
"""

from __future__ import annotations

from siltstone.errors import CorruptionError
from siltstone.formats.log import group
from siltstone.formats.log.log_object import LoggedGroup


class LineAbove:
    """See the module. `end` is the last seq that is known: of the record, or of what was taken."""

    def __init__(self, seq: int, time_us: int, url: str) -> None:
        """Begin at a record with commits up to `seq`, the last of them at `time_us`."""
        self._seq, self._time_us, self._url = seq, time_us, url
        self.end, self.is_other = seq, False

    def takes(self, found: LoggedGroup) -> bool:
        """Say whether the next commits of the log are above all that is known, and know them.

        Raises:
            CorruptionError: They are not the next ones: what has those between is gone.
        """
        if found.first_seq <= self._seq <= found.last_seq:
            head, _ = group.decode(found.payload)
            self.is_other |= head.time_us + self._seq - found.first_seq != self._time_us
        if self.is_other or found.last_seq <= self.end:
            return False
        if found.first_seq != self.end + 1:
            reason = f"the log goes on at seq {found.first_seq}, and nothing has those behind"
            raise CorruptionError(self._url, None, f"{reason} {self.end}")
        self.end = found.last_seq
        return True
