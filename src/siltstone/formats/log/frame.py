r"""Frame: how the log lies in a segment file, `<epoch:08d>-<segment:012d>.wal`, and in `MARK`.

A segment is one header of 4096 bytes, then frames without gaps, each 8-byte aligned. All integers
are little-endian, all checksums xxh3-64.

    header                                       frame
    offset  size  field                          offset  size  field
         0     8  magic, b"siltseg\n"                  0     8  magic, b"siltfrm\n"
         8     8  checksum of bytes 16 to 4096          8     8  checksum of byte 16 to the end
        16     4  format of the store                 16     4  format of the store
        20     4  flags, 1 = recycled file            20     4  zero
        24    16  store id                            24     8  payload length in bytes
        40     8  epoch                               32    16  store id
        48     8  segment                             48     8  epoch
        56     8  durable offset                      56     8  segment
        64    40  previous: epoch, segment,           64     8  offset of this frame in the file
                  offset, checksum, seq               72     8  first seq
       104  3992  zeros                               80     8  last seq
                                                      88     8  durable offset
    MARK                                              96     8  checksum of the frame before (the
         0     4  magic, b"MARK"                                 first: of the segment's header)
         4     4  epoch                              104     n  payload
         8    24  segment, offset, seq             104+n   0-7  zeros up to a multiple of 8
        32     8  checksum of store id
                  and bytes 0 to 32

`previous` is the end of the log before the segment's first frame. A durable offset is the end of
the synced part of the segment when the header or frame was written. Commits below it were
acknowledged, so damage there is never a torn write. Magic, checksum, version and (of a frame)
length keep their places and meaning in every format, so that a program can tell another format from
damage.

A frame's checksum covers store, epoch, segment, offset and its predecessor's checksum. So zeros,
stale bytes of a recycled file, and frames that were moved or belong elsewhere cannot validate.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import xxhash

from siltstone.errors import InvariantError
from siltstone.formats.store_format import STORE_FORMAT, refuse_other
from siltstone.units import Epoch, SegmentNumber, Seq, require

HEADER_BYTES = 4096
FRAME_HEADER_BYTES = 104
FRAME_BYTES_MAX = 256 * 1024 * 1024
MARK_BYTES = 40
STORE_ID_BYTES = 16
IS_RECYCLED = 1

Buffer = bytes | bytearray | memoryview

_SEGMENT_MAGIC = b"siltseg\n"
_FRAME_MAGIC = b"siltfrm\n"
_MARK_MAGIC = b"MARK"
_START = struct.Struct("<8sQ")
_HEADER = struct.Struct("<II16sQQQQQQQQ")
_FRAME = struct.Struct("<IIQ16sQQQQQQQ")
_WHOLE_FRAME = struct.Struct("<8sQIIQ16sQQQQQQQ")
_MARK = struct.Struct("<4sIQQQ")
_U64 = struct.Struct("<Q")
_PADDING = tuple(bytes(size) for size in range(8))
_JOINED_BYTES_MAX = 4 << 10  # measured: beyond, a copy costs more than a hasher and more buffers

require(_WHOLE_FRAME.size == FRAME_HEADER_BYTES, "a frame's header has 104 bytes")
require(_MARK.size + 8 == MARK_BYTES, "a mark has 40 bytes")


class Position(msgspec.Struct, frozen=True):
    """A place in the log between two frames.

    `checksum` belongs to the frame (or segment header) before it, `seq` is the last seq before it.
    """

    epoch: Epoch
    segment: SegmentNumber
    offset: int
    checksum: int
    seq: Seq

    @property
    def place(self) -> tuple[Epoch, SegmentNumber, int]:
        """The order of positions; a later epoch replaces unacknowledged frames of earlier ones."""
        return self.epoch, self.segment, self.offset


class SegmentHeader(msgspec.Struct, frozen=True):
    """The first 4096 bytes of a segment; `checksum` is computed, not chosen."""

    store_id: bytes
    epoch: Epoch
    segment: SegmentNumber
    previous: Position
    durable_offset: int = HEADER_BYTES
    is_recycled: bool = False
    checksum: int = 0

    @classmethod
    def beginning(cls, store_id: bytes, epoch: Epoch, segment: SegmentNumber, seq: Seq) -> Self:
        """Return the header of a log's first segment, whose frames follow `seq`."""
        before = Position(Epoch(0), SegmentNumber(segment - 1), HEADER_BYTES, 0, seq)
        return cls(store_id, epoch, segment, before)

    @property
    def age(self) -> tuple[int, int]:
        """The order of segments; see `Position.place`."""
        return self.epoch, self.segment

    @property
    def start(self) -> Position:
        """The position before the segment's first frame."""
        return Position(self.epoch, self.segment, HEADER_BYTES, self.checksum, self.previous.seq)


class Logged(Protocol):
    """Commits that were synced together: a frame of a segment, or a group in a bucket."""

    @property
    def first_seq(self) -> Seq: ...

    @property
    def last_seq(self) -> Seq: ...

    @property
    def payload(self) -> memoryview: ...


class Frame(msgspec.Struct, frozen=True):
    """One decoded frame; `payload` is a view of the caller's buffer, `end` a file offset."""

    epoch: Epoch
    segment: SegmentNumber
    first_seq: Seq
    last_seq: Seq
    payload: memoryview
    durable_offset: int
    previous: int
    checksum: int
    offset: int
    end: int

    @property
    def behind(self) -> Position:
        """The position after this frame."""
        return Position(self.epoch, self.segment, self.end, self.checksum, self.last_seq)


class Mark(msgspec.Struct, frozen=True):
    """The durable part of the log: everything below `offset` of `segment`, up to `seq`."""

    epoch: Epoch
    segment: SegmentNumber
    offset: int
    seq: Seq

    @property
    def place(self) -> tuple[Epoch, SegmentNumber, int]:
        """The order of marks and positions; see `Position.place`."""
        return self.epoch, self.segment, self.offset


class SegmentSource(msgspec.Struct, frozen=True):
    """The segment of a buffer; `base` is the file offset of the buffer's first byte."""

    path: Path
    store_id: bytes
    epoch: Epoch
    segment: SegmentNumber
    base: int = 0


def frame_bytes(payload_bytes: int) -> int:
    """Return the bytes that a frame with this payload takes in a segment."""
    return FRAME_HEADER_BYTES + payload_bytes + -payload_bytes % 8


def payload_bytes(payload: Sequence[Buffer]) -> int:
    """Return the length of a payload in bytes (`len` of a view counts items).

    Raises:
        InvariantError: It is above `FRAME_BYTES_MAX`; callers must split it before.
    """
    length = 0  # each commit asks twice: no generator, and no message unless it is said
    for part in payload:
        length += len(part) if type(part) is bytes else memoryview(part).nbytes
    if length > FRAME_BYTES_MAX:
        raise InvariantError(f"a payload of {length} bytes is above {FRAME_BYTES_MAX}")
    return length


def encode_header(header: SegmentHeader) -> tuple[bytes, SegmentHeader]:
    """Return the 4096 bytes of a segment header, and the header with their checksum."""
    require(len(header.store_id) == STORE_ID_BYTES, "a store id has 16 bytes")
    fields = _HEADER.pack(
        STORE_FORMAT,
        IS_RECYCLED if header.is_recycled else 0,
        header.store_id,
        header.epoch,
        header.segment,
        header.durable_offset,
        *msgspec.structs.astuple(header.previous),
    )
    body = fields.ljust(HEADER_BYTES - _START.size, b"\0")
    checksum = xxhash.xxh3_64_intdigest(body)
    whole = msgspec.structs.replace(header, checksum=checksum)
    return _START.pack(_SEGMENT_MAGIC, checksum) + body, whole


def decode_header(data: Buffer, path: Path) -> SegmentHeader | None:
    """Return the header at the start of a segment file, or None if there is no valid one.

    Raises:
        UnsupportedFormatError: A siltstone of another format wrote it.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, checksum = _START.unpack_from(data)
    body = memoryview(data)[_START.size : HEADER_BYTES]
    if magic != _SEGMENT_MAGIC or xxhash.xxh3_64_intdigest(body) != checksum:
        return None
    version, flags, store_id, epoch, segment, durable, *previous = _HEADER.unpack_from(body)
    refuse_other(path, version)
    return SegmentHeader(
        store_id, epoch, segment, Position(*previous), durable, bool(flags & IS_RECYCLED), checksum
    )


def encode_frame(
    payload: Sequence[Buffer],
    *,
    store_id: bytes,
    at: Position,
    first_seq: Seq,
    last_seq: Seq,
    durable_offset: int,
    length: int | None = None,
) -> tuple[list[Buffer], Position]:
    """Return the buffers of the frame that goes to `at`, and the position behind it.

    `length`: the `payload_bytes` of the payload, if they are known.

    A small frame, as most commits have, is one buffer. For a larger payload its parts are hashed
    one by one and returned unchanged.
    """
    length = payload_bytes(payload) if length is None else length
    padding = _PADDING[-length % 8]
    fields = _FRAME.pack(
        STORE_FORMAT,
        0,
        length,
        store_id,
        at.epoch,
        at.segment,
        at.offset,
        first_seq,
        last_seq,
        durable_offset,
        at.checksum,
    )
    buffers: list[Buffer]
    if length <= _JOINED_BYTES_MAX:
        body = b"".join((fields, *payload, padding))
        checksum = xxhash.xxh3_64_intdigest(body)
        buffers = [_START.pack(_FRAME_MAGIC, checksum) + body]
    else:
        hasher = xxhash.xxh3_64(fields)
        for part in payload:
            hasher.update(part)
        hasher.update(padding)
        checksum = hasher.intdigest()
        buffers = [_START.pack(_FRAME_MAGIC, checksum) + fields, *payload]
        if padding:
            buffers.append(padding)
    end = at.offset + FRAME_HEADER_BYTES + length + len(padding)
    return buffers, Position(at.epoch, at.segment, end, checksum, last_seq)


def decode_frame(view: memoryview, at: int, source: SegmentSource) -> Frame | None:
    """Return the frame that starts at file offset `at`, or None if there is no valid one.

    The caller checks that it follows its predecessor (`previous`, seqs).

    Raises:
        UnsupportedFormatError: A siltstone of another format wrote it.
    """
    start = at - source.base
    if start < 0 or start + FRAME_HEADER_BYTES > len(view):
        return None
    fields = _WHOLE_FRAME.unpack_from(view, start)
    magic, checksum, version, _, length = fields[:5]
    end = start + frame_bytes(length)
    if magic != _FRAME_MAGIC or end > len(view):
        return None
    # The place is compared before the payload is hashed: stale frames are many and may be long.
    if version == STORE_FORMAT and not _is_at(fields, at, source):
        return None
    if xxhash.xxh3_64_intdigest(view[start + _START.size : end]) != checksum:
        return None
    refuse_other(source.path, version)
    first_seq, last_seq, durable_offset, previous = fields[9:]
    return Frame(
        source.epoch, source.segment, first_seq, last_seq,
        view[start + FRAME_HEADER_BYTES : start + FRAME_HEADER_BYTES + length],
        durable_offset, previous, checksum, at, end + source.base,
    )  # fmt: skip


def find_frames(data: Buffer, start: int, source: SegmentSource) -> Iterator[Frame]:
    """Yield every valid frame of this segment at or after file offset `start`, chained or not."""
    view = memoryview(data)
    for at in _aligned_magics(data, start, source.base):
        found = decode_frame(view, at, source)
        if found is not None:
            yield found


def claimed_end(data: Buffer, start: int, source: SegmentSource) -> int:
    """Return the end of the last frame, valid or torn, whose header names its place; else `start`.

    In a recycled file nothing more is known of a torn tail: the other bytes are stale.
    """
    end = start
    for at in _aligned_magics(data, start, source.base):
        fields = _WHOLE_FRAME.unpack_from(data, at - source.base)
        if _is_at(fields, at, source):
            end = max(end, min(at + frame_bytes(fields[4]), source.base + len(data)))
    return end


def encode_mark(mark: Mark | Position, store_id: bytes) -> bytes:
    """Return the 40 bytes of MARK; `mark` is at most the end of the durable log."""
    fields = _MARK.pack(_MARK_MAGIC, mark.epoch, mark.segment, mark.offset, mark.seq)
    return fields + _U64.pack(xxhash.xxh3_64_intdigest(store_id + fields))


def decode_mark(data: Buffer, store_id: bytes) -> Mark | None:
    """Return the mark, or None if it is torn, empty or of another store."""
    if len(data) < MARK_BYTES:
        return None
    fields = bytes(data[: _MARK.size])
    (checksum,) = _U64.unpack_from(data, _MARK.size)
    if fields[:4] != _MARK_MAGIC or xxhash.xxh3_64_intdigest(store_id + fields) != checksum:
        return None
    return Mark(*_MARK.unpack(fields)[1:])


def _is_at(fields: tuple[Any, ...], at: int, source: SegmentSource) -> bool:
    """Tell whether the fields of a frame header name the place they were read from."""
    return fields[5:9] == (source.store_id, source.epoch, source.segment, at)


def _aligned_magics(data: Buffer, start: int, base: int) -> Iterator[int]:
    """Yield the aligned file offsets at which a frame header could start."""
    whole = bytes(data) if isinstance(data, memoryview) else data
    at = whole.find(_FRAME_MAGIC, start - base)
    while at != -1:
        if (at + base) % 8 == 0 and at + FRAME_HEADER_BYTES <= len(whole):
            yield at + base
        at = whole.find(_FRAME_MAGIC, at + 1)
