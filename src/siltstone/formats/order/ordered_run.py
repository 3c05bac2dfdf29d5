"""Ordered run: which rows have which keys, in the order of the keys, as an immutable file.

    pages     one after the other, of about `PAGE_BYTES`; one of a long key has more
        0     8  xxh3_64 of the rest of the page, seeded by the run's salt + the page's number
        8     4  count of its keys, u32
       12     4  bytes with which all of them begin, u32
       16    8n  places, u64: part number << 32 | offset of the row in its part
           4n+4  ends of the rests, i32, behind a 0
              m  what all keys begin with, then the rests
    foot      salt, entries, number of parts, number of pages (u64 each); the numbers of the parts
              (u64); where each page begins, and the last one ends (u64); a separator for each page,
              as a page has keys: two counts, ends, what all begin with, rests
    trailer   magic, length of the foot (u64), xxh3_64 of the foot

Integers are little-endian. Keys are bytes that compare as keys do (`key_bytes`), ascending, also
from page to page. A separator is the shortest beginning of the first key of its page that is above
the last key of the page before, so a key below it is in no later page. A run has an entry for each
row of its parts that was not hidden when it was written. Rows with one key are in no order.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.order.key_bytes import ByteKeys, bytes_scalar
from siltstone.units import require

PAGE_BYTES = 8192
"""What a writer fills; a reader takes pages as long as the foot says."""
TRAILER_BYTES = 24
_MAGIC = b"siltord\n"
_TRAILER, _FOOT = struct.Struct("<8sQQ"), struct.Struct("<QQQQ")
_SUM_BYTES = 8
_COUNTS, _END_BYTES, _PLACE_BYTES = struct.Struct("<II"), 4, 8
_WRAP = 1 << 64
_compute: Any = pc

require(_TRAILER.size == TRAILER_BYTES, "a trailer has 24 bytes")
require(_SUM_BYTES + _COUNTS.size == 2 * _PLACE_BYTES, "places are aligned")

OrderedEntries: TypeAlias = tuple[ByteKeys, np.ndarray]
"""Keys, ascending, and their places (uint64)."""


class Packed(msgspec.Struct, frozen=True):
    """Ascending keys without what all begin with: rest n is `data[ends[n]:ends[n + 1]]`."""

    begin: bytes
    data: bytes
    ends: memoryview[int]
    rests: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.rests)

    def below(self, bound: bytes) -> int:
        """Return how many keys are below a bound."""
        if not bound.startswith(self.begin):
            return len(self) if self.begin < bound else 0
        data, ends = self.data, self.ends
        rest = bound[len(self.begin) :]
        return bisect_left(range(len(self)), rest, key=lambda n: data[ends[n] : ends[n + 1]])

    def between(self, first: bytes, end: bytes | None) -> slice:
        """Return which keys are from `first` to below `end` (None: open)."""
        return slice(self.below(first), len(self) if end is None else self.below(end))

    def keys(self, cut: slice) -> ByteKeys:
        """Return some of the keys."""
        first, end, _ = cut.indices(len(self))
        some = self.rests.slice(first, max(0, end - first))
        if not self.begin:
            return ByteKeys(some)
        begin, nothing = bytes_scalar(self.begin), bytes_scalar(b"")
        return ByteKeys(_compute.binary_join_element_wise(begin, some, nothing))


class OrderedPage(msgspec.Struct, frozen=True):
    """The keys and the places of one page."""

    packed: Packed
    places: np.ndarray


class OrderedFoot(msgspec.Struct, frozen=True):
    """What a run says of itself: its entries, its parts, its pages and what separates them."""

    salt: int
    entries: int
    parts: tuple[int, ...]
    starts: np.ndarray
    separators: Packed

    @property
    def pages(self) -> int:
        """The number of its pages."""
        return len(self.starts) - 1

    def stretch(self, first: bytes, end: bytes | None) -> range:
        """Return the pages that may have a key from `first` to below `end` (None: open)."""
        low = max(self.separators.below(first) - 1, 0)
        return range(low, self.pages if end is None else self.separators.below(end))

    def span(self, page: int) -> tuple[int, int]:
        """Return where a page begins and ends."""
        return int(self.starts[page]), int(self.starts[page + 1])


class EncodedPages(msgspec.Struct, frozen=True):
    """Pages one behind the other, where each ends in them, and the first and last keys of each."""

    data: bytes
    ends: list[int]
    firsts: list[bytes]
    lasts: list[bytes]


def encode_pages(keys: ByteKeys, places: np.ndarray, *, salt: int, first: int) -> EncodedPages:
    """Return entries as the pages from number `first` on; all but the last one are full."""
    ends, data = _ends_of(keys.array), _data_of(keys.array)
    pages, found = list[bytes](), EncodedPages(b"", [], [], [])
    size = 0
    for start, end in pairwise(_cuts(ends, data)):
        low, high = data[ends[start] : ends[start + 1]], data[ends[end - 1] : ends[end]]
        shared = shared_bytes(low, high)
        page = _encoded(ends[start : end + 1], data, places[start:end], shared)
        total = xxhash.xxh3_64_intdigest(page, (salt + first + len(found.ends)) % _WRAP)
        pages += [total.to_bytes(8, "little"), page]
        size += _SUM_BYTES + len(page)
        found.ends.append(size)
        found.firsts.append(bytes(low))
        found.lasts.append(bytes(high))
    return EncodedPages(b"".join(pages), found.ends, found.firsts, found.lasts)


def decode_page(data: bytes, path: str, foot: OrderedFoot, number: int) -> OrderedPage:
    """Return the page with a number.

    Raises:
        CorruptionError: It is not the one that was written there.
    """
    first, end = foot.span(number)
    if len(data) != end - first:
        raise CorruptionError(path, first, f"the page has {len(data)} of {end - first} bytes")
    total = int.from_bytes(data[:_SUM_BYTES], "little")
    if total != xxhash.xxh3_64_intdigest(memoryview(data)[_SUM_BYTES:], _seed(foot, number)):
        raise CorruptionError(path, first, "the checksum of the page does not match")
    count = int.from_bytes(data[_SUM_BYTES : _SUM_BYTES + 4], "little")
    places = np.frombuffer(data, np.uint64, count, _SUM_BYTES + _COUNTS.size)
    packed = _unpacked(data, _SUM_BYTES, _SUM_BYTES + _COUNTS.size + _PLACE_BYTES * count)
    return OrderedPage(packed, places)


def encode_foot(
    salt: int, entries: int, parts: Sequence[int], ends: Sequence[int], separators: Sequence[bytes]
) -> tuple[bytes, str]:
    """Return the bytes behind the pages, and the checksum of the foot in hex."""
    body = _FOOT.pack(salt, entries, len(parts), len(ends))
    body += np.array([*parts, 0, *ends], np.uint64).tobytes()
    keys = pa.array(separators, pa.binary())
    shared = shared_bytes(separators[0], separators[-1]) if separators else 0
    body += _encoded(_ends_of(keys), _data_of(keys), np.zeros(0, np.uint64), shared)
    checksum = xxhash.xxh3_64_intdigest(body)
    return body + _TRAILER.pack(_MAGIC, len(body), checksum), f"{checksum:016x}"


def foot_bytes(trailer: bytes, path: str, size: int, xxh3: str) -> int:
    """Return the length of the foot of a run of `size` bytes, by its trailer.

    `xxh3` is the checksum of the foot in the pin.

    Raises:
        CorruptionError: These are not the last bytes of a run.
    """
    at = size - TRAILER_BYTES
    magic, length, checksum = _TRAILER.unpack(trailer)
    if magic != _MAGIC:
        raise CorruptionError(path, at, "not an ordered run: the magic does not match")
    if not _FOOT.size <= length <= at:
        raise CorruptionError(path, at, f"the foot cannot have {length} of {size} bytes")
    if f"{checksum:016x}" != xxh3:
        raise CorruptionError(path, at, f"its checksum is {checksum:016x}, the pin says {xxh3}")
    return int(length)


def decode_foot(body: bytes, path: str, size: int, xxh3: str) -> OrderedFoot:
    """Return the foot of a run of `size` bytes; `xxh3` is what the pin says.

    Raises:
        CorruptionError: It is not the foot that was written.
    """
    at = size - TRAILER_BYTES - len(body)
    found = f"{xxhash.xxh3_64_intdigest(body):016x}"
    if found != xxh3:
        raise CorruptionError(path, at, f"the foot has the checksum {found}, the pin says {xxh3}")
    salt, entries, parts, pages = _FOOT.unpack_from(body)
    numbers = tuple(np.frombuffer(body, np.uint64, parts, _FOOT.size).tolist())
    starts_at = _FOOT.size + 8 * parts
    starts = np.frombuffer(body, np.uint64, pages + 1, starts_at)
    counts_at = starts_at + 8 * (pages + 1)
    separators = _unpacked(body, counts_at, counts_at + _COUNTS.size)
    require(
        len(separators) == pages and int(starts[-1]) == at,
        f"{path}: the foot of {pages} pages has {len(separators)} separators",
    )
    return OrderedFoot(salt, entries, numbers, starts, separators)


def separator(last: bytes | None, first: bytes) -> bytes:
    """Return the shortest beginning of a key that is above the one before; None: there is none."""
    return first if last is None else first[: shared_bytes(last, first) + 1]


def shared_bytes(one: bytes | memoryview, other: bytes | memoryview) -> int:
    """Return with how many equal bytes both begin."""
    count = min(len(one), len(other))
    differ = int.from_bytes(one[:count], "big") ^ int.from_bytes(other[:count], "big")
    return count - (differ.bit_length() + 7) // 8


def _cuts(ends: np.ndarray, data: memoryview) -> Iterator[int]:
    """Yield where pages begin, and where the last one ends."""
    start, count = 0, len(ends) - 1
    each = _PLACE_BYTES + _END_BYTES
    room = PAGE_BYTES - _SUM_BYTES - _COUNTS.size - _END_BYTES
    at = ends.tolist()

    def fits(end: int) -> bool:
        """Say whether the keys up to `end` fit a page: what all share is in it once."""
        shared = shared_bytes(data[at[start] : at[start + 1]], data[at[end - 1] : at[end]])
        rests = at[end] - at[start] - shared * (end - start)
        return each * (end - start) + shared + rests <= room

    yield 0
    while start < count:
        most = range(start + 2, min(count, start + room // each) + 1)
        start = start + 1 + bisect_left(most, True, key=lambda end: not fits(end))
        yield start


def _encoded(ends: np.ndarray, data: memoryview, places: np.ndarray, shared: int) -> bytes:
    """Return keys that share their first bytes, and their places, behind their counts."""
    count, first = len(ends) - 1, int(ends[0])
    rests = np.zeros(count + 1, np.int32)
    rests[1:] = ends[1:] - first - shared * np.arange(1, count + 1)
    stored = np.frombuffer(data, np.uint8)
    begin = stored[first : first + shared] if count else stored[:0]
    if shared:
        skipped = np.repeat(np.arange(1, count + 1) * shared + first, np.diff(rests))
        body = stored[np.arange(int(rests[-1])) + skipped]
    else:
        body = stored[first : int(ends[-1])]
    counts = _COUNTS.pack(count, shared)
    return b"".join((counts, places.tobytes(), rests.tobytes(), begin.tobytes(), body.tobytes()))


def _unpacked(data: bytes, counts_at: int, ends_at: int) -> Packed:
    """Return keys whose counts and ends are at some offsets."""
    count, shared = _COUNTS.unpack_from(data, counts_at)
    begin_at = ends_at + _END_BYTES * (count + 1)
    ends = memoryview(data)[ends_at:begin_at].cast("i")
    rests = data[begin_at + shared :]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(rests)]
    array = pa.Array.from_buffers(pa.binary(), count, cast("Any", buffers))
    begin = data[begin_at : begin_at + shared]
    return Packed(begin, rests, ends, cast("pa.BinaryArray", array))


def _ends_of(array: pa.BinaryArray) -> np.ndarray:
    if not len(array):
        return np.zeros(1, np.int32)
    buffer = cast("Any", array.buffers()[1])
    return np.frombuffer(buffer, np.int32, len(array) + 1, array.offset * 4)


def _data_of(array: pa.BinaryArray) -> memoryview:
    buffer = array.buffers()[2]
    return memoryview(b"" if buffer is None else cast("Any", buffer))


def _seed(foot: OrderedFoot, number: int) -> int:
    return (foot.salt + number) % _WRAP
