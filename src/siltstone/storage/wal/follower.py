"""Follower: reads the log of a store that this process does not own.

    MARK is valid; an owner that has recovered the log holds it, or is known to ──▶ up to MARK
    else    walk the newest segment to its last whole frame ─▶ read it as it is on the disk
            ─▶ sync the file and the names in `wal/` ─▶ up to there

It makes no write call, never maps a file, and checks every frame in its own copy, because the owner
may recycle a segment meanwhile.

MARK is never synced. While the owner that writes it lives, it has every commit that was
acknowledged, and none that a power cut may take. Otherwise it may be old, torn or gone, and says
only what was durable at least. *Readable is not durable* (see `storage.wal.recovery`): a frame
above that may be in the page cache alone. A sync makes it durable, unless an earlier one failed for
it: then its pages count as clean, and only a read around the page cache shows that they are not on
the disk. A frame that is whole and durable there, in the newest segment, is in the log for good: an
owner of a later epoch reads this segment after its claim, and writes it again.

Lock: none; one thread at a time.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import (
    FRAME_HEADER_BYTES,
    Frame,
    Logged,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
    claimed_end,
)
from siltstone.storage.files.files import File, Files
from siltstone.storage.wal.chain import (
    FIRST_SEGMENT,
    Confirmed,
    once_durable,
    refuse_lost_segments,
)
from siltstone.storage.wal.segments import (
    find_segments,
    mark_is_held,
    read_header,
    read_mark,
    read_part,
    segment_path,
    walk,
)
from siltstone.units import Epoch, SegmentNumber

_Place = tuple[Epoch, SegmentNumber, int]
ATTEMPTS_MAX = 64
_NEVER_DIRTY = frozenset({errno.EINVAL, errno.EROFS})
"""What a sync says on a file system that can only be read, such as an image."""


class SegmentRecycled(Exception):
    """A segment that was durable lacks an expected frame: it was recycled, or is damaged.

    The caller reads the newest record again. If its floor is above `segment`, it polls from there;
    otherwise the segment is damaged: raise `damage`.
    """

    def __init__(
        self,
        path: Path,
        segment: SegmentNumber,
        offset: int | None,
        damage: CorruptionError | None = None,
    ) -> None:
        self.path, self.segment, self.offset = path, segment, offset
        reason = "a frame that was durable is damaged"
        self.damage = damage or CorruptionError(path, offset, reason)
        super().__init__(f"{path} at byte {offset}: not the frame that was durable there")


class LogTooLong(Exception):
    """A poll would read more than its caller wants to hold; nothing was read."""


class LogFollower(Protocol):
    """What a follower of a store asks of its log; see `WalFollower`."""

    trusts_mark: bool
    confirmed: Confirmed | None

    def poll(self, floor: SegmentNumber) -> Sequence[Logged]: ...

    def forward(self, mark: Mark) -> Sequence[Logged] | None: ...

    def close(self) -> None: ...


class WalFollower:
    """A position in the log, and the frames after it since the last poll."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        store_id: bytes,
        trusts_mark: bool = False,
        bytes_max: int | None = None,
        pause_bytes: int | None = None,
    ) -> None:
        """Begin at the start of the log.

        `trusts_mark`: since this machine started, an owner wrote MARK, which the caller knows from
        that owner: then it has all that was acknowledged, whether the owner lives or not.
        `bytes_max`: a poll that would read more of the log raises LogTooLong.
        `pause_bytes`: a poll ends with the segment in which it has read so many.
        """
        self._files, self._directory, self._store_id = files, directory, store_id
        self.trusts_mark, self._bytes_max, self._pause_bytes = trusts_mark, bytes_max, pause_bytes
        self._open: tuple[Path, File] | None = None
        self._opened = 0, 0
        self.confirmed: Confirmed | None = None
        """The start of the next poll; None before the first poll that found a log."""

    @property
    def position(self) -> Position | None:
        """The place of `confirmed`."""
        return None if self.confirmed is None else self.confirmed.at

    def forward(self, mark: Mark) -> list[Frame] | None:
        """Return the frames up to a MARK in the segment that was read last; None: `poll` instead.

        It keeps that segment open, so it costs one read.
        """
        at = self.position
        if at is None or mark.segment != at.segment or mark.epoch != at.epoch:
            return None
        if mark.offset <= at.offset:
            return []
        try:
            path, file = self._segment(at)
            data = file.pread(mark.offset - at.offset, at.offset)
            source = SegmentSource(path, self._store_id, at.epoch, at.segment, at.offset)
            frames = list(walk(data, source, at))
        except (CorruptionError, OSError):  # recycled, or damaged: a poll finds out
            return None
        if not frames or frames[-1].end != mark.offset:
            return None
        self.confirmed = _behind(frames[-1])
        return frames

    def _segment(self, at: Position) -> tuple[Path, File]:
        if self._open is None or self._opened != (at.epoch, at.segment):
            self.close()
            path = segment_path(self._directory, at.epoch, at.segment)
            self._open = path, self._files.open(path, write=False)
            self._opened = at.epoch, at.segment
        return self._open

    def close(self) -> None:
        """Close the segment that `forward` keeps open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def poll(self, floor: SegmentNumber) -> list[Frame]:
        """Return the durable frames from segment `floor` on that no poll returned, in order.

        `floor` is that of the newest record the caller knows. Frames that no poll returned and
        that lie below it are in that record.

        Raises:
            SegmentRecycled: See its docstring; the next poll begins at the same position.
            CorruptionError: The segments do not form a chain, or are missing.
            UnsupportedFormatError: A siltstone of another format owns the store.
            OSError: The file system refuses, or cannot make durable what it shows.
        """
        before: tuple[Path, int | None] | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._poll(self._end(floor, is_first=before is None), floor)
            except (SegmentRecycled, CorruptionError) as error:
                # The owner goes on: it wrote while we read, or recycled, or a recovery wrote the
                # newest segment again. What is missing twice at one place is no such moment.
                place = error.path, error.offset
                if place == before:
                    raise
                before = place
        return []  # the next poll begins at the same place

    def _poll(self, target: _Place | None, floor: SegmentNumber) -> list[Frame]:
        position = self.position
        if target is None or target[1] < floor:
            return []
        if position is not None and target <= position.place:
            return []
        frames: list[Frame] = []
        stretches = self._stretches(target, floor)
        self._refuse_too_long(stretches)
        found = self.confirmed
        for header, end in stretches:
            if found is None or found.at.place[:2] != header.age:
                found = Confirmed(header.start, 0)
            found = self._read(found, end, frames)
            if self._pause_bytes is not None and _bytes(frames) >= self._pause_bytes:
                break
        self.confirmed = found
        return frames

    def _refuse_too_long(self, stretches: list[tuple[SegmentHeader, Position | int]]) -> None:
        ends = [end if isinstance(end, int) else end.offset for _, end in stretches]
        known = 0 if self.position is None else self.position.offset
        if self._bytes_max is not None and sum(ends) - known > self._bytes_max:
            raise LogTooLong(sum(ends) - known)

    def _end(self, floor: SegmentNumber, *, is_first: bool) -> _Place | None:
        """Return the place up to which the log is durable; see the module."""
        # The lock first: its holder has written MARK. Then MARK, then the segments: an owner
        # that goes on only adds to the log. Where MARK is trusted, and leads to nothing, a
        # recovery may be under way, which has not written it yet.
        trusts_mark = self.trusts_mark and is_first
        is_held = trusts_mark or mark_is_held(self._files, self._directory)
        mark = read_mark(self._files, self._directory, self._store_id)
        if mark is not None and is_held:
            return mark.place
        newest = self._newest(floor, mark)
        if newest is None:
            return None if mark is None else mark.place  # also when its segment is damaged
        return newest.epoch, newest.segment, self._walked(newest, mark)

    def _newest(self, floor: SegmentNumber, mark: Mark | None) -> SegmentHeader | None:
        """Return the newest segment, None if there is none or MARK names a newer one."""
        position = self.position
        since = (0, 0) if position is None else position.place[:2]
        try:
            found = find_segments(self._files, self._directory, self._store_id, since)
        except FileNotFoundError:
            found = []  # a store that was just made
        newest = max((s.header for s in found if s.header), key=lambda h: h.age, default=None)
        age = _age(newest)
        if mark is not None and (mark.epoch, mark.segment) > age:
            return None
        if position is None:
            others = tuple(segment for segment in found if segment.header is None)
            refuse_lost_segments(self._files, self._directory, others, age, mark, self._store_id)
        if floor > (FIRST_SEGMENT if newest is None else newest.segment):
            reason = f"segment {floor} and all later ones are missing"
            raise CorruptionError(self._directory, None, reason)
        return newest

    def _walked(self, header: SegmentHeader, mark: Mark | None) -> int:
        """Return where the last whole frame of the newest segment ends; it is durable then."""
        path = segment_path(self._directory, header.epoch, header.segment)
        source = SegmentSource(path, self._store_id, header.epoch, header.segment)
        known = self.position
        if known is not None and (known.epoch, known.segment) != header.age:
            known = None
        if mark is None or (mark.epoch, mark.segment) != header.age:
            mark = None
        try:
            with closing(self._files.open(path, write=False)) as file:
                if known is not None and not self._goes_on(file, known, mark, source):
                    return known.offset
                return self._walk(file, known or header.start, header, mark, source)
        except FileNotFoundError as error:
            raise SegmentRecycled(path, header.segment, 0) from error

    def _goes_on(
        self, file: File, known: Position, mark: Mark | None, source: SegmentSource
    ) -> bool:
        """Say whether anything lies behind what we know; cheap, as each read asks."""
        if mark is not None and mark.offset > known.offset:
            return True
        head = file.pread(FRAME_HEADER_BYTES, known.offset)
        return claimed_end(head, known.offset, _from(source, known.offset)) > known.offset

    def _walk(
        self,
        file: File,
        start: Position,
        header: SegmentHeader,
        mark: Mark | None,
        source: SegmentSource,
    ) -> int:
        source = _from(source, start.offset)
        data = file.pread(max(0, file.size() - start.offset), start.offset)
        ends = [start.offset, *(frame.end for frame in walk(data, source, start))]
        durable = once_durable(data, source, header, mark, ends[-1])
        if ends[-1] < durable:
            raise SegmentRecycled(source.path, source.segment, ends[-1])
        if mark is not None and mark.offset == ends[-1]:
            return ends[-1]
        first = max(durable, start.offset)
        stored = file.pread_stored(ends[-1] - first, first)
        while not stored.startswith(data[first - start.offset : ends[-1] - start.offset]):
            ends.pop()
        self._sync(file)
        return ends[-1]

    def _sync(self, file: File) -> None:
        """Sync the newest segment, and its name, which recovery may not have synced yet."""
        try:
            file.sync()
            self._files.sync_dir(self._directory)
        except OSError as error:
            if error.errno not in _NEVER_DIRTY:
                raise

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

    def _read(self, found: Confirmed, end: Position | int, frames: list[Frame]) -> Confirmed:
        """Read one segment on to `end` into `frames`; return the place behind."""
        start = found.at
        path = segment_path(self._directory, start.epoch, start.segment)
        stop = end if isinstance(end, int) else end.offset
        try:
            data = read_part(self._files, path, start.offset, stop)
        except FileNotFoundError as error:
            raise SegmentRecycled(path, start.segment, start.offset) from error
        source = SegmentSource(path, self._store_id, start.epoch, start.segment, start.offset)
        known = self.position.seq if self.position is not None else 0
        for frame in walk(data, source, start):
            found = _behind(frame)
            if frame.first_seq > known:  # a recovered segment holds again what we have
                frames.append(frame)
        at = found.at
        if at.offset != stop or (isinstance(end, Position) and at != end):
            raise SegmentRecycled(path, start.segment, at.offset)
        return found


def _bytes(frames: list[Frame]) -> int:
    return sum(len(frame.payload) for frame in frames)


def _behind(frame: Frame) -> Confirmed:
    return Confirmed(frame.behind, frame.offset)


def _age(header: SegmentHeader | None) -> tuple[int, int]:
    return (0, 0) if header is None else header.age


def _from(source: SegmentSource, offset: int) -> SegmentSource:
    return SegmentSource(source.path, source.store_id, source.epoch, source.segment, offset)
