"""Visibility: the visible row versions above base at a seq, and the visible rows of base.

    places   the row versions of all levels, numbered from the oldest on (`Part` after `Part`)
    live     bits by place: the newest version of its key, and no delete
    runs     the sorted codes of the live places: a newer version finds the one that it ends
    loads    the first places of attached loads, and what finds their rows: their key runs
    visible  bits by position in base: the rows that are not hidden, and whose key no level writes

An ended version never becomes visible again, so the visibility at a later seq follows from this one
and the rows since. A scan next to a writer therefore pays only for new rows, not for all un-merged
rows. All values are immutable; the cache holds the newest ones of a table for the next reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import NOTHING, Chunk, Run, codes_of, keys_at, merge_runs, tier
from siltstone.engine.levels.load_keys import LoadKeys, LoadSlice, Part
from siltstone.formats.bits import NO_ROWS, Bits
from siltstone.formats.keys import (
    Codes,
    KeyCodec,
    KeyColumns,
    KeysAt,
    in_blocks,
    in_order,
    newest_rows,
    same_keys,
)
from siltstone.formats.log.group import UPSERT

KEPT_MAX = 3


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """See the module. `rows` has the origin and the number of rows of each of its parts."""

    seq: int
    base: Base | None
    rows: tuple[tuple[object, int], ...]
    live: Bits
    visible: Bits
    runs: tuple[Run, ...]
    loads: tuple[tuple[int, LoadKeys], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        sorted_ = (*self.runs, *(keys for _, load in self.loads for keys in load.by_key))
        return self.live.nbytes + self.visible.nbytes + sum(each.nbytes for each in sorted_)

    def is_before(self, base: Base | None, parts: Sequence[Part]) -> bool:
        """Return whether `parts` over `base` are the parts of this one, perhaps with more rows."""
        if self.base is not base or len(self.rows) > len(parts):
            return False
        pairs = list(zip(self.rows, parts, strict=False))
        whole = all(o == part.origin and n == part.rows for (o, n), part in pairs[:-1])
        return whole and all(o == part.origin and n <= part.rows for (o, n), part in pairs[-1:])

    def at(self, seq: int, codec: KeyCodec, parts: Sequence[Part]) -> Visibility:
        """Return the visibility of `parts`, the rows up to `seq`; `is_before` must hold."""
        found = self
        for added in _added(self.rows, parts):
            if isinstance(added, LoadSlice):
                found = found.with_load(codec, parts, added)
            else:
                found = found.with_chunks(codec, parts, added)
        rows = tuple((part.origin, part.rows) for part in parts)
        return replace(found, seq=seq, rows=rows)

    def find(self, codes: Codes) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of an index into `codes` (ascending) and a live place of that code.

        Hashed codes are a filter: compare the keys.
        """
        found = [run.find(codes) for run in self.runs]
        for first, load in self.loads:
            needles, positions = load.runs.find_many(codes)
            found.append((needles, positions + first))
        needles = np.concatenate([NOTHING, *(needle for needle, _ in found)])
        places = np.concatenate([NOTHING, *(place for _, place in found)])
        alive = self.live.has(places)
        return needles[alive], places[alive]

    def with_load(self, codec: KeyCodec, parts: Sequence[Part], added: LoadSlice) -> Visibility:
        """Return the visibility with the rows of a load on top: each key once, all upserted.

        It holds a block of their keys at a time.
        """
        live, visible = self.live, self.visible
        for codes, keys in added.keys.blocks():
            ended, is_fresh = self._ended(codec, parts, codes, keys)
            live = live.without(ended)
            if self.base is not None:
                visible = visible.without(self._shadowed(codes, keys, is_fresh))
        loads = (*self.loads, (live.length, added.keys))
        live = live.followed_by(np.ones(added.rows, bool))
        return replace(self, live=live, visible=visible, loads=loads)

    def _shadowed(self, codes: Codes, keys: KeysAt, is_fresh: np.ndarray) -> np.ndarray:
        """Return the positions in base of those keys that ended no version above it."""
        assert self.base is not None
        fresh = np.flatnonzero(is_fresh)
        return self.base.positions(codes[fresh], lambda chosen: keys(fresh[chosen]))

    def with_chunks(
        self, codec: KeyCodec, parts: Sequence[Part], added: Sequence[Chunk]
    ) -> Visibility:
        """Return the visibility with the row versions of some chunks on top."""
        codes, ops = codes_of(added), np.concatenate([chunk.ops for chunk in added])
        newest = newest_rows(codec, codes, lambda at: keys_at(added, at))
        written = codes[newest]

        def keys(chosen: np.ndarray) -> KeyColumns:
            return keys_at(added, newest[chosen])

        ended, is_fresh = self._ended(codec, parts, written, keys)
        upserted = newest[ops[newest] == UPSERT]
        lives = np.zeros(len(codes), bool)
        lives[upserted] = True
        live = self.live.without(ended).followed_by(lives)
        run = Run(codes[upserted], upserted + self.live.length)
        visible = self.visible
        if self.base is not None:
            visible = visible.without(self._shadowed(written, keys, is_fresh))
        runs = _merged_runs((*self.runs, run), live)
        return replace(self, live=live, visible=visible, runs=runs)

    def _ended(
        self, codec: KeyCodec, parts: Sequence[Part], written: Codes, keys: KeysAt
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the places that newer versions of their keys end, and which keys end none.

        Equal codes are verified. A key that ends a live version has hidden its row of base before.
        """
        is_fresh = np.ones(len(written), bool)
        needles, places = self.find(written)
        if not codec.exact and len(places):
            same = np.concatenate(
                [
                    same_keys(keys(needles[at]), keys_of_places(parts, places[at]))
                    for at in in_blocks(len(places))
                ]
            )
            needles, places = needles[same], places[same]
        is_fresh[needles] = False
        return places, is_fresh


def nothing_over(base: Base | None) -> Visibility:
    """Return the visibility without a level above `base`."""
    return Visibility(0, base, (), NO_ROWS, NO_ROWS if base is None else base.live, ())


class VisibilityCache:
    """The newest livenesses of one table, for the next reader. Replaced in one assignment.

    It keeps more than one, because readers come in any order and may be at slightly older seqs.
    """

    __slots__ = ("__weakref__", "_kept")

    def __init__(self) -> None:
        self._kept: tuple[Visibility, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes in memory; shared parts count once."""
        kept = self._kept
        runs = {id(run): run.nbytes for one in kept for run in one.runs}
        runs |= {id(k): k.nbytes for one in kept for _, load in one.loads for k in load.by_key}
        bits = {id(b): b.nbytes for one in kept for b in (one.live, one.visible)}
        return sum(runs.values()) + sum(bits.values())

    def at(
        self,
        seq: int,
        codec: KeyCodec,
        base: Base | None,
        parts: Sequence[Part],
        *,
        bytes_left: Callable[[], int],
    ) -> Visibility:
        """Return the visibility of `parts` over `base`, the rows up to `seq`; cache it if small."""
        kept = self._kept
        begun = next((one for one in kept if one.is_before(base, parts)), None)
        found = (begun or nothing_over(base)).at(seq, codec, parts)
        if not kept or seq >= kept[0].seq:
            others = tuple(one for one in kept if one.base is base and begun is not None)
            fits = found.nbytes <= bytes_left() + self.nbytes
            self._kept = (found, *others[: KEPT_MAX - 1]) if fits else ()
        return found


def _added(
    rows: Sequence[tuple[object, int]], parts: Sequence[Part]
) -> Iterator[list[Chunk] | LoadSlice]:
    """Yield what `parts` have beyond `rows`: loads, and between them chunks numbered from 0."""
    added: list[Chunk] = []
    start = 0
    for index, part in enumerate(parts):
        if isinstance(part, LoadSlice):
            if index < len(rows):
                continue
            if added:
                yield added
            yield part
            added, start = [], 0
            continue
        for chunk in part.behind(rows[index][1] if index < len(rows) else 0):
            added.append(chunk.moved(start))
            start += len(chunk.codes)
    if added:
        yield added


def keys_of_places(parts: Sequence[Part], places: np.ndarray) -> KeyColumns:
    """Return the keys of the rows at some places, one at least."""
    found, order = list[KeyColumns](), list[np.ndarray]()
    start = 0
    for part in parts:
        here = np.flatnonzero((places >= start) & (places < start + part.rows))
        if len(here):
            at = places[here] - start
            order.append(here)
            found.append(
                part.keys.keys_at(at) if isinstance(part, LoadSlice) else keys_at(part.chunks, at)
            )
        start += part.rows
    return in_order(found, np.concatenate(order))


def _merged_runs(runs: tuple[Run, ...], live: Bits) -> tuple[Run, ...]:
    """Merge runs of like size, without the places that no longer live: few runs to ask."""
    while (window := tier(runs)) is not None:
        first, last = window
        merged = merge_runs(runs[first:last])
        kept = live.has(merged.ordinals)
        runs = (*runs[:first], Run(merged.codes[kept], merged.ordinals[kept]), *runs[last:])
    return runs
