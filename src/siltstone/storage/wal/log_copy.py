"""Log copy: durable frames of a log in one separate, self-contained segment.

    header      its durable offset is the end of the last frame: no part may be torn
    frames      as committed, with the positions and checksums of the new segment

A backup stores its commits above the record in this form, and a restored store starts its log so.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import (
    HEADER_BYTES,
    Frame,
    Logged,
    Position,
    SegmentHeader,
    SegmentSource,
    decode_header,
    encode_header,
    encode_mark,
    frame_bytes,
)
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import Files
from siltstone.storage.wal.segments import MARK_NAME, moved, segment_path, walk
from siltstone.units import Epoch, SegmentNumber, Seq


def write_segment(files: Files, path: Path, record: Record, frames: Sequence[Logged]) -> Position:
    """Write a new segment file, synced, of `frames`, the commits above `record`; return its end."""
    header = SegmentHeader.beginning(
        bytes.fromhex(record.store_id),
        Epoch(record.epoch),
        SegmentNumber(record.wal_floor),
        Seq(frames[0].first_seq - 1 if frames else record.flushed_seq),
    )
    size = HEADER_BYTES + sum(frame_bytes(len(frame.payload)) for frame in frames)
    data, header = encode_header(msgspec.structs.replace(header, durable_offset=size))
    end = header.start
    with closing(files.open(path, new=True)) as file:
        file.pwrite(data, 0)
        for frame in frames:
            at = end.offset
            buffers, end = moved(frame, end, header.store_id)
            file.pwritev(buffers, at)
        file.sync()
    return end


def read_segment(files: Files, path: Path) -> list[Frame]:
    """Return the frames of a segment that `write_segment` wrote.

    Raises:
        CorruptionError: The segment is damaged.
    """
    data = files.read(path)
    header = decode_header(data, path)
    if header is None:
        raise CorruptionError(path, 0, "the header of the log is damaged")
    source = SegmentSource(path, header.store_id, header.epoch, header.segment)
    frames = list(walk(data, source, header.start))
    end = frames[-1].end if frames else HEADER_BYTES
    if end != header.durable_offset or end != len(data):
        raise CorruptionError(path, end, "a frame of the log is damaged")
    return frames


def begin_log(files: Files, directory: Path, record: Record, frames: Sequence[Logged]) -> None:
    """Create a log of one segment, with its MARK, durably; replace the files of an earlier try."""
    files.mkdir(directory)
    path = segment_path(directory, Epoch(record.epoch), SegmentNumber(record.wal_floor))
    for name in files.list(directory):
        files.unlink(directory / name)
    end = write_segment(files, path, record, frames)
    files.write(directory / MARK_NAME, encode_mark(end, bytes.fromhex(record.store_id)))
    files.sync_dir(directory)
