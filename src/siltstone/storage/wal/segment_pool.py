"""Segment pool: makes segments before they are needed, and again from those no longer needed.

    (nothing) ──prepare──▶ READY ──take──▶ ACTIVE ──take of the next──▶ OLD ──retire──▶ READY
                           zeros or        takes frames                 read only       or unlinked
                           stale bytes

A ready file is synced and has its final name, synced too, but no header that says so: it becomes
a part of the log when its header is written.

SIZE    An owner's log begins small and grows with use: the next segment is as large as the one
        before, or twice that when it was used, up to `segment_bytes`. What is ready and not taken
        goes when the log is closed, or rests; only files of the size that is wanted are recycled.

Locks: `_making` serializes those who make or recycle files and is held over I/O; `_lock` guards
what is ready and taken, for a few lines, never over I/O. The committer takes `_making` only when no
segment is ready. No ready number is missing below a taken one, so a number that is not ready
under `_making` stays so: who holds it may write a file of that name.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from siltstone.errors import ClosedError, InvariantError, UnavailableError
from siltstone.formats.frame import HEADER_BYTES
from siltstone.storage.files.files import File, Files
from siltstone.storage.wal.segments import parse_name, segment_path, unavailable
from siltstone.units import Epoch, SegmentNumber, require

SEGMENT_BYTES = 16 * 1024 * 1024
SMALLEST_BYTES = 64 * 1024
READY_MAX = 2


def first_bytes(end: int, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Return how large the first segment of an owner is, when its replayed frames end at `end`.

    At least as much again is free: else the next one would be wanted at once.
    """
    require(segment_bytes > HEADER_BYTES, f"a segment of {segment_bytes} bytes holds no frame")
    size = SMALLEST_BYTES
    while size < 2 * end:
        size *= 2
    return max(min(size, segment_bytes), end)


@dataclass(frozen=True, slots=True)
class ReadySegment:
    """A file that may become segment `number`."""

    number: SegmentNumber
    path: Path
    file: File
    size: int
    is_recycled: bool


class SegmentPool:
    """The files that the log will need next. Any thread may call `prepare` and `retire`."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        epoch: Epoch,
        taken: SegmentNumber,
        reserve: Callable[[int], None] = lambda _: None,
        require_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        """`reserve` hears how large a next segment is; it raises where a recovery had no space.

        `require_in_place` raises UnavailableError where the directory is not the owner's any more:
        another store there has files of the same names.
        """
        self._files, self._directory, self._epoch = files, directory, epoch
        self._reserve, self._require_in_place = reserve, require_in_place
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._taken = taken
        self._ready: dict[SegmentNumber, ReadySegment] = {}
        self._is_closed = False

    def prepare(self, nbytes: int) -> None:
        """Have the next segment ready, of `nbytes` if it must be made.

        Raises:
            UnavailableError: No space, or the file system refuses; nothing is lost, try again.
        """
        with self._making:
            number = SegmentNumber(self._taken + 1)
            if self._is_closed:
                return
            self._require_in_place()
            if number in self._vacant():
                self._make(number, nbytes)

    def take(self, least: int, nbytes: int) -> ReadySegment:
        """Hand out the next segment, at least `least` bytes long; it is the caller's from now on.

        `nbytes`: as for `prepare`. Only the committer calls it.

        Raises:
            UnavailableError: As `prepare`.
        """
        ready = self._pop(least)
        if ready is not None:
            return ready
        with self._making:
            ready = self._pop(least)  # somebody may have made it while we waited
            if ready is not None:
                return ready
            self._require_in_place()
            self._make(SegmentNumber(self._taken + 1), max(least, nbytes))
            ready = self._pop(least)
            if ready is None:
                raise InvariantError("a segment that was just made is not ready")
            return ready

    def retire(self, floor: SegmentNumber, nbytes: int) -> None:
        """Use the segments below `floor` of `nbytes` again, unlink the others; of every epoch.

        Nothing may need them: the record that has this floor is durable.

        Raises:
            UnavailableError: The file system refuses; call again later.
        """
        require(floor <= self._taken, f"segment {floor} is not yet a part of the log")
        with self._making, unavailable(self._directory):
            if self._is_closed:
                return
            self._require_in_place()
            recycled = self._clear(self._old_files(floor), nbytes)
            for number in recycled:
                self._add(number, nbytes, is_recycled=True)

    def give_back(self) -> None:
        """Unlink what is ready; a name that comes back has no header, so no harm is done.

        Raises:
            UnavailableError: The directory is not the owner's any more.
        """
        with self._making:
            self._require_in_place()
            self._give_back()

    def close(self, *, gives_back: bool = True) -> None:
        """Close the ready files, which go if `gives_back`. A second time does nothing."""
        with self._making:
            self._is_closed = True
            if gives_back:
                with contextlib.suppress(UnavailableError, ClosedError):
                    self._require_in_place()
                    self._give_back()
            for number in list(self._ready):
                self._drop(number)

    def _give_back(self) -> None:
        # From the last one on: of those that stay after a crash no lower number may be missing.
        for number in sorted(self._ready, reverse=True):
            path = self._drop(number)
            if path is not None:
                self._discard(path)

    def _make(self, number: SegmentNumber, size: int) -> None:
        """Make a file of written zeros under its final name, in place of one that was too small."""
        path = segment_path(self._directory, self._epoch, number)
        temporary = self._files.temporary(path)
        self._drop(number)
        with unavailable(self._directory):
            try:
                self._reserve(size)
                self._files.preallocate(temporary, size)
                self._files.rename(temporary, path)
                self._files.sync_dir(self._directory)
                self._add(number, size, is_recycled=False)
            except OSError:
                # A name whose sync failed is not used: it is made anew, and gives its space back.
                self._discard(temporary)
                self._discard(path)
                raise

    def _old_files(self, floor: SegmentNumber) -> list[Path]:
        named = ((name, parse_name(name)) for name in self._files.list(self._directory))
        return [self._directory / name for name, place in named if place and place[1] < floor]

    def _clear(self, old: list[Path], nbytes: int) -> list[SegmentNumber]:
        """Rename old files to vacant numbers, unlink the others, sync; return the numbers."""
        vacant = self._vacant()
        recycled: list[SegmentNumber] = []
        for path in old:
            if vacant and self._files.size(path) == nbytes:
                number = vacant.pop(0)
                self._files.rename(path, segment_path(self._directory, self._epoch, number))
                recycled.append(number)
            else:
                self._files.unlink(path)
        if old:
            self._files.sync_dir(self._directory)
        return recycled

    def _vacant(self) -> list[SegmentNumber]:
        """Return the next numbers that are not ready, lowest first."""
        with self._lock:
            following = range(self._taken + 1, self._taken + 1 + READY_MAX)
            return [SegmentNumber(n) for n in following if n not in self._ready]

    def _add(self, number: SegmentNumber, size: int, *, is_recycled: bool) -> None:
        path = segment_path(self._directory, self._epoch, number)
        ready = ReadySegment(number, path, self._files.open(path), size, is_recycled)
        with self._lock:
            self._ready[number] = ready

    def _pop(self, size: int) -> ReadySegment | None:
        with self._lock:
            number = SegmentNumber(self._taken + 1)
            ready = self._ready.get(number)
            if ready is None or ready.size < size:
                return None
            self._taken = number
            return self._ready.pop(number)

    def _drop(self, number: SegmentNumber) -> Path | None:
        """Close a ready file; return its path, None where the committer has taken it."""
        with self._lock:
            ready = self._ready.pop(number, None)
        if ready is None:
            return None
        ready.file.close()
        return ready.path

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._files.unlink(path)
