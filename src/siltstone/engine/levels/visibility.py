"""Liveness: the visible row versions above base at a seq, and the visible rows of base.

    places   the row versions of all levels, numbered from the oldest on (`Part` after `Part`)
    live     bits by place: the newest version of its key, and no delete
    runs     the sorted codes of the live places: a newer version finds the one that it ends
    visible  bits by position in base: the rows that are not hidden, and whose key no level writes

An ended version never becomes visible again, so the visibility at a later seq follows from this one
and the rows since. A scan next to a writer therefore pays only for new rows, not for all un-merged
rows. All values are immutable; the cache holds the newest ones of a table for the next reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import (
    NOTHING,
    Chunk,
    Run,
    Slice,
    codes_of,
    keys_at,
    merge_runs,
    tier,
)
from siltstone.formats.bits import NO_ROWS, Bits
from siltstone.formats.group import UPSERT
from siltstone.formats.keys import Codes, Key, KeyCodec, newest_rows

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

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.live.nbytes + self.visible.nbytes + sum(run.nbytes for run in self.runs)

    def is_before(self, base: Base | None, parts: Sequence[Slice]) -> bool:
        """Return whether `parts` over `base` are the parts of this one, perhaps with more rows."""
        if self.base is not base or len(self.rows) > len(parts):
            return False
        pairs = list(zip(self.rows, parts, strict=False))
        whole = all(o is part.origin and n == part.rows for (o, n), part in pairs[:-1])
        return whole and all(o is part.origin and n <= part.rows for (o, n), part in pairs[-1:])

    def at(self, seq: int, codec: KeyCodec, parts: Sequence[Slice]) -> Visibility:
        """Return the visibility of `parts`, the rows up to `seq`; `is_before` must hold."""
        added = _added(self.rows, parts)
        rows = tuple((part.origin, part.rows) for part in parts)
        if not added:
            return Visibility(seq, self.base, rows, self.live, self.visible, self.runs)
        codes, ops = codes_of(added), np.concatenate([chunk.ops for chunk in added])
        newest = newest_rows(codec, codes, lambda at: keys_at(added, at))
        written = codes[newest]

        def keys(chosen: np.ndarray) -> list[Key]:
            return keys_at(added, newest[chosen])

        ended, is_fresh = self._ended(codec, parts, written, keys)
        upserted = newest[ops[newest] == UPSERT]
        lives = np.zeros(len(codes), bool)
        lives[upserted] = True
        live = self.live.without(ended).followed_by(lives)
        run = Run(codes[upserted], upserted + self.live.length)
        visible = self.visible
        if self.base is not None:
            fresh = np.flatnonzero(is_fresh)
            found = self.base.positions(written[fresh], lambda chosen: keys(fresh[chosen]))
            visible = visible.without(found)
        return Visibility(
            seq, self.base, rows, live, visible, _merged_runs((*self.runs, run), live)
        )

    def _ended(
        self,
        codec: KeyCodec,
        parts: Sequence[Slice],
        written: Codes,
        keys: Callable[[np.ndarray], list[Key]],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the places that newer versions of their keys end, and which keys end none.

        Equal codes are verified. A key that ends a live version has hidden its row of base before.
        """
        is_fresh = np.ones(len(written), bool)
        found = [run.find(written) for run in self.runs]
        needles = np.concatenate([needle for needle, _ in found] or [NOTHING])
        places = np.concatenate([place for _, place in found] or [NOTHING])
        alive = self.live.has(places)
        needles, places = needles[alive], places[alive]
        if not codec.exact and len(places):
            pairs = zip(keys(needles), _keys_of(parts, places), strict=True)
            same = np.array([a == b for a, b in pairs], bool)
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
        bits = {id(b): b.nbytes for one in kept for b in (one.live, one.visible)}
        return sum(runs.values()) + sum(bits.values())

    def at(
        self,
        seq: int,
        codec: KeyCodec,
        base: Base | None,
        parts: Sequence[Slice],
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


def _added(rows: Sequence[tuple[object, int]], parts: Sequence[Slice]) -> list[Chunk]:
    """Return what `parts` have beyond `rows`, as chunks numbered from 0."""
    added: list[Chunk] = []
    start = 0
    for index, part in enumerate(parts):
        for chunk in part.behind(rows[index][1] if index < len(rows) else 0):
            added.append(chunk.moved(start))
            start += len(chunk.codes)
    return added


def _keys_of(parts: Sequence[Slice], places: np.ndarray) -> list[Key]:
    chunks: list[Chunk] = []
    start = 0
    for part in parts:
        chunks += [chunk.moved(start + chunk.start) for chunk in part.chunks]
        start += part.rows
    return keys_at(chunks, places)


def _merged_runs(runs: tuple[Run, ...], live: Bits) -> tuple[Run, ...]:
    """Merge runs of like size, without the places that no longer live: few runs to ask."""
    while True:
        window = tier(runs)
        if window is None:
            return runs
        first, last = window
        merged = merge_runs(runs[first:last])
        kept = live.has(merged.ordinals)
        runs = (*runs[:first], Run(merged.codes[kept], merged.ordinals[kept]), *runs[last:])
