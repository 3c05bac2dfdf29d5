"""Bucket leases: which records of a bucket this process reads, and whether these are still kept.

A file that a kept record names is there. One that is absent is lost, if FLOOR keeps every record
that is read here; else the bucket's vacuum took it, and who reads hears that its seq expired.

Lock: `_lock` guards the numbers; it is never held over a request.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from siltstone.errors import SnapshotExpiredError
from siltstone.storage.files.locks import IsThere, LinkCount, Look
from siltstone.storage.manifest.floor import Floor


class BucketLeases:
    """See the module. `floor` asks the server which records are kept."""

    def __init__(self, floor: Callable[[], Floor]) -> None:
        self._floor = floor
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()

    def hold(self, number: int) -> BucketLock:
        """Read a record from now on, until the lock is released."""
        with self._lock:
            self._held[number] += 1
        return BucketLock(self, number)

    def let_go(self, number: int) -> None:
        with self._lock:
            self._held[number] -= 1
            if not self._held[number]:
                del self._held[number]

    def end(self) -> None:
        """Read none any more."""
        with self._lock:
            self._held.clear()

    def refuse_if_expired(self) -> None:
        """Look whether a record that is read here was given up.

        Raises:
            SnapshotExpiredError: One was.
            UnavailableError, CorruptionError: FLOOR cannot be read.
        """
        with self._lock:
            held = sorted(number for number in self._held if number > 0)
        if not held:
            return
        floor = self._floor()
        lost = [number for number in held if not floor.keeps(number)]
        if lost:
            raise SnapshotExpiredError(f"record {lost[0]} of the bucket", floor.number, held[-1])


class BucketLock:
    """What a `Lease` holds of a record of a bucket."""

    def __init__(self, leases: BucketLeases, number: int) -> None:
        self._leases, self._number = leases, number
        self._is_held = True

    @property
    def fd(self) -> int:
        return 0 if self._is_held else -1

    def names(self, path: Path) -> bool:
        del path  # no object is ever replaced
        return self._is_held

    @property
    def look(self) -> Look:
        return lambda: LinkCount(1)

    def at(self, path: Path) -> IsThere:
        return lambda: self.names(path)

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._leases.let_go(self._number)
