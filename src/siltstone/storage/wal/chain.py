"""Chain: the segments of the log, from the floor to its end, all verified.

    newest segment (highest epoch, then number) ── `previous` ─▶ the one before ─▶ … ─▶ floor

Every older segment must validate exactly up to where its successor says that it ends. Only the
newest may end in a torn tail: its first invalid frame ends the log. But if the segment's header, a
later valid frame, or MARK says that the place was once durable, it is damage.

Everything here only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import (
    HEADER_BYTES,
    Frame,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
    claimed_end,
    decode_frame,
    find_frames,
)
from siltstone.storage.files.files import Files
from siltstone.storage.wal.segments import (
    FoundSegment,
    find_segments,
    read_mark,
    read_part,
    segment_path,
    walk,
)
from siltstone.units import EMPTY_SEQ, Epoch, SegmentNumber, Seq

FIRST_SEGMENT = SegmentNumber(1)
_ZEROS = bytes(64 << 10)


class Stretch(msgspec.Struct, frozen=True):
    """The part of a segment that is in the log, up to `end`; what is below `start` was read before.

    Without such a part it starts at the end of the header.
    """

    path: Path
    header: SegmentHeader
    start: Position
    end: Position

    @property
    def source(self) -> SegmentSource:
        """The source of a buffer that begins at `start`."""
        return _source(self.path, self.header, self.start.offset)


class Confirmed(msgspec.Struct, frozen=True):
    """A place up to which a follower of this process has read the log: it is whole, and durable.

    `last` is the offset of the frame that ends there; 0: a segment begins there.
    """

    at: Position
    last: int


class Chain(msgspec.Struct, frozen=True):
    """The log on disk.

    `old` are the segments before the newest, oldest first. `frames` are the frames of the newest
    segment, in memory, `tail` the written bytes after them that are no frame. `others` are files
    with the name of a segment and no matching header. `superseded` are former segments of the log:
    below the floor, replaced by one of a later epoch, or (`newest`) about to be replaced.
    `known`: all before it was left out; None: nothing was.
    """

    old: tuple[Stretch, ...]
    newest: Stretch
    frames: tuple[Frame, ...]
    tail: bytes
    others: tuple[FoundSegment, ...]
    superseded: tuple[FoundSegment, ...] = ()
    known: Position | None = None


def read_chain(
    files: Files,
    directory: Path,
    *,
    store_id: bytes,
    floor: SegmentNumber,
    last_seq: Seq = EMPTY_SEQ,
    known: Confirmed | None = None,
) -> Chain:
    """Return the log in `directory` from segment `floor` on, all of it verified.

    The log of a new store is one empty segment of epoch 0 without a file; it begins after
    `last_seq`. What is before `known` is left out, if the log still has that place.

    Raises:
        CorruptionError: An acknowledged part is damaged or missing, or the log ends before
            `last_seq`.
        UnsupportedFormatError: A siltstone of another format wrote it.
        OSError: The file system refuses.
    """
    mark = read_mark(files, directory, store_id)  # first: an owner who goes on only adds to it
    found = find_segments(files, directory, store_id)
    active = {segment.age: header for segment in found if (header := segment.header)}
    others = tuple(segment for segment in found if segment.header is None)
    age = max(active, default=(0, 0))
    refuse_lost_segments(files, directory, others, age, mark, store_id)
    missing = f"segment {floor} and all later ones are missing"
    if not active:
        if others or floor != FIRST_SEGMENT:  # a new store makes no file before the first segment
            raise CorruptionError(directory, None, missing)
        return Chain((), _nothing(directory, store_id, last_seq), (), b"", others)
    header = active[age]
    old, start = _walk_back(directory, active, header, floor), header.start
    rest = None if known is None else _behind(files, directory, old, header, known)
    if rest is not None:
        old, start = rest
    for stretch in old:
        for _ in read_stretch(files, stretch):
            pass
    newest, frames, tail = _read_newest(files, directory, header, start, mark)
    if newest.end.seq < last_seq:
        reason = f"the log ends at seq {newest.end.seq}, but seq {last_seq} was durable"
        raise CorruptionError(newest.path, newest.end.offset, reason)
    on_chain = {stretch.path for stretch in old}
    superseded = tuple(s for s in found if s.header is not None and s.path not in on_chain)
    at = None if known is None or rest is None else known.at
    return Chain(old, newest, frames, tail, others, superseded, at)


def read_stretch(files: Files, stretch: Stretch) -> Iterator[Frame]:
    """Yield the frames of a stretch; reads its bytes in one piece.

    Raises:
        CorruptionError: The frames do not end exactly where the stretch does.
    """
    end = stretch.start
    data = read_part(files, stretch.path, end.offset, stretch.end.offset)
    for frame in walk(data, stretch.source, end):
        end = frame.behind
        yield frame
    if end != stretch.end:
        reason = f"the segment is damaged: it was durable up to byte {stretch.end.offset}"
        raise CorruptionError(stretch.path, end.offset, reason)


def refuse_lost_segments(
    files: Files,
    directory: Path,
    others: tuple[FoundSegment, ...],
    newest: tuple[int, int],
    mark: Mark | None,
    store_id: bytes,
) -> None:
    """Refuse a log that had a segment newer than its newest.

    A header is durable before its first frame is written, and before MARK names its segment.
    """
    if mark is not None and (mark.epoch, mark.segment) > newest:
        path = segment_path(directory, mark.epoch, mark.segment)
        raise CorruptionError(
            path, 0, "MARK says that the segment was durable, but its header is missing"
        )
    for segment in others:
        if segment.age > newest:
            source = SegmentSource(segment.path, store_id, segment.epoch, segment.number)
            try:
                data = files.read(segment.path)
            except FileNotFoundError:
                continue  # with an owner, it was ready for use: it has another name, or none
            if any(True for _ in find_frames(data, HEADER_BYTES, source)):
                raise CorruptionError(segment.path, 0, "a damaged header before intact frames")


def _nothing(directory: Path, store_id: bytes, last_seq: Seq) -> Stretch:
    header = SegmentHeader.beginning(store_id, Epoch(0), FIRST_SEGMENT, last_seq)
    path = segment_path(directory, Epoch(0), FIRST_SEGMENT)
    return Stretch(path, header, header.start, header.start)


def _walk_back(
    directory: Path,
    active: dict[tuple[int, int], SegmentHeader],
    newest: SegmentHeader,
    floor: SegmentNumber,
) -> tuple[Stretch, ...]:
    """Return the stretches from the floor up to the newest segment, oldest first."""
    if newest.segment < floor:
        path = segment_path(directory, newest.epoch, newest.segment)
        raise CorruptionError(path, None, f"segment {floor} and all later ones are missing")
    old: list[Stretch] = []
    header = newest
    while header.segment > floor:
        end = header.previous
        path = segment_path(directory, end.epoch, end.segment)
        before = active.get((end.epoch, end.segment))
        if end.segment != header.segment - 1 or before is None:
            raise CorruptionError(
                path, 0, f"segment {header.segment} follows it, but its header is missing"
            )
        header = before
        old.append(Stretch(path, header, header.start, end))
    return tuple(reversed(old))


def _behind(
    files: Files, directory: Path, old: tuple[Stretch, ...], newest: SegmentHeader, known: Confirmed
) -> tuple[tuple[Stretch, ...], Position] | None:
    """Return the older stretches, and where the newest segment starts, behind a place.

    None: the log has no such place any more, or another frame before it.
    """
    at = known.at
    headers = [*(stretch.header for stretch in old), newest]
    place = next((n for n, header in enumerate(headers) if header.age == at.place[:2]), None)
    if place is None:
        is_before = headers[0].previous == at  # all of the segment before was read, and recycled
        return (old, newest.start) if is_before else None
    if not _has(files, directory, headers[place], known):
        return None
    read = tuple(msgspec.structs.replace(each, start=each.end) for each in old[:place])
    if place == len(old):
        return read, at
    if at.offset > old[place].end.offset:  # it was never durable, and is not in the log
        return None
    rest = msgspec.structs.replace(old[place], start=at)
    return (*read, rest, *old[place + 1 :]), newest.start


def _has(files: Files, directory: Path, header: SegmentHeader, known: Confirmed) -> bool:
    """Say whether the frame that ended at a place is there; its checksum covers all before it."""
    if not known.last:
        return known.at == header.start
    path = segment_path(directory, header.epoch, header.segment)
    data = memoryview(read_part(files, path, known.last, known.at.offset))
    frame = decode_frame(data, known.last, _source(path, header, known.last))
    return frame is not None and frame.behind == known.at


def _source(path: Path, header: SegmentHeader, base: int = 0) -> SegmentSource:
    return SegmentSource(path, header.store_id, header.epoch, header.segment, base)


def _read_newest(
    files: Files, directory: Path, header: SegmentHeader, start: Position, mark: Mark | None
) -> tuple[Stretch, tuple[Frame, ...], bytes]:
    path, base = segment_path(directory, header.epoch, header.segment), start.offset
    data = read_part(files, path, base, files.size(path))
    source, end = _source(path, header, base), start
    frames: list[Frame] = []
    for frame in walk(data, source, end):
        frames.append(frame)
        end = frame.behind
    durable = once_durable(data, source, header, mark, end.offset)
    if end.offset < durable:
        reason = f"a damaged frame: the segment was durable up to byte {durable}"
        raise CorruptionError(path, end.offset, reason)
    # Behind the end of a recycled file lie stale bytes: only what names this place is a torn tail.
    written = claimed_end(data, end.offset, source) - base if header.is_recycled else len(data)
    tail = data[end.offset - base : _end_of_bytes(data, end.offset - base, written)]
    return Stretch(path, header, start, end), tuple(frames), tail


def _end_of_bytes(data: bytes, start: int, end: int) -> int:
    """Return where the zeros begin that end `data[start:end]`.

    By blocks: most of a segment is zeros, and `rstrip` looks at each byte by itself.
    """
    while end > start:
        block = data[max(start, end - len(_ZEROS)) : end]
        if block != _ZEROS[: len(block)]:
            return end - len(block) + len(block.rstrip(b"\0"))
        end -= len(block)
    return start


def once_durable(
    data: bytes, source: SegmentSource, header: SegmentHeader, mark: Mark | None, end: int
) -> int:
    """Return the highest offset that anything says was durable; the last frame ends at `end`.

    `data` may be a part of the segment, which `source` knows.
    """
    claims = [header.durable_offset]
    if mark is not None and (mark.epoch, mark.segment) == (header.epoch, header.segment):
        claims.append(mark.offset)
    claims.extend(frame.durable_offset for frame in find_frames(data, end, source))
    return max(claims)
