"""Segment pool: creates segments before they are needed, and recycles old ones.

    (nothing) ──prepare──▶ READY ──take──▶ ACTIVE ──take of the next──▶ OLD ──retire──▶ READY
                           zeros or        takes frames                 read only       or unlinked
                           stale bytes

A ready file is synced and has its final name, synced too, but no matching header: it becomes a part
of the log when its header is written.

SIZE    An owner's log begins small and grows with use: the next segment is as large as the one
        before, or twice that if it was used, up to `segment_bytes`. Ready files are deleted when
        the log is closed or idle; only files of the right size are recycled.

Locks: `_making` serializes threads that create or recycle files, and is held over I/O; `_lock`
guards the ready and taken segments, for a few lines, never over I/O. The committer takes `_making`
only if no segment is ready. No ready number is missing below a taken one, so a number that is not
ready under `_making` stays so: the holder of the lock may write a file with that name.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from siltstone.errors import ClosedError, InvariantError, UnavailableError
from siltstone.formats.log.frame import HEADER_BYTES
from siltstone.storage.files.files import File, Files, discard
from siltstone.storage.wal.segments import parse_name, segment_path, unavailable
from siltstone.units import Epoch, SegmentNumber, require

SEGMENT_BYTES = 16 * 1024 * 1024
SMALLEST_BYTES = 64 * 1024
READY_MAX = 2
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def first_bytes(end: int, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Return the size of an owner's first segment, whose replayed frames end at `end`.

    It has at least as much free space again; otherwise the next segment would be due immediately.
    """
    require(segment_bytes > HEADER_BYTES, f"a segment of {segment_bytes} bytes holds no frame")
    size = SMALLEST_BYTES
    while size < 2 * end:
        size *= 2
    return max(min(size, segment_bytes), end)


class ReadySegment(msgspec.Struct, frozen=True):
    """A file that may become segment `number`."""

    number: SegmentNumber
    path: Path
    file: File
    size: int
    is_recycled: bool


class SegmentPool:
    """The next files of the log. Any thread may call `prepare` and `retire`."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        epoch: Epoch,
        taken: SegmentNumber,
        reserve: Callable[[int], None] = lambda _: None,
        require_in_place: Callable[[], None] = lambda: None,
        give_way: Callable[[], bool] = lambda: False,
    ) -> None:
        """`reserve` hears how large a next segment is; it raises where a recovery had no space.

        `give_way` deletes what can be had again, on a full disk; False: there was nothing.

        `require_in_place` raises UnavailableError where the directory is not the owner's any more:
        another store there has files of the same names.
        """
        self._files, self._directory, self._epoch = files, directory, epoch
        self._reserve, self._require_in_place = reserve, require_in_place
        self._give_way = give_way
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._taken = taken
        self._ready: dict[SegmentNumber, ReadySegment] = {}
        self._is_closed = False

    def prepare(self, nbytes: int) -> None:
        """Make the next segment ready; a new file has `nbytes`.

        Raises:
            UnavailableError: There is no space, or the file system refuses; try again.
        """
        with self._making:
            number = SegmentNumber(self._taken + 1)
            if self._is_closed:
                return
            self._require_in_place()
            if number in self._vacant():
                self._make(number, nbytes)

    def take(self, least: int, nbytes: int) -> ReadySegment:
        """Return the next segment, at least `least` bytes long; the caller owns it.

        `nbytes`: as for `prepare`. Only the committer calls it.

        Raises:
            UnavailableError: As `prepare`.
        """
        ready = self._pop(least)
        if ready is not None:
            return ready
        with self._making:
            ready = self._pop(least)  # another thread may have made it while we waited
            if ready is not None:
                return ready
            self._require_in_place()
            self._make(SegmentNumber(self._taken + 1), max(least, nbytes))
            ready = self._pop(least)
            if ready is None:
                raise InvariantError("a segment that was just made is not ready")
            return ready

    def retire(self, floor: SegmentNumber, nbytes: int) -> None:
        """Recycle the segments below `floor` with `nbytes`, unlink the others, of every epoch.

        The caller must not need them: the record with this floor is durable.

        Raises:
            UnavailableError: The file system refuses; call again later.
        """
        require(floor <= self._taken, f"segment {floor} is not yet a part of the log")
        with self._making, unavailable(self._directory):
            if self._is_closed:
                return
            self._require_in_place()
            for number in self._clear(floor, nbytes):
                self._add(number, nbytes, is_recycled=True)

    def give_back(self) -> None:
        """Unlink the ready files. A name that reappears after a crash has no header: harmless.

        Raises:
            UnavailableError: The owner no longer owns the directory.
        """
        with self._making:
            self._require_in_place()
            self._give_back()

    def close(self, *, gives_back: bool = True) -> None:
        """Close the ready files; unlink them if `gives_back`. Further calls do nothing."""
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
                discard(self._files, path)

    def _make(self, number: SegmentNumber, size: int) -> None:
        """Make a file of written zeros under its final name, in place of one that was too small."""
        path = segment_path(self._directory, self._epoch, number)
        self._drop(number)
        with unavailable(self._directory):
            try:
                self._write(path, number, size)
            except OSError as error:
                if error.errno not in NO_SPACE or not self._give_way():
                    raise
                self._write(path, number, size)

    def _write(self, path: Path, number: SegmentNumber, size: int) -> None:
        temporary = self._files.temporary(path)
        try:
            self._reserve(size)
            self._files.preallocate(temporary, size)
            self._files.rename(temporary, path)
            self._files.sync_dir(self._directory)
            self._add(number, size, is_recycled=False)
        except OSError:
            # A name whose sync failed is not used: it is made anew, and gives its space back.
            discard(self._files, temporary)
            discard(self._files, path)
            raise

    def _clear(self, floor: SegmentNumber, nbytes: int) -> list[SegmentNumber]:
        """Rename old files to vacant numbers, unlink the others, sync; return the numbers."""
        named = ((name, parse_name(name)) for name in self._files.list(self._directory))
        old = [self._directory / name for name, place in named if place and place[1] < floor]
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
