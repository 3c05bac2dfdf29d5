"""Key places: where the key runs of a pin say that rows are.

A run says which parts it covers; no part is ever changed, so what it says stays true. Parts that no
run covers are the reader's to search. A match may be of a part that is gone, or of a hidden row:
the row of the key, if there is one, is then another match, perhaps in an older run. So the order of
runs decides nothing.

    key runs        find rows by the codes of their keys, and give exact codes in order
    ordered runs    give the keys themselves in order, where codes are hashes
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import xxhash

from siltstone.formats.key_run import OFFSET_BITS, OFFSET_MASK, Block, Entries, merged
from siltstone.formats.keys import Codes, KeyCodec
from siltstone.formats.order.key_bytes import ByteKeys, Ranks, descents
from siltstone.storage.tables.keys.key_runs import OpenRun
from siltstone.storage.tables.keys.ordered_runs import OpenOrdered
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import Span

_NONE = np.zeros(0, np.int64)
R = TypeVar("R", OpenRun, OpenOrdered)

Stretch: TypeAlias = Block[Ranks]
"""Codes or keys in order, and the positions (int64) of their rows."""
AnyRun: TypeAlias = OpenRun | OpenOrdered


@dataclass(frozen=True, slots=True)
class Serving(Generic[R]):
    """A run, and where the parts start for which this pin asks it."""

    run: R
    starts: dict[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether it is asked for all parts that the run covers."""
        return len(self.starts) == len(self.run.foot.parts)


class Covering(Generic[R]):
    """The runs of one kind, each with the parts for which a pin asks it. Immutable."""

    def __init__(self, table: PinnedTable, runs: Iterable[R]) -> None:
        numbers = [part.number for part in table.part_ids]
        left = dict(zip(numbers, table.spans, strict=True))
        serving: list[Serving[R]] = []
        for run in reversed([*runs]):
            mine = {part: left.pop(part)[0] for part in run.foot.parts if part in left}
            serving.append(Serving(run, mine))
        self.newest_first: Sequence[Serving[R]] = tuple(serving)
        self.uncovered: dict[int, Span] = {n: span for n, span in left.items() if span[0] < span[1]}
        """The parts with rows that no run covers, by their numbers."""


class PinnedKeys:
    """The runs of one pin. Immutable; threads may share it."""

    def __init__(self, table: PinnedTable, runs: Iterable[AnyRun]) -> None:
        self._table = table
        self._numbers = [part.number for part in table.part_ids]
        self._starts = [first for first, _ in table.spans]
        self._start_of = dict(zip(self._numbers, self._starts, strict=True))
        known = [*runs]
        self.by_code = Covering(table, [run for run in known if isinstance(run, OpenRun)])
        """Its key runs."""
        self.newest_first, self.uncovered = self.by_code.newest_first, self.by_code.uncovered
        self.in_order = Covering(table, [run for run in known if isinstance(run, OpenOrdered)])
        """Its ordered runs: none where codes are exact."""

    def place_of(self, position: int) -> int:
        """Return the place of the row at a position: what `position_of` knows in later pins."""
        at = bisect_right(self._starts, position) - 1
        return self._numbers[at] << OFFSET_BITS | position - self._starts[at]

    def position_of(self, place: int) -> int | None:
        """Return the position of a place of this or an earlier pin; None if its part is gone."""
        start = self._start_of.get(place >> OFFSET_BITS)
        return None if start is None else start + (place & OFFSET_MASK)

    def find(self, code: int) -> Iterator[int]:
        """Yield the positions of the matches of a code, hidden rows among them."""
        for each in self.newest_first:
            starts = each.starts
            for place in each.run.find(code):
                start = starts.get(place >> OFFSET_BITS)
                if start is not None:
                    yield start + (place & OFFSET_MASK)

    def find_many(self, wanted: Codes) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of an index into `wanted` (ascending) and a position.

        Hashed codes are a filter: compare the keys.
        """
        needles_found, positions_found = [_NONE], [_NONE]
        for each in self.newest_first:
            needles, places = each.run.find_many(wanted)
            kept, positions = _positions(each.starts, places)
            needles_found.append(needles[kept])
            positions_found.append(positions)
        return np.concatenate(needles_found), np.concatenate(positions_found)

    def living(self, serving: Serving[Any]) -> Iterator[Block[Any]]:
        """Yield the entries of a run whose rows live."""
        if serving.is_whole and not self._table.pin.hidden:
            yield from serving.run.entries()  # all of them, so no place is looked at
            return
        for codes, places in serving.run.entries():
            kept, positions = _positions(serving.starts, places)
            if self._table.pin.hidden:
                kept[kept] = self._table.live.has(positions)
            yield (codes, places) if kept.all() else (codes[kept], places[kept])

    def stretches(self, first: int, last: int, *, descending: bool) -> list[Iterator[Stretch[Any]]]:
        """Return of each run the codes from `first` to `last`, in order, and their positions.

        Hidden rows are among them. See `OpenRun.stretch`.
        """
        return [
            self._stretch(each, each.run.stretch(first, last, descending=descending))
            for each in self.newest_first
        ]

    def stretches_of_keys(
        self, first: bytes, end: bytes | None, *, descending: bool
    ) -> list[Iterator[Stretch[Any]]]:
        """Return of each ordered run the keys from `first` to below `end`, and their positions.

        Hidden rows are among them. See `OpenOrdered.stretch`.
        """
        return [
            self._stretch(each, each.run.stretch(first, end, descending=descending))
            for each in self.in_order.newest_first
        ]

    @staticmethod
    def _stretch(serving: Serving[Any], entries: Iterator[Block[Any]]) -> Iterator[Stretch[Any]]:
        for ranks, places in entries:
            kept, positions = _positions(serving.starts, places)
            yield ranks if len(positions) == len(ranks) else ranks[kept], positions

    def ordered(self) -> Iterator[Entries]:
        """Yield the entries of all rows that the runs cover, ascending by code.

        The pin hides no row. It holds about two blocks of each run.
        """
        return merged([self.living(each) for each in self.newest_first])

    def positions_of(self, places: np.ndarray) -> np.ndarray:
        """Return the positions of places that `ordered` yielded."""
        return _positions(self._start_of, places.view(np.uint64))[1]

    @property
    def is_whole(self) -> bool:
        """Whether the runs find every row of the pin."""
        return bool(self.newest_first) and not self.uncovered and not self._table.pin.hidden

    def wrong_entries(self, serving: Serving[Any], codec: KeyCodec) -> tuple[int, int]:
        """Return how many living rows of its parts a run lacks, and how many entries are wrong.

        Wrong are those of other rows, of a row that has one already, and out of order. It reads the
        keys of the parts. Keys in order are compared by hashes of 64 bits.
        """
        codes_of = _hashes if isinstance(serving.run, OpenOrdered) else None
        codes, is_of_it, wanted = self._codes(serving, codec, codes_of)
        has, wrong, last = np.zeros(len(codes), bool), 0, None
        for ranks, places in serving.run.entries():
            wrong += int(descents(ranks).sum()) + (last is not None and ranks[0] < last)
            last = ranks[-1]
            kept, positions = _positions(serving.starts, places)
            at = np.minimum(positions, len(codes) - 1)
            found = (ranks if codes_of is None else codes_of(ranks))[kept]
            is_right = (at == positions) & is_of_it[at] & (codes[at] == found) & ~has[at]
            right = np.unique(at[is_right])
            wrong += len(positions) - len(right)
            has[right] = True
        return int((wanted & ~has).sum()), wrong

    def _codes(
        self, serving: Serving[Any], codec: KeyCodec, codes_of: Callable[[ByteKeys], Codes] | None
    ) -> tuple[Codes, np.ndarray, np.ndarray]:
        """Return by position: the code, if a run covers the part; whether; and whether it lives.

        `codes_of`: what is compared instead of codes, of keys as bytes.
        """
        rows = self._table.spans[-1][1] if self._table.spans else 0
        codes, is_of_it = np.zeros(rows, np.int64), np.zeros(rows, bool)
        lives = np.zeros(rows, bool)
        spans = dict(zip(self._numbers, self._table.spans, strict=True))
        for span in (spans[part] for part in serving.starts):
            is_of_it[slice(*span)], lives[slice(*span)] = True, self._table.live.bools(*span)
            at = span[0]
            for batch in self._table.scan(list(codec.names), within=span, with_hidden=True):
                found = (
                    codec.codes(batch) if codes_of is None else codes_of(codec.ordered_of(batch))
                )
                codes[at : at + batch.num_rows] = found
                at += batch.num_rows
        return codes, is_of_it, lives


def _hashes(keys: ByteKeys) -> Codes:
    found: list[Any] = keys.array.to_pylist()
    hashes = map(xxhash.xxh3_64_intdigest, found)
    return np.fromiter(hashes, np.uint64, len(keys)).view(np.int64)


def _positions(of: Mapping[int, int], places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which places are `of` parts, whose starts it has, and their positions."""
    if not of:
        return np.zeros(len(places), bool), _NONE
    parts = np.array(sorted(of), np.int64)
    starts = np.array([of[part] for part in parts.tolist()], np.int64)
    numbers = (places >> np.uint64(OFFSET_BITS)).view(np.int64)
    at = np.minimum(parts.searchsorted(numbers), len(parts) - 1)
    kept = parts[at] == numbers
    offsets = (places & np.uint64(OFFSET_MASK)).view(np.int64)
    return kept, offsets[kept] + starts[at[kept]]
