"""No log: what a follower reads of the log of a store in a bucket that has none."""

from __future__ import annotations

from siltstone.formats.log.frame import Frame, Mark
from siltstone.storage.wal.chain import Confirmed
from siltstone.units import SegmentNumber


class NoLog:
    """A `LogFollower` that finds nothing: a record has all commits that its bucket has."""

    trusts_mark = False
    confirmed: Confirmed | None = None

    def poll(self, floor: SegmentNumber) -> list[Frame]:
        del floor
        return []

    def forward(self, mark: Mark) -> list[Frame] | None:
        del mark
        return None

    def close(self) -> None:
        """Do nothing: nothing is open."""
