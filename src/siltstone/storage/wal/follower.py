"""Follower: reads the log of a store that this process does not own.

It makes no write call, never maps a file, and checks every frame in its own copy, because the owner
may recycle a segment meanwhile. It reads up to MARK, because later frames may not be durable.

If MARK is missing, or of an older epoch than the newest segment, no process has appended since the
last crash or recovery. Then the newest header counts: the segments before it are durable
completely. The newest segment itself is durable up to the offset that MARK has for it from the
older epoch (recovery keeps offsets), and at most up to the end that recovery found.

Lock: none; one thread at a time.
"""

from __future__ import annotations

from pathlib import Path

from siltstone.errors import CorruptionError
from siltstone.formats.frame import (
    HEADER_BYTES,
    Frame,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
)
from siltstone.storage.files.files import Files
from siltstone.storage.wal.segments import (
    find_segments,
    read_header,
    read_mark,
    read_part,
    segment_path,
    walk,
)
from siltstone.units import Epoch, SegmentNumber

_Place = tuple[Epoch, SegmentNumber, int]
ATTEMPTS_MAX = 64


class SegmentRecycled(Exception):
    """A segment below the mark lacks an expected frame: it was recycled, or is damaged.

    The caller reads the newest record again. If its floor is above `segment`, it polls from there;
    otherwise the segment is damaged: raise CorruptionError(path, offset, ...).
    """

    def __init__(self, path: Path, segment: SegmentNumber, offset: int) -> None:
        self.path, self.segment, self.offset = path, segment, offset
        super().__init__(f"{path} at byte {offset}: not the frame that the mark promises")


class WalFollower:
    """A position in the log, and the frames after it since the last poll."""

    def __init__(self, files: Files, directory: Path, *, store_id: bytes) -> None:
        self._files, self._directory, self._store_id = files, directory, store_id
        self.position: Position | None = None
        """The start of the next poll; None before the first poll that found a log."""

    def poll(self, floor: SegmentNumber) -> list[Frame]:
        """Return the durable frames from segment `floor` on that no poll returned, in order.

        `floor` is that of the newest record the caller knows. Frames that no poll returned and
        that lie below it are in that record.

        Raises:
            SegmentRecycled: See its docstring; the next poll begins at the same position.
            CorruptionError: The segments do not form a chain.
            UnsupportedFormatError: A newer siltstone owns the store.
        """
        target = self._target(floor)
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._poll(target, floor)
            except SegmentRecycled:
                before, target = target, self._target(floor)
                if target == before:
                    raise
                # A recovery wrote the newest segment again: MARK names that one now.
        return []  # the next poll begins at the same place

    def _poll(self, target: _Place | None, floor: SegmentNumber) -> list[Frame]:
        position = self.position
        if target is None or target[1] < floor:
            return []
        if position is not None and target <= position.place:
            return []
        frames: list[Frame] = []
        for header, end in self._stretches(target, floor):
            start = header.start
            if position is not None and position.place[:2] == start.place[:2]:
                start = position
            position = self._read(start, end, frames)
        self.position = position
        return frames

    def _target(self, floor: SegmentNumber) -> _Place | None:
        """Return the place up to which the log is durable, as far as one can tell."""
        mark = read_mark(self._files, self._directory, self._store_id)
        if mark is not None and self.position is not None and mark.segment >= floor:
            return mark.epoch, mark.segment, mark.offset
        return self._target_by_headers(mark)

    def _target_by_headers(self, mark: Mark | None) -> _Place | None:
        try:
            found = find_segments(self._files, self._directory, self._store_id)
        except FileNotFoundError:
            return None
        newest = max((s.header for s in found if s.header), key=lambda h: h.age, default=None)
        if mark is not None and (newest is None or (mark.epoch, mark.segment) >= newest.age):
            return mark.epoch, mark.segment, mark.offset  # also when its segment is damaged
        if newest is None:
            return None
        offset = HEADER_BYTES
        if mark is not None and mark.segment == newest.segment:
            offset = min(mark.offset, newest.durable_offset)
        return newest.epoch, newest.segment, offset

    def _stretches(
        self, target: _Place, floor: SegmentNumber
    ) -> list[tuple[SegmentHeader, Position | int]]:
        """Return the segments to read, oldest first, each with where to stop."""
        epoch, number, stop = target
        first = floor if self.position is None else max(floor, self.position.segment)
        end: Position | int = stop
        found: list[tuple[SegmentHeader, Position | int]] = []
        while True:
            path = segment_path(self._directory, epoch, number)
            header = read_header(self._files, self._directory, epoch, number, self._store_id)
            if header is None:
                raise SegmentRecycled(path, number, 0)
            found.append((header, end))
            if number <= first:
                return found[::-1]
            end = header.previous
            if end.segment != number - 1:
                raise CorruptionError(path, 0, f"segment {number} does not follow {number - 1}")
            epoch, number = end.epoch, end.segment

    def _read(self, start: Position, end: Position | int, frames: list[Frame]) -> Position:
        """Read one segment from `start` to `end` into `frames`; return the position behind."""
        path = segment_path(self._directory, start.epoch, start.segment)
        stop = end if isinstance(end, int) else end.offset
        try:
            data = read_part(self._files, path, start.offset, stop)
        except FileNotFoundError as error:
            raise SegmentRecycled(path, start.segment, start.offset) from error
        source = SegmentSource(path, self._store_id, start.epoch, start.segment, start.offset)
        at = start
        known = self.position.seq if self.position is not None else 0
        for frame in walk(data, source, start):
            at = frame.behind
            if frame.first_seq > known:  # a recovered segment holds again what we have
                frames.append(frame)
        if at.offset != stop or (isinstance(end, Position) and at != end):
            raise SegmentRecycled(path, start.segment, at.offset)
        return at
