"""Between two kept records lies little, few are kept, and what only a record has stays with it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as hs

from siltstone.engine.read.past_record import PastRecord, PastTable
from siltstone.formats.manifest import Incarnation, KeyedStorage, Pin, Record, Version
from siltstone.maintenance.thinning import Bounds, Extent, TableSize, floor_over, recent

MINUTE_US = 60_000_000
BASE = 1_000
BOUNDS = Bounds(gap_bytes=10, gap_bases=1, gaps_of_retention=8)


def record(number: int, merged: dict[int, int], *, flushed: int = 0, time_us: int = 0) -> Record:
    keyed = tuple(KeyedStorage(table, f"t{table}", merged_seq=seq) for table, seq in merged.items())
    seq = max(flushed, *merged.values()) if merged else flushed
    return Record("s", number, 1, "w", time_us, last_seq=seq, flushed_seq=seq, keyed=keyed)


def folds(count: int, *, every_us: int = 1, tables: tuple[int, ...] = (1,)) -> list[Record]:
    """Return records of which each has folded 100 more seqs of the tables."""
    return [
        record(n, dict.fromkeys(tables, 100 * n), time_us=n * every_us) for n in range(1, count + 1)
    ]


def sizes(count: int, *, base: int = BASE, loads: tuple[int, ...] = ()) -> dict[int, TableSize]:
    """Return the sizes of a table with one byte of history for each seq."""
    extents = tuple(Extent(100 * n + 1, 100 * n + 100, 100) for n in range(count))
    return {1: TableSize(base, extents, loads)}


def kept(records, found, fixed=frozenset(), *, retention_s=3600.0, bounds=BOUNDS) -> list[int]:
    floor = floor_over(records, found, fixed, retention_s=retention_s, bounds=bounds)
    return [each.number for each in records if floor.keeps(each.number)]


@given(hs.integers(3, 400), hs.integers(0, 5_000))
def test_no_gap_has_more_history_than_base_is_large_or_half_of_what_came_after(count, base):
    numbers = kept(folds(count), sizes(count, base=base))
    assert numbers[0] == 1
    assert numbers[-2:] == [count - 1, count]
    for older, newer in itertools.pairwise(numbers):
        if newer > older + 1:
            assert 100 * (newer - older) <= max(base, 10, 0.5 * 100 * (count - newer))


@pytest.mark.parametrize("count", [100, 1_000, 4_000])
def test_the_number_of_kept_records_grows_like_the_logarithm_of_the_history(count):
    numbers = kept(folds(count), sizes(count))
    assert len(numbers) <= 2 + 2 * math.log(100 * count / BASE) / math.log(1.5) + 4


def test_what_was_thinned_once_stays_thinned_however_often_it_is_done():
    """Records are added one by one, as they are, and each time all are thinned."""
    records: list[Record] = []
    for each in folds(300):
        records.append(each)
        numbers = set(kept(records, sizes(300)))
        records = [record for record in records if record.number in numbers]
    assert len(records) <= 2 + 2 * math.log(300 * 100 / BASE) / math.log(1.5) + 4


def test_no_gap_is_longer_than_a_part_of_the_retention():
    numbers = kept(folds(100, every_us=MINUTE_US), sizes(100, base=1 << 30), retention_s=3600)
    assert max(b - a for a, b in itertools.pairwise(numbers)) == 7  # minutes


def test_a_small_table_is_not_kept_often_because_another_one_is_large():
    found = sizes(50) | {2: TableSize(1, ())}
    assert kept(folds(50, tables=(1, 2)), found) == kept(folds(50), sizes(50))


def test_each_table_bounds_the_gaps():
    found = {1: TableSize(1 << 30, sizes(50)[1].history), 2: sizes(50)[1]}
    assert kept(folds(50, tables=(1, 2)), found) == kept(folds(50), sizes(50))


def test_a_record_with_a_load_in_base_stays_until_a_later_one_has_it_too():
    """Seqs 450..500 could not be read by record 4: history does not have the load."""
    records = [
        *(record(n, {1: 100 * n}) for n in range(1, 5)),
        record(5, {1: 450}, flushed=450),
        record(6, {1: 450}, flushed=600),
        *(record(n, {1: 100 * n}) for n in range(7, 12)),
    ]
    without = kept(records, sizes(12))
    assert not {5, 6} & set(without)
    found = kept(records, sizes(12, loads=(450,)))
    assert {5, 6} & set(found)


def test_a_load_that_is_older_than_all_kept_records_keeps_none():
    assert kept(folds(50), sizes(50, loads=(50,))) == kept(folds(50), sizes(50))


def test_the_first_record_that_has_a_load_in_base_stays_and_none_beside_it():
    merged = {1: 0, 2: 0, 3: 20, 4: 30, 5: 40, 6: 50}
    records = [record(n, {1: seq}, flushed=10 * (n - 1)) for n, seq in merged.items()]
    usual = Bounds(gap_bytes=1 << 40, gaps_of_retention=1)
    assert kept(records, {1: TableSize(1, ())}, bounds=usual) == [1, 5, 6]
    assert kept(records, {1: TableSize(1, (), (20,))}, bounds=usual) == [1, 3, 5, 6]


@given(
    hs.lists(hs.tuples(hs.integers(0, 4), hs.booleans()), min_size=4, max_size=14),
    hs.integers(1, 30),
)
def test_a_seq_that_some_record_serves_is_served_by_one_that_is_kept(steps, load):
    """As readers choose: over checkpoints and merges of a table with a load straight into base."""
    records, flushed, merged = list[Record](), 0, 0
    for number, (grown, is_merged) in enumerate(steps, 1):
        flushed += grown
        if merged < load <= flushed:
            merged = load  # the checkpoint after the load
        elif is_merged:
            merged = flushed
        records.append(record(number, {1: merged}, flushed=flushed))
    loads = (load,) if load <= flushed else ()
    pin = Pin(1, "t1/base/_siltstone/x/1.manifest", 1, "", 1, "")
    versions = tuple(Version(seq, pin) for seq in loads)
    table = PastTable(KeyedStorage(1, "t1", merged_seq=merged), Incarnation(0, 1, versions))
    usual = Bounds(gap_bytes=1 << 40, gaps_of_retention=1)
    numbers = kept(records, {1: TableSize(1, (), loads)}, bounds=usual)
    past = [PastRecord.of(each) for each in records]
    standing = [each for each in past if each.record.number in numbers]
    for seq in range(records[0].flushed_seq, flushed + 1):
        is_served = any(table.serving(past, lambda each: each, seq))
        assert any(table.serving(standing, lambda each: each, seq)) == is_served


def test_fixed_records_stay():
    assert set(kept(folds(50), sizes(50), {17, 23})) >= {17, 23}


def test_a_table_that_began_between_two_records_needs_none_of_them():
    records = [record(n, {1: 100 * n} if n > 20 else {}, flushed=100 * n) for n in range(1, 50)]
    assert 21 not in kept(records, sizes(1))


FILES = {1: {"a": 100, "b": 100}, 2: {"b": 100, "c": 10}, 3: {"b": 100, "c": 10}, 4: {"d": 100}}


@pytest.mark.parametrize(
    ("bounds", "numbers"),
    [
        (Bounds(recent_s=100, recent_bytes=110, recent_share=0), {2, 3, 4}),
        (Bounds(recent_s=100, recent_bytes=210, recent_share=0), {1, 2, 3, 4}),
        (Bounds(recent_s=100, recent_bytes=109, recent_share=0), {4}),
        (Bounds(recent_s=100, recent_bytes=0, recent_share=1.1), {2, 3, 4}),
        (Bounds(recent_s=1.5, recent_bytes=1_000), {3, 4}),
        (Bounds(recent_s=-1), {4}),
    ],
)
def test_recent_records_stay_while_they_keep_little_of_old_bases(bounds, numbers):
    records = [record(n, {}, time_us=n * 1_000_000) for n in FILES]

    def files_of(each: Record) -> dict[str, int]:
        return FILES[each.number]

    assert recent(records, files_of, now_us=4_000_000, bounds=bounds) == numbers
