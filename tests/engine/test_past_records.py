"""An old seq is read by a record that is old enough, whatever a vacuum takes while we look."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.past_record import PastTable
from siltstone.formats.manifest import Incarnation, KeyedStorage, Record
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
