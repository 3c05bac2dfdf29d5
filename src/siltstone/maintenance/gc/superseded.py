"""Superseded: how much of bases merges have replaced since the last vacuum began.

An hour between two vacuums is long where merges write as fast as the disk does. So a vacuum is due,
too, when it may free much: `BYTES_MIN`, or `SHARE` of all bases if that is more. It then rests
`REST` times as long as it took: it lists all files, and must not run all the time.

Lock: none. The scheduler's thread counts, the vacuum's sets when the next one may begin: one
assignment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import Pin, Record
from siltstone.storage.tables.tables import TableReader

BYTES_MIN = 64 << 20
SHARE = 0.25
REST = 9
T = TypeVar("T")


class Superseded:
    """See the module.

    Args:
        tables: Knows the files of pins.
        clock: Seconds.
    """

    def __init__(self, tables: TableReader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables, self._clock = tables, clock
        self._bases: dict[str, Mapping[str, int]] = {}
        self._number = -1
        self._not_before = clock()
        self.nbytes = 0

    def wants_vacuum(self, newest: Record) -> bool:
        """Return whether a vacuum is due, once; `newest` is the newest known record."""
        if newest.number != self._number:
            self._number = newest.number
            with suppress(SiltstoneError):  # a damaged pin is named by who reads it
                self._count(newest)
        held = sum(sum(files.values()) for files in self._bases.values())
        if self.nbytes <= max(BYTES_MIN, SHARE * held) or self._clock() < self._not_before:
            return False
        self.nbytes = 0
        return True

    def timed(self, vacuum: Callable[[], T]) -> T:
        """Run a vacuum, and let the next one be due a while after it."""
        begun = self._clock()
        try:
            return vacuum()
        finally:
            ended = self._clock()
            self._not_before = ended + REST * (ended - begun)

    def _count(self, record: Record) -> None:
        pins = [storage.base for storage in record.keyed if storage.base is not None]
        before = self._bases
        after = {pin.path: before.get(pin.path) or self._files_of(pin) for pin in pins}
        there = {path for files in after.values() for path in files}
        gone = {p: n for files in before.values() for p, n in files.items() if p not in there}
        self.nbytes += sum(gone.values())
        self._bases = after

    def _files_of(self, pin: Pin) -> Mapping[str, int]:
        files = self._tables.files(pin)
        return {file.path: file.size for file in files if file.path.startswith(pin.folder)}
