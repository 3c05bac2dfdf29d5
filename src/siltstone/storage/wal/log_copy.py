"""Log copy: durable frames of a log in one separate, self-contained segment.

    header      its durable offset is the end of the last frame: no part may be torn
    frames      as committed, with the positions and checksums of the new segment

A backup stores its commits above the record in this form, and a restored store starts its log so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats.frame import (
    HEADER_BYTES,
    Buffer,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
    decode_header,
    encode_frame,
    encode_header,
    encode_mark,
    frame_bytes,
)
from siltstone.storage.files.files import Files
from siltstone.storage.wal.segments import MARK_NAME, LoggedFrame, segment_path, walk
from siltstone.units import Epoch, SegmentNumber, Seq


def write_segment(
    files: Files,
    path: Path,
    frames: Sequence[LoggedFrame],
    *,
    store_id: bytes,
    epoch: Epoch,
    segment: SegmentNumber,
    start_seq: Seq,
) -> Position:
    """Write a new segment file, synced, of `frames`, which follow `start_seq`; return its end."""
    before = Position(Epoch(0), SegmentNumber(segment - 1), HEADER_BYTES, 0, start_seq)
    size = HEADER_BYTES + sum(frame_bytes(len(frame.payload)) for frame in frames)
    header = SegmentHeader(store_id, epoch, segment, before, durable_offset=size)
    data, checksum = encode_header(header)
    end = msgspec.structs.replace(header, checksum=checksum).start
    file = files.open(path, new=True)
    try:
        file.pwrite(data, 0)
        for frame in frames:
            buffers, length, checksum = _encoded(frame, end, store_id)
            file.pwritev(buffers, end.offset)
            end = Position(epoch, segment, end.offset + length, checksum, frame.last_seq)
        file.sync()
    finally:
        file.close()
    return end


def _encoded(frame: LoggedFrame, at: Position, store_id: bytes) -> tuple[list[Buffer], int, int]:
    return encode_frame(
        [frame.payload],
        store_id=store_id,
        at=at,
        first_seq=frame.first_seq,
        last_seq=frame.last_seq,
        durable_offset=at.offset,
    )


def read_segment(files: Files, path: Path) -> list[LoggedFrame]:
    """Return the frames of a segment that `write_segment` wrote.

    Raises:
        CorruptionError: The segment is damaged.
    """
    data = files.read(path)
    header = decode_header(data, path)
    if header is None:
        raise CorruptionError(path, 0, "the header of the log is damaged")
    source = SegmentSource(path, header.store_id, header.epoch, header.segment)
    frames: list[LoggedFrame] = []
    end = header.start
    for frame, behind in walk(data, source, end):
        frames.append(LoggedFrame(end.segment, frame.first_seq, frame.last_seq, frame.payload))
        end = behind
    if end.offset != header.durable_offset or end.offset != len(data):
        raise CorruptionError(path, end.offset, "a frame of the log is damaged")
    return frames


def begin_log(
    files: Files,
    directory: Path,
    frames: Sequence[LoggedFrame],
    *,
    store_id: bytes,
    epoch: Epoch,
    segment: SegmentNumber,
    start_seq: Seq,
) -> None:
    """Create a log of one segment, with its MARK, durably; replace the files of an earlier try."""
    files.mkdir(directory)
    path = segment_path(directory, epoch, segment)
    for name in files.list(directory):
        files.unlink(directory / name)
    end = write_segment(
        files,
        path,
        frames,
        store_id=store_id,
        epoch=epoch,
        segment=segment,
        start_seq=start_seq,
    )
    mark = Mark(epoch, segment, end.offset, end.seq)
    files.write(directory / MARK_NAME, encode_mark(mark, store_id))
    files.sync_dir(directory)
