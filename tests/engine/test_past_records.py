"""An old seq is read by a record that is old enough, whatever a vacuum takes while we look."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import msgspec
import pytest

from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.past_record import PastRecord, PastTable
from siltstone.formats.manifest import Incarnation, KeyedStorage, Pin, Record, Version
from siltstone.storage.manifest.manifest_store import ManifestStore, initialise
from tests.support.simulated_files import SimFiles

ROOT = Path("/data/shop")
TABLE, COUNT = 7, 6


class Listed(ManifestStore):
    """A chain whose listing is as old as its making: a vacuum takes records after it."""

    listing: tuple[int, ...] = ()

    def numbers(self, *, below_floor: bool = False) -> list[int]:
        return list(self.listing) or super().numbers(below_floor=below_floor)


def chain() -> Listed:
    """Return a chain in which record n has all up to seq 10 n, in base."""
    files = SimFiles()
    store = Listed(files, ROOT)
    record = initialise(files, ROOT)
    for number in range(2, COUNT + 1):

        def grown(base: Record, seq: int = 10 * number) -> Record:
            keyed = (KeyedStorage(TABLE, "t", merged_seq=seq),)
            return msgspec.structs.replace(base, keyed=keyed, last_seq=seq, flushed_seq=seq)

        record = store.publish(grown, base=record)
    store.listing = tuple(store.numbers())
    return store


def taken() -> list[tuple[int, ...]]:
    middle = range(2, COUNT)
    return [gone for count in range(3) for gone in itertools.combinations(middle, count)]


@pytest.mark.parametrize("gone", taken(), ids=str)
def test_no_record_above_a_seq_serves_it_when_a_vacuum_takes_records_meanwhile(gone):
    store = chain()
    for number in gone:
        store._files.unlink(store.path(number))
    records = PastRecords(store)
    table = PastTable(KeyedStorage(TABLE, "t", merged_seq=10 * COUNT), Incarnation(5, TABLE))
    for seq in range(20, 10 * COUNT + 5, 5):
        found = records.serving(table, seq)
        best = max(n for n in store.listing if n not in gone and (n == 1 or 10 * n <= seq))
        assert found is not None
        assert found[1].number == best
        assert found[0].merged_seq == (10 * best if best > 1 else 0)


def past_table(*, history_from: int = 0, loads: tuple[int, ...] = ()) -> PastTable:
    pin = Pin(1, "t/base/_siltstone/x/1.manifest", 1, "", 1, "")
    versions = tuple(Version(seq, pin) for seq in loads)
    storage = KeyedStorage(TABLE, "t", merged_seq=90, history_from=history_from)
    return PastTable(storage, Incarnation(5, TABLE, versions))


def past_records(*merged: int | None, flushed: Callable[[int], int]) -> list[PastRecord]:
    """Return records with a base of the table up to some seq; None: they do not have it."""
    records = []
    for number, seq in enumerate(merged, 1):
        keyed = () if seq is None else (KeyedStorage(TABLE, "t", merged_seq=seq),)
        upto = flushed(number)
        record = Record("s", number, 1, "w", 1, last_seq=upto, flushed_seq=upto, keyed=keyed)
        records.append(PastRecord.of(record))
    return records


def served(table: PastTable, records: list[PastRecord], seq: int) -> list[int]:
    """Return the numbers of the records that serve a seq, the best first."""
    return [past.record.number for past, _ in table.serving(records, lambda past: past, seq)]


def test_a_record_serves_what_base_and_history_above_it_have() -> None:
    records = past_records(None, 10, 20, 30, flushed=lambda number: 10 * number - 6)
    assert served(past_table(), records, 25) == [3, 2, 1]
    assert served(past_table(), records, 20) == [3, 2, 1]
    assert served(past_table(), records, 19) == [2, 1]
    assert served(past_table(), records, 5) == [1]


def test_no_record_serves_whose_base_is_below_where_history_begins() -> None:
    records = past_records(None, 10, 20, 30, flushed=lambda number: 10 * number - 6)
    assert served(past_table(history_from=20), records, 25) == [3]
    assert served(past_table(history_from=21), records, 25) == []
    assert served(past_table(history_from=10), records, 15) == [2]


def test_no_record_serves_from_before_a_load_straight_into_base() -> None:
    records = past_records(0, 0, 20, 30, flushed=lambda number: 10 * number)
    assert served(past_table(loads=(20,)), records, 19) == [2, 1]
    assert served(past_table(loads=(20,)), records, 20) == [3, 2]
    assert served(past_table(loads=(21,)), records, 25) == [3]


def test_no_record_serves_from_which_vacuum_trimmed_the_table() -> None:
    records = past_records(10, 20, None, None, flushed=lambda number: 10 * number)
    assert served(past_table(), records, 25) == [2, 1]


def test_all_records_are_asked_where_a_repair_let_a_base_begin_again() -> None:
    records = past_records(40, 50, 60, 70, 0, 80, flushed=lambda number: 10 * number + 40)
    assert served(past_table(), records, 30) == [5]
    assert served(past_table(), records, 45) == [1, 5]


@pytest.mark.parametrize(
    ("table", "begin"),
    [
        (past_table(), 10),
        (past_table(history_from=20), 20),
        (past_table(history_from=31), 90),
        (past_table(loads=(17,)), 20),
        (past_table(loads=(24,)), 10),
        (past_table(loads=(50,)), 90),
    ],
)
def test_from_where_on_a_table_is_served_without_a_gap(table: PastTable, begin: int) -> None:
    records = past_records(None, 10, 20, 30, flushed=lambda number: 10 * number - 6)[1:]
    assert reduce(lambda seq, past: table.begin(past, seq), records[::-1], 90) == begin
    assert all(served(table, records, seq) for seq in range(begin, 90))
    assert not served(table, records, begin - 1)


def test_a_copy_of_a_table_that_began_above_all_records_is_kept_from_the_first_seq_on() -> None:
    store = chain()
    table = PastTable(KeyedStorage(TABLE, "t", merged_seq=90), Incarnation(90, TABLE))
    assert PastRecords(store).begin([past_table()]) == 0
    store.is_copy = True
    assert PastRecords(store).begin([table]) == 0
    assert PastRecords(store).begin([table, past_table(loads=(70,))]) == 90


@pytest.mark.parametrize("gone", taken(), ids=str)
def test_no_lease_above_a_seq_is_said_to_keep_it(gone):
    store = chain()
    for number in gone:
        store._files.unlink(store.path(number))
    records = PastRecords(store)
    for seq in range(20, 10 * COUNT + 5, 5):
        lease = records.upto(seq)
        best = max(n for n in store.listing if n not in gone and (n == 1 or 10 * n <= seq))
        assert lease is not None
        assert lease.number == best
