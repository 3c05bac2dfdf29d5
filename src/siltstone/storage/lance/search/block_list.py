"""Block lists: the rows that a search of Lance leaves out before it ranks, as Lance reads them.

Lance takes them by row id, whatever its parameter is called: where row ids are stable, addresses
are accepted and hide nothing. The form is that of Lance's own tree of row ids:

    u32 count of entries, then for each: u32 upper half of the ids, u32 length, a roaring bitmap of
    the lower halves in the portable form (no bytes at all would mean all rows)

To make a list of 200,000 ids takes 10 ms, so it is made of the one before: two readers of a base
differ by the rows that were written in between.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyroaring

from siltstone.formats.bits import Bits, all_of
from siltstone.storage.lance.files.row_addresses import RowIds

KEPT_MAX = 3
_WORD = struct.Struct("<I")
_HALF_BITS = 32
_HALF = (1 << _HALF_BITS) - 1


class BlockList(msgspec.Struct, frozen=True, eq=False):
    """The rows outside of `visible`: bitmaps of the lower halves of their ids, by the upper."""

    visible: Bits
    halves: Mapping[int, pyroaring.BitMap]
    data: bytes

    def at(self, visible: Bits, ids: RowIds) -> BlockList:
        """Return the list of another set of visible rows of the same version."""
        numbers = _different(self.visible, visible)
        shown = visible.has(numbers)
        halves = dict(self.halves)
        for upper, gone in _by_half(ids.at(numbers[shown])):
            halves[upper] = halves[upper] - gone
        for upper, more in _by_half(ids.at(numbers[~shown])):
            halves[upper] = halves[upper] | more if upper in halves else more
        halves = {upper: bitmap for upper, bitmap in halves.items() if bitmap}
        return BlockList(visible, halves, _encoded(halves))


class BlockLists:
    """The newest block lists of one version. Replaced in one assignment, so it needs no lock."""

    def __init__(self, rows: int, ids: Callable[[], RowIds]) -> None:
        """Take the number of positions, and what reads their ids; it is asked once."""
        nothing = BlockList(all_of(rows), {}, _encoded({}))
        self._ids: Callable[[], RowIds] = functools.cache(ids)
        self._kept: tuple[BlockList, ...] = (nothing,)

    def without(self, visible: Bits, *, is_kept: bool) -> bytes | None:
        """Return the list of the rows outside of `visible`; None: there are none.

        `is_kept`: other searches will ask for this set, or for one like it.
        """
        kept = self._kept
        found = next((each for each in kept if each.visible is visible), None)
        if found is None:
            if visible.count == visible.length:
                return None
            found = kept[0].at(visible, self._ids())
            if is_kept:
                self._kept = (found, *kept[: KEPT_MAX - 1])
        return found.data if found.halves else None


def _different(one: Bits, other: Bits) -> np.ndarray:
    """Return the numbers that are in one of two sets of like length, ascending."""
    mixed: np.ndarray[Any, np.dtype[np.uint8]] = np.bitwise_xor(one.packed, other.packed)
    places = np.flatnonzero(mixed)
    bits = np.unpackbits(mixed[places, None], axis=1, bitorder="little")
    row, bit = np.nonzero(bits)
    return places[row] * 8 + bit


def _by_half(ids: np.ndarray) -> list[tuple[int, pyroaring.BitMap]]:
    """Return some ids as bitmaps of their lower halves, by the upper."""
    upper = ids >> _HALF_BITS
    return [(half, _bitmap(ids[upper == half] & _HALF)) for half in np.unique(upper).tolist()]


def _bitmap(numbers: np.ndarray) -> pyroaring.BitMap:
    # Of a NumPy array it takes six times as long.
    return pyroaring.BitMap(array("I", numbers.astype(np.uint32).tobytes()))


def _encoded(halves: Mapping[int, pyroaring.BitMap]) -> bytes:
    pieces = [_WORD.pack(len(halves))]
    for upper in sorted(halves):
        data = halves[upper].serialize()
        pieces += [_WORD.pack(upper), _WORD.pack(len(data)), data]
    return b"".join(pieces)
