"""Key run: which row has a key, as an immutable sorted file.

    pages     of 8192 bytes, one after the other, all full but the last
        0     8  xxh3_64 of the rest of the page, seeded by the run's salt + the page's number
        8     8  count of its entries, u64
       16  4088  codes, i64, ascending (also from page to page); the rest is zeros
     4104  4088  places, u64: part number << 32 | offset of the row in its part
    foot      salt, entries, number of parts, number of pages (u64 each); the numbers of the
              parts (u64); the first code of each page (i64)
    trailer   magic, length of the foot (u64), xxh3_64 of the foot

Integers are little-endian. The salt makes a page of another file or of another place fail its
check. A run has an entry for each row of its parts that was not hidden when it was written. Equal
codes are in no order. Codes: see `formats.keys`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.order.key_bytes import Ranks, joined_ranks
from siltstone.units import require

PAGE_BYTES, PAGE_ROWS = 8192, 511
OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1
TRAILER_BYTES = 24
PIECE_ROWS, _BLOCK_ROWS = 1 << 18, 1 << 15
"""Many entries are sorted in pieces, and merged in blocks: a sort takes 40 bytes an entry more."""
_MAGIC = b"siltkey\n"
_TRAILER, _HEAD, _FOOT = struct.Struct("<8sQQ"), struct.Struct("<QQ"), struct.Struct("<QQQQ")
_WRAP = 1 << 64
_PLACES_AT = _HEAD.size + PAGE_ROWS * 8

Block: TypeAlias = tuple[Ranks, np.ndarray]
"""What entries are sorted by, ascending, and their places."""
Entries: TypeAlias = Block[np.ndarray]
"""Codes (int64), ascending, and their places (uint64)."""
Page: TypeAlias = "tuple[memoryview[int], memoryview[int]]"
"""The codes and the places of one page."""

require(_PLACES_AT + PAGE_ROWS * 8 == PAGE_BYTES, "a page has 8192 bytes")
require(_TRAILER.size == TRAILER_BYTES, "a trailer has 24 bytes")
require(sys.byteorder == "little", "key runs are read as they lie in the file")


class Foot(msgspec.Struct, frozen=True):
    """What a run says of itself: its entries, the parts that it covers, its pages' first codes."""

    salt: int
    entries: int
    parts: tuple[int, ...]
    firsts: memoryview[int]

    @property
    def pages(self) -> int:
        """The number of its pages."""
        return len(self.firsts)

    def rows_of(self, page: int) -> int:
        """Return how many entries a page has."""
        last = self.pages - 1
        return PAGE_ROWS if page < last else self.entries - last * PAGE_ROWS


def encode_pages(codes: np.ndarray, places: np.ndarray, *, salt: int, first: int) -> bytearray:
    """Return entries as the pages from number `first` on; the last one may be partly empty."""
    count = -(-len(codes) // PAGE_ROWS)
    words = np.zeros((count, PAGE_BYTES // 8), np.int64)
    whole = len(codes) // PAGE_ROWS
    words[:, 1] = PAGE_ROWS
    for column, values in ((2, codes), (2 + PAGE_ROWS, places.view(np.int64))):
        cut = values[: whole * PAGE_ROWS].reshape(whole, PAGE_ROWS)
        words[:whole, column : column + PAGE_ROWS] = cut
        if whole < count:
            rest = values[whole * PAGE_ROWS :]
            words[whole, column : column + len(rest)] = rest
            words[whole, 1] = len(rest)
    data = bytearray(words.tobytes())
    view = memoryview(data)
    for index in range(count):
        page = view[index * PAGE_BYTES : (index + 1) * PAGE_BYTES]
        page[:8] = _sum_of(page, salt + first + index).to_bytes(8, "little")
    return data


def decode_pages(data: bytes, path: str, foot: Foot, numbers: Sequence[int]) -> Entries:
    """Return the entries of the pages with these ascending numbers, one behind the other.

    Raises:
        CorruptionError: A page is not the one that was written there.
    """
    view, rows = memoryview(data), 0
    for index, number in enumerate(numbers):
        page = view[index * PAGE_BYTES : (index + 1) * PAGE_BYTES]
        _check(page, path, foot, number)
        rows += foot.rows_of(number)
    words = np.frombuffer(data, np.int64).reshape(-1, PAGE_BYTES // 8)
    codes, places = words[:, 2 : 2 + PAGE_ROWS], words[:, 2 + PAGE_ROWS :]
    # Only the last page of a run is not full, and it is the last of these.
    return codes.reshape(-1)[:rows], places.reshape(-1)[:rows].view(np.uint64)


def decode_page(data: bytes, path: str, foot: Foot, number: int) -> Page:
    """Return the page with a number.

    Raises:
        CorruptionError: It is not the one that was written there.
    """
    page, rows = memoryview(data), foot.rows_of(number)
    _check(page, path, foot, number)
    codes = page[_HEAD.size : _HEAD.size + rows * 8].cast("q")
    return codes, page[_PLACES_AT : _PLACES_AT + rows * 8].cast("Q")


def encode_foot(foot: Foot) -> tuple[bytes, str]:
    """Return the bytes behind the pages, and the checksum of the foot in hex."""
    body = _FOOT.pack(foot.salt, foot.entries, len(foot.parts), foot.pages)
    body += np.array(foot.parts, np.uint64).tobytes() + foot.firsts.tobytes()
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
        raise CorruptionError(path, at, "not a key run: the magic does not match")
    if not _FOOT.size <= length <= at or (at - length) % PAGE_BYTES:
        raise CorruptionError(path, at, f"the foot cannot have {length} of {size} bytes")
    if f"{checksum:016x}" != xxh3:
        raise CorruptionError(path, at, f"its checksum is {checksum:016x}, the pin says {xxh3}")
    return int(length)


def decode_foot(body: bytes, path: str, size: int, xxh3: str) -> Foot:
    """Return the foot of a run of `size` bytes; `xxh3` is what the pin says.

    Raises:
        CorruptionError: It is not the foot that was written.
    """
    at = size - TRAILER_BYTES - len(body)
    found = f"{xxhash.xxh3_64_intdigest(body):016x}"
    if found != xxh3:
        raise CorruptionError(path, at, f"the foot has the checksum {found}, the pin says {xxh3}")
    salt, entries, parts, pages = _FOOT.unpack_from(body)
    firsts_at = _FOOT.size + 8 * parts
    require(
        at == pages * PAGE_BYTES and len(body) == firsts_at + 8 * pages,
        f"{path}: the foot of {parts} parts and {pages} pages has {len(body)} bytes",
    )
    numbers = tuple(np.frombuffer(body, np.uint64, parts, _FOOT.size).tolist())
    return Foot(salt, entries, numbers, memoryview(body)[firsts_at:].cast("q"))


def merged(sources: Sequence[Iterator[Block[Ranks]]]) -> Iterator[Block[Ranks]]:
    """Yield the entries of sorted sources, sorted; it holds about two blocks of each source."""
    held: list[tuple[Block[Ranks], Iterator[Block[Ranks]]]] = []
    for source in sources:
        held += _next(source)
    while len(held) > 1:
        # Of what no block has, nothing is at or below the lowest of their last ranks.
        bound: Any = min(ranks[-1] for (ranks, _), _ in held)
        taken: list[Block[Ranks]] = []
        rest: list[tuple[Block[Ranks], Iterator[Block[Ranks]]]] = []
        for (ranks, places), source in held:
            cut = int(ranks.searchsorted(bound, "right"))
            taken.append((ranks[:cut], places[:cut]))
            left = ranks[cut:], places[cut:]
            rest += [(left, source)] if len(left[0]) else _next(source)
        held = rest
        if len(taken) == 1:
            yield taken[0]
            continue
        ranks, places = joined(taken)
        order = ranks.argsort(kind="stable")  # it finds the sorted stretches: ten times as fast
        yield ranks[order], places[order]
    for block, source in held:
        yield block
        yield from (each for each in source if len(each[0]))


def joined(held: Sequence[Block[Ranks]]) -> Block[Ranks]:
    """Return entries as one block."""
    if len(held) == 1:
        return held[0]
    return joined_ranks([ranks for ranks, _ in held]), np.concatenate([p for _, p in held])


def sorted_entries(codes: np.ndarray, places: np.ndarray) -> Entries:
    """Return entries in the order of their codes.

    To sort numbers takes a fifth of the time of `argsort`, so each is a code and its index; of
    codes that are spread over all 64 bits their high bits, which puts nearly all in order.
    """
    if len(codes) < 2 or (codes[1:] >= codes[:-1]).all():
        return codes, places
    above = codes.view(np.uint64) - codes.min().view(np.uint64)
    bits = len(codes).bit_length()
    lost = max(0, int(above.max()).bit_length() + bits - 64)
    packed = (above >> np.uint64(lost)) << np.uint64(bits)
    packed |= np.arange(len(codes), dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << bits) - 1)).view(np.int64)
    ordered = codes[order]
    if lost and (ordered[1:] < ordered[:-1]).any():
        again = np.argsort(ordered, kind="stable")
        ordered, order = ordered[again], order[again]
    return ordered, places[order]


def merged_pieces(pieces: Sequence[Block[Ranks]]) -> Iterator[Block[Ranks]]:
    """Yield the entries of sorted pieces, sorted."""
    return merged([*map(blocks_of, pieces)]) if len(pieces) > 1 else iter(pieces)


def blocks_of(piece: Block[Ranks]) -> Iterator[Block[Ranks]]:
    """Yield some sorted entries in the blocks that `merged` takes."""
    ranks, places = piece
    for at in range(0, len(ranks), _BLOCK_ROWS):
        yield ranks[at : at + _BLOCK_ROWS], places[at : at + _BLOCK_ROWS]


def _next(source: Iterator[Block[Ranks]]) -> list[tuple[Block[Ranks], Iterator[Block[Ranks]]]]:
    found = next((block for block in source if len(block[0])), None)
    return [] if found is None else [(found, source)]


def _check(page: memoryview, path: str, foot: Foot, number: int) -> None:
    at, rows = number * PAGE_BYTES, foot.rows_of(number)
    if len(page) != PAGE_BYTES:
        raise CorruptionError(path, at, f"the page has {len(page)} of {PAGE_BYTES} bytes")
    checksum, count = _HEAD.unpack_from(page)
    if checksum != _sum_of(page, foot.salt + number):
        raise CorruptionError(path, at, "the checksum of the page does not match")
    if count != rows:
        raise CorruptionError(path, at, f"the page has {count} entries, the foot says {rows}")


def _sum_of(page: memoryview, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(page[8:], seed % _WRAP)
