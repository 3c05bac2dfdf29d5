"""Thinning: which records within the retention keep their files; pure functions of records.

    FLOOR ────────── kept ───────────── kept ──── kept ── recent ── newest
           thinned           thinned         thinned
           a seq here is read by base as of the record before it, and history from there

A record costs what its bases do not share with their neighbours. Without it, a read of its seqs
reads more history. So between two kept records there is never more history of a table than twice
what its base takes, or than half of the history that was written after them, whichever is more: the
further back, the rarer. There is also never more time than a third of the retention, or FLOOR could
not follow the retention.

Kept in any case: the oldest and the two newest records; recent ones, by which other processes may
still read without a lease; those that serve tags; and those that hold a load straight into base,
which history does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import numpy as np
import numpy.typing as npt

from siltstone.formats.manifest import Record
from siltstone.storage.manifest.floor import Floor


class Bounds(msgspec.Struct, frozen=True):
    """How much may lie between two kept records, and what is recent.

    Args:
        gap_bytes: Bytes of history of a table that are always little enough.
        gap_bases: A gap may be so many times as large as the table's base.
        gap_share: A gap may be this share of the history that was written after it.
        gaps_of_retention: A gap is at most the retention divided by this.
        recent_s: Records are recent for this time...
        recent_bytes: ...as long as they keep at most so much of bases that were replaced since...
        recent_share: ...or this share of the bases, if that is more.
    """

    gap_bytes: int = 32 << 20
    gap_bases: float = 2.0
    gap_share: float = 0.5
    gaps_of_retention: int = 3
    recent_s: float = 600.0
    recent_bytes: int = 64 << 20
    recent_share: float = 0.25


BOUNDS = Bounds()


class Extent(msgspec.Struct, frozen=True):
    """A file of history: its rows have seqs in [low, high], its size is in bytes."""

    low: int
    high: int
    nbytes: int


class TableSize(msgspec.Struct, frozen=True):
    """The bytes of a table's newest base, the files of its history, and the seqs of its loads."""

    base_bytes: int
    history: tuple[Extent, ...]
    loads: tuple[int, ...] = ()


Sizes = Mapping[int, TableSize]
"""By incarnation."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def floor_over(
    records: Sequence[Record],
    sizes: Sizes,
    fixed: AbstractSet[int],
    *,
    retention_s: float,
    bounds: Bounds = BOUNDS,
) -> Floor:
    """Return the floor that keeps of `records` (ascending, all kept so far) those that are needed.

    Args:
        records: From the oldest to keep on.
        sizes: Of the tables in the newest record.
        fixed: Numbers of records to keep anyway.
        retention_s: How long the past stays readable.
        bounds: What may lie between two kept records.
    """
    gaps = _Gaps(records, sizes, int(retention_s * 1e6 / bounds.gaps_of_retention), bounds)
    last = len(records) - 1
    kept = [0]
    for index in range(1, last + 1):
        is_fixed = index >= last - 1 or records[index].number in fixed
        if is_fixed or not gaps.may_be(kept[-1], index + 1):
            kept.append(index)
    return Floor.of((records[index].number for index in kept), records[-1].number)


class _Gaps:
    """Says what lies between any two of some records; one thread."""

    def __init__(
        self, records: Sequence[Record], sizes: Sizes, gap_us: int, bounds: Bounds
    ) -> None:
        self._records, self._gap_us, self._share = records, gap_us, bounds.gap_share
        tables = sorted(sizes)
        merged = _merged(records, tables)
        self._merged = merged
        above = [
            _above(sizes[table].history, row) for table, row in zip(tables, merged, strict=True)
        ]
        self._above: Floats = np.array(above).reshape(len(tables), len(records))
        bases = [sizes[table].base_bytes for table in tables]
        least = [max(bounds.gap_bases * nbytes, bounds.gap_bytes) for nbytes in bases]
        self._least: Floats = np.array(least, np.float64)
        loads = [(i, seq) for i, table in enumerate(tables) for seq in sizes[table].loads]
        self._loads: Ints = np.array(loads, np.int64).reshape(-1, 2)

    def may_be(self, older: int, newer: int) -> bool:
        """Return whether no record needs to be kept between these two."""
        first, last = self._records[older], self._records[newer]
        if last.time_us - first.time_us > self._gap_us or self._has_load(older, newer):
            return False
        after = self._above[:, newer]
        between = self._above[:, older] - after
        return bool(np.all(between <= np.maximum(self._least, self._share * after)))

    def _has_load(self, older: int, newer: int) -> bool:
        """Say whether a load lies between them that neither has in its base."""
        if not len(self._loads):
            return False
        tables, seqs = self._loads.T
        is_lost = (seqs > self._records[older].flushed_seq) & (seqs < self._merged[tables, newer])
        return bool(is_lost.any())


def _merged(records: Sequence[Record], tables: Sequence[int]) -> Ints:
    """Return the merged_seq of each table (first axis) in each record; 0: it has no such table."""
    found = np.zeros((len(tables), len(records)), np.int64)
    place = {table: index for index, table in enumerate(tables)}
    for column, record in enumerate(records):
        for storage in record.keyed:
            if storage.incarnation in place:
                found[place[storage.incarnation], column] = storage.merged_seq
    return found


def _above(history: Sequence[Extent], seqs: Ints) -> Floats:
    """Return about how many bytes of history lie above each seq."""
    total = np.zeros(len(seqs))
    for extent in history:
        share = (extent.high - seqs) / (extent.high - extent.low + 1)
        total += extent.nbytes * np.clip(share, 0.0, 1.0)
    return total


def recent(
    records: Sequence[Record],
    files_of: Callable[[Record], Mapping[str, int]],
    *,
    now_us: int,
    bounds: Bounds = BOUNDS,
) -> AbstractSet[int]:
    """Return the numbers of the recent ones of `records` (ascending).

    `files_of`: returns the files of a record's bases, with their bytes; asked only as needed.
    """
    newest = records[-1]
    seen = dict(files_of(newest))
    left = max(bounds.recent_bytes, bounds.recent_share * sum(seen.values()))
    found = {newest.number}
    for record in reversed(records[:-1]):
        if record.time_us < now_us - bounds.recent_s * 1e6:
            break
        fresh = {path: size for path, size in files_of(record).items() if path not in seen}
        left -= sum(fresh.values())
        if left < 0:
            break
        seen |= fresh
        found.add(record.number)
    return found
