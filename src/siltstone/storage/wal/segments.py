"""Segments: the names of the log's files, and functions to read a log.

    NAME    `<epoch>-<segment>.wal`     the name alone does not decide: a file is a part of the log
            if its header names the same store, epoch and number. Otherwise it is ready for use
            (zeros, or old bytes of a recycled file), or damaged.
    ORDER   by epoch, then number: a segment of a later epoch replaces the one with the same number
            of an earlier epoch, see `storage.wal.recovery`.

Everything here only reads, with copies: the owner may write the same file at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import (
    HEADER_BYTES,
    Buffer,
    Frame,
    Logged,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
    decode_frame,
    decode_header,
    decode_mark,
    encode_frame,
)
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.files.locks import is_taken
from siltstone.units import Epoch, SegmentNumber

MARK_NAME = "MARK"
_MARK_READS = 3

_NAME = re.compile(r"([0-9]{8,})-([0-9]{12,})\.wal")


class FoundSegment(msgspec.Struct, frozen=True):
    """A file with a segment's name; `header` is None if it is not (yet) part of the log."""

    epoch: Epoch
    number: SegmentNumber
    path: Path
    header: SegmentHeader | None

    @property
    def age(self) -> tuple[int, int]:
        return self.epoch, self.number


def segment_path(directory: Path, epoch: Epoch, number: SegmentNumber) -> Path:
    return directory / f"{epoch:08d}-{number:012d}.wal"


def parse_name(name: str) -> tuple[Epoch, SegmentNumber] | None:
    """Return epoch and number from a file name, or None if it is not a segment's name."""
    found = _NAME.fullmatch(name)
    return (Epoch(int(found[1])), SegmentNumber(int(found[2]))) if found else None


def read_header(
    files: Files, directory: Path, epoch: Epoch, number: SegmentNumber, store_id: bytes
) -> SegmentHeader | None:
    """Return the header of a segment; None if absent, only ready, damaged or of another store."""
    path = segment_path(directory, epoch, number)
    try:
        header = decode_header(read_part(files, path, 0, HEADER_BYTES), path)
    except FileNotFoundError:
        return None
    is_ours = header is not None and (header.age, header.store_id) == ((epoch, number), store_id)
    return header if is_ours else None


def find_segments(
    files: Files, directory: Path, store_id: bytes, since: tuple[int, int] = (0, 0)
) -> list[FoundSegment]:
    """Return all files with a segment's name, by epoch and number, from (epoch, number) on."""
    found: list[FoundSegment] = []
    for name in files.list(directory):
        named = parse_name(name)
        if named is not None and named >= since:
            header = read_header(files, directory, *named, store_id)
            found.append(FoundSegment(*named, segment_path(directory, *named), header))
    return sorted(found, key=lambda segment: segment.age)


def read_part(files: Files, path: Path, start: int, end: int) -> bytes:
    """Return a copy of the bytes from `start` to `end`; fewer if the file ends before."""
    with closing(files.open(path, write=False)) as file:
        return file.pread(max(0, end - start), start)


def read_mark(files: Files, directory: Path, store_id: bytes) -> Mark | None:
    """Return MARK, the end of the durable log; None if absent, torn or of another store.

    What looks torn is read again: the owner may write it just now (once in four million reads).
    """
    for _ in range(_MARK_READS):
        try:
            found = decode_mark(files.read(directory / MARK_NAME), store_id)
        except FileNotFoundError:
            return None
        if found is not None:
            return found
    return None


def mark_is_held(files: Files, directory: Path) -> bool:
    """Say whether a living owner that has recovered the log holds MARK, and so keeps it right.

    It looks by a shared lock, for a moment: other processes that look do not see it. LOCK is never
    looked at so, because an owner that starts would find it taken.
    """
    try:
        return is_taken(files.lock(directory / MARK_NAME, shared=True))
    except FileNotFoundError:
        return False


def walk(data: bytes, source: SegmentSource, start: Position) -> Iterator[Frame]:
    """Yield the frames that follow `start` without a gap.

    The first invalid frame ends the walk; the caller decides its meaning.

    Raises:
        CorruptionError: A valid frame does not continue the one before it.
    """
    view = memoryview(data)
    at, checksum, seq = start.offset, start.checksum, start.seq
    while (frame := decode_frame(view, at, source)) is not None:
        if frame.previous != checksum:
            raise CorruptionError(source.path, at, "the frame does not follow the one before it")
        if frame.first_seq != seq + 1 or frame.last_seq < frame.first_seq:
            raise CorruptionError(
                source.path, at, f"seq {frame.first_seq} to {frame.last_seq} after seq {seq}"
            )
        at, checksum, seq = frame.end, frame.checksum, frame.last_seq
        yield frame


def moved(frame: Logged, at: Position, store_id: bytes) -> tuple[list[Buffer], Position]:
    """Encode a frame anew, for `at`; return its buffers and the position behind.

    Its durable offset says nothing: the header says that all of the segment is durable.
    """
    return encode_frame(
        [frame.payload],
        store_id=store_id,
        at=at,
        first_seq=frame.first_seq,
        last_seq=frame.last_seq,
        durable_offset=at.offset,
    )


def unavailable(directory: Path) -> AbstractContextManager[None]:
    """Return an UnavailableError for an error of the file system."""
    return refusals(f"the log in {directory} cannot go on")
