"""Row places: where the visible rows of a key range are, in the order of their keys.

    base       stretches of its key runs, of which the visible positions count; where codes are
               hashes, of its ordered runs
    levels     stretches of the sorted codes over it (`visibility`: sorted once, at the first read
               of a view, and brought up to later seqs), and of the key runs of loads; where codes
               are hashes, of their sorted keys (`level_order`)

All are merged block by block: of each a page or two is read for a few rows. A key has one visible
row, so a code comes once. A place is a position in base, or the complement (~) of a place above it,
which is negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import SortedKeys
from siltstone.engine.levels.visibility import Visibility
from siltstone.engine.order.key_beginning import ALL_BYTES, BytesBetween
from siltstone.engine.order.key_range import KeyRange
from siltstone.formats.bits import Bits
from siltstone.formats.key_run import Block, blocks_of, merged
from siltstone.formats.keys import KeyCodec
from siltstone.storage.tables.keys.key_places import Stretch

Places: TypeAlias = Block[Any]
"""Codes (int64) or keys (`ByteKeys`), in order, and the places (int64) of their rows."""


def places_of(
    wanted: KeyRange,
    codec: KeyCodec,
    base: Base | None,
    visibility: Visibility,
    levels: Sequence[tuple[int, SortedKeys]],
    within: BytesBetween = ALL_BYTES,
) -> Iterator[Places]:
    """Yield the places of the visible rows of a range, in its order.

    `base` has an order of its keys, if it is there (`Base.has_order`). `levels` are those over it,
    if codes are hashes (`sorted_levels`); then only keys `within` some bytes.
    """
    descending = wanted.descending
    if not codec.exact:
        first, end = wanted.bytes_stretch(codec)
        ends = [each for each in (end, within[1]) if each is not None]
        stretch = max(first, within[0]), min(ends, default=None)
        found = _sources_of_keys(*stretch, base, visibility, levels, descending)
        yield from _merged(found, descending=descending)
        return
    for first, last in wanted.stretches(codec):
        found = _sources(first, last, base, visibility, descending=descending)
        yield from _merged(found, descending=descending)


def _merged(sources: list[Iterator[Places]], *, descending: bool) -> Iterator[Places]:
    if not descending:
        yield from merged(sources)
        return
    for ranks, places in merged([_turned(source) for source in sources]):
        yield ~ranks, places


def _turned(source: Iterator[Places]) -> Iterator[Places]:
    """Yield the complements of descending codes, which ascend."""
    for codes, places in source:
        yield ~codes, places


def _sources(
    first: int, last: int, base: Base | None, visibility: Visibility, *, descending: bool
) -> list[Iterator[Places]]:
    found: list[Iterator[Places]] = []
    if base is not None:
        stretches = base.stretches(first, last, descending=descending)
        found += [_visible(each, visibility.visible) for each in stretches]
    for run in visibility.runs:
        some = run.between(first, last, descending=descending)
        if len(some[0]):
            found.append(_above(blocks_of(some), visibility.live, 0))
    for start, load in visibility.loads:
        stretches = load.runs.stretches(first, last, descending=descending)
        found += [_above(each, visibility.live, start) for each in stretches]
    return found


def _sources_of_keys(
    first: bytes,
    end: bytes | None,
    base: Base | None,
    visibility: Visibility,
    levels: Sequence[tuple[int, SortedKeys]],
    descending: bool,
) -> list[Iterator[Places]]:
    found: list[Iterator[Places]] = []
    if base is not None:
        stretches = base.stretches_of_keys(first, end, descending=descending)
        found += [_visible(each, visibility.visible) for each in stretches]
    for start, level in levels:
        some = level.stretch(first, end, descending=descending)
        found.append(_above(some, visibility.live, start))
    return found


def _visible(stretch: Iterator[Stretch[Any]], visible: Bits) -> Iterator[Places]:
    for codes, positions in stretch:
        kept = visible.has(positions)
        yield (codes, positions) if kept.all() else (codes[kept], positions[kept])


def _above(stretch: Iterator[Places], live: Bits, start: int) -> Iterator[Places]:
    for codes, numbers in stretch:
        kept = live.has(numbers + start)
        yield codes[kept], ~(numbers[kept] + start)
