r"""Log object: one object of a log in a bucket, `wal/<epoch:08d>/<number:020d>`.

All integers are little-endian, all checksums xxh3-64.

    offset  size  field
         0     4  magic, b"SLOG"
         4     4  format of the store
         8     8  kind: 1 frame, 2 frame in parts, 3 fence, 4 claim
        16     8  epoch        both as in its key: an object under another
        24     8  number       one's key is damage
        32     8  first seq    of a frame; of a fence and a claim: the epoch
        40     8  last seq     that goes on behind it, twice
        48    16  token of the writer: no other writer puts these bytes
        64     8  checksum of the object before; 0: a fence that was put ahead
        72     8  length of the payload
        80     n  payload
      80+n     8  checksum of all bytes before it

A *frame* has the groups of commits that became durable while the object before was put: each is
first seq, last seq, length (u64), the payload (`group`), zeros up to a multiple of 8. Above
`PART_BYTES` the groups lie in objects `<key>.0000`, `<key>.0001`, ..., which are put before it, and
the payload has the size and checksum (u64) of each.

Numbers go on over epochs. The *fence* of epoch e at number k ends e, and says in which epoch the
log goes on, at k + 1. The *claim*, number 0 of an epoch, is put before anything else of it. Neither
has a payload, so their size tells them from frames. Epoch 0 has nothing but the fence at 1 with
which every log begins.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import Buffer
from siltstone.formats.store_format import STORE_FORMAT, refuse_other
from siltstone.units import Seq, require

LOG = "wal/"
PART_BYTES = 8 << 20
TOKEN_BYTES = 16
_MAGIC = b"SLOG"
_HEADER = struct.Struct("<4sIQQQQQ16sQQ")
_GROUP = struct.Struct("<QQQ")
_PART = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<Q")
FENCE_BYTES = _HEADER.size + _CHECKSUM.size
"""The size of an object without a payload; a frame is larger."""
_KEY = re.compile(r"wal/([0-9]{8,})/([0-9]{20})(\.[0-9]{4})?")

require(_HEADER.size == 80, "the header of a log object has 80 bytes")


class LogPlace(NamedTuple):
    """Where an object of the log lies; places of one log compare by their numbers."""

    epoch: int
    number: int

    @property
    def key(self) -> str:
        return f"{LOG}{self.epoch:08d}/{self.number:020d}"

    @property
    def behind(self) -> LogPlace:
        return LogPlace(self.epoch, self.number + 1)

    def part(self, index: int) -> str:
        """Return the key of a part of a frame."""
        return f"{self.key}.{index:04d}"


BEGINNING = LogPlace(0, 1)
"""Where every log begins."""


class Kind(IntEnum):
    FRAME = 1
    PARTED = 2
    FENCE = 3
    CLAIM = 4


_KINDS = frozenset(each.value for each in Kind)


class LoggedGroup(msgspec.Struct, frozen=True):
    """Commits that were synced together in the log of a store, as its frame has them."""

    first_seq: Seq
    last_seq: Seq
    payload: memoryview


class LogObject(msgspec.Struct, frozen=True):
    """One object. `payload` is a view of what was read; `checksum` is that of the object."""

    kind: Kind
    place: LogPlace
    first_seq: int
    last_seq: int
    writer: bytes
    previous: int
    payload: Buffer = b""
    checksum: int = 0

    @property
    def is_frame(self) -> bool:
        return self.kind in {Kind.FRAME, Kind.PARTED}

    @property
    def next_epoch(self) -> int:
        """The epoch that a fence names, or a claim is for."""
        return self.first_seq


def place_of(key: str) -> tuple[LogPlace, bool] | None:
    """Return the place that a key names, and whether it is that of a part; None: another key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    return LogPlace(int(found[1]), int(found[2])), found[3] is not None


def encode(
    kind: Kind,
    place: LogPlace,
    seqs: tuple[int, int],
    writer: bytes,
    previous: int,
    payload: Sequence[Buffer] = (),
) -> tuple[bytes, int]:
    """Return the bytes of an object, and their checksum."""
    require(len(writer) == TOKEN_BYTES, "the token of a writer has 16 bytes")
    length = sum(memoryview(each).nbytes for each in payload)
    require((length > 0) == (kind in {Kind.FRAME, Kind.PARTED}), "frames alone have a payload")
    header = _HEADER.pack(_MAGIC, STORE_FORMAT, kind, *place, *seqs, writer, previous, length)
    body = b"".join((header, *payload))
    checksum = xxhash.xxh3_64_intdigest(body)
    return body + _CHECKSUM.pack(checksum), checksum


def decode(data: bytes, place: LogPlace, url: str) -> LogObject:
    """Return the object that lies at a place.

    Raises:
        CorruptionError: It is damaged, or belongs elsewhere; `url` names it.
        UnsupportedFormatError: A siltstone of another format wrote it.
    """
    view = memoryview(data)
    if len(data) < FENCE_BYTES or data[:4] != _MAGIC:
        raise CorruptionError(url, 0, "it is no object of a log")
    (checksum,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if xxhash.xxh3_64_intdigest(view[: -_CHECKSUM.size]) != checksum:
        raise CorruptionError(url, None, "the checksum differs")
    _, version, kind, epoch, number, first, last, writer, previous, length = _HEADER.unpack_from(
        data
    )
    refuse_other(url, version)
    if (epoch, number) != place or length != len(data) - FENCE_BYTES:
        raise CorruptionError(url, None, f"it is object {number} of epoch {epoch}")
    if kind not in _KINDS:
        raise CorruptionError(url, 8, f"an object of kind {kind}")
    payload = view[_HEADER.size : -_CHECKSUM.size]
    return LogObject(Kind(kind), place, first, last, writer, previous, payload, checksum)


def encode_groups(groups: Sequence[LoggedGroup]) -> list[Buffer]:
    """Return what a frame has of groups, as buffers to write in this order."""
    buffers: list[Buffer] = []
    for group in groups:
        size = group.payload.nbytes
        require(size > 0, "a group of commits has bytes")
        buffers += [_GROUP.pack(group.first_seq, group.last_seq, size), group.payload]
        if size % 8:
            buffers.append(bytes(-size % 8))
    return buffers


def decode_groups(payload: Buffer) -> Iterator[LoggedGroup]:
    """Yield the groups of a frame whose checksum was right."""
    view, at = memoryview(payload), 0
    while at < len(view):
        first, last, size = _GROUP.unpack_from(view, at)
        start = at + _GROUP.size
        yield LoggedGroup(Seq(first), Seq(last), view[start : start + size])
        at = start + size + -size % 8
    require(at == len(view), f"groups end at {at}, the frame at {len(view)}")


def parted(buffers: Sequence[Buffer], part_bytes: int = PART_BYTES) -> list[bytes]:
    """Return the bytes of buffers in parts, each of so many bytes but the last."""
    whole = memoryview(b"".join(buffers))
    return [bytes(whole[at : at + part_bytes]) for at in range(0, len(whole), part_bytes)]


def encode_parts(parts: Sequence[bytes]) -> bytes:
    """Return what a frame in parts has instead of its groups."""
    return b"".join(_PART.pack(len(each), xxhash.xxh3_64_intdigest(each)) for each in parts)


def decode_parts(payload: Buffer) -> list[tuple[int, int]]:
    """Return size and checksum of each part."""
    require(len(payload) % _PART.size == 0, "the parts of a frame have 16 bytes each")
    return list(_PART.iter_unpack(payload))


def require_part(data: bytes, expected: tuple[int, int], url: str) -> None:
    """Check one part.

    Raises:
        CorruptionError: It is not the one that was put; `url` names it.
    """
    if (len(data), xxhash.xxh3_64_intdigest(data)) != expected:
        raise CorruptionError(url, None, "the part of a frame is not the one that was put")
