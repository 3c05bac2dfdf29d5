"""Rows of many keys are what each key gives, and of a cold base they are read together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siltstone as st
from siltstone.engine.read import read_union
from siltstone.maintenance.merge import merge
from siltstone.storage.lance.read.pinned import LancePinned
from tests.maintenance.stores import open_store

COUNT = 30_000
SMALL = 16 << 20
"""A store whose rows do not fit the memory that keeps them resident."""
KINDS = {"number": ("int64", lambda n: n), "text": ("string", lambda n: f"key {n}")}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)


@pytest.fixture
def db(tmp_path: Path, kind: Any) -> Iterator[st.Store]:
    """Rows of base, of which some are hidden and some shadowed by newer rows in all levels."""
    type_, key = kind
    with open_store(tmp_path / "s", real_lance=True, memory_bytes_max=SMALL) as store:
        table = store.create_table("t", {"id": type_, "v": "string"}, primary_key="id")

        def put(numbers: Any, value: str) -> None:
            table.upsert([{"id": key(n), "v": value * 100} for n in numbers])

        put(range(COUNT), "a")
        store.checkpoint()
        store.merge()
        put(range(0, COUNT, 7), "b")
        table.delete([key(n) for n in range(3, COUNT, 1_000)])
        store.checkpoint()
        store.merge()
        put(range(0, COUNT, 1_100), "c")
        store.checkpoint()
        put(range(0, COUNT, 1_300), "d")
        table.delete([key(n) for n in range(5, COUNT, 1_000)])
        yield store


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each read by position takes from Lance."""
    found: list[int] = []
    take = LancePinned.take

    def noting(self: LancePinned, positions: np.ndarray, columns: Any = None) -> Any:
        found.append(len(positions))
        return take(self, positions, columns)

    monkeypatch.setattr(LancePinned, "take", noting)
    return found


def wanted(key: Any) -> list[Any]:
    """Keys of every level, twice in part, and some that have no row."""
    numbers = random.Random(7).choices(range(COUNT + 500), k=3_000)
    numbers += [n for first in (0, 3, 5) for n in range(first, COUNT, 1_000 + 100 * (not first))]
    return [key(n) for n in numbers]


def test_the_rows_of_many_keys_are_those_that_each_key_gives(db: st.Store, kind: Any) -> None:
    keys = wanted(kind[1])
    with db.snapshot() as snapshot:
        many = snapshot["t"].get_many(keys).to_pylist()
    db.close()
    with st.connect(db.path, memory_bytes_max=SMALL, background=False) as again:
        alone = [again["t"].get(key) for key in dict.fromkeys(keys)]
    assert many == [row for row in alone if row is not None]
    assert len({row["v"][0] for row in many}) == 4


def test_they_are_read_together(db: st.Store, kind: Any, taken: list[int]) -> None:
    keys = list(dict.fromkeys(wanted(kind[1])))
    db["t"].get_many(keys)
    assert sum(taken) > 2_000
    assert len(taken) < 20, "each read by position has up to 1,024 rows"


def test_rows_that_were_read_together_are_cached(db: st.Store, kind: Any, taken: list[int]) -> None:
    keys = [kind[1](n) for n in range(101, 500, 2)]
    db["t"].get_many(keys)
    assert len(taken) == 1
    assert db["t"].get(keys[4]) is not None
    db["t"].get_many(keys)
    assert len(taken) == 1


def test_a_transaction_reads_its_own_rows_among_them(db: st.Store, kind: Any) -> None:
    key = kind[1]
    with db.transaction() as tx:
        tx["t"].upsert([{"id": key(n), "v": "own"} for n in (1, 2)])
        tx["t"].delete([key(4)])
        found = tx["t"].get_many([key(n) for n in (1, 2, 4, 6, 8, 9, 10, 11)]).to_pylist()
        assert [row["id"] for row in found] == [key(n) for n in (1, 2, 6, 8, 9, 10, 11)]
        assert [row["v"][:3] for row in found[:3]] == ["own", "own", "aaa"]
        tx.rollback()


def test_an_earlier_seq_has_the_rows_of_that_time(db: st.Store, kind: Any) -> None:
    key = kind[1]
    with db.snapshot() as before:
        numbers = [n for n in range(20, 60) if n % 7]
        db["t"].upsert([{"id": key(n), "v": "new"} for n in numbers])
        keys = [key(n) for n in numbers]
        assert {row["v"] for row in before["t"].get_many(keys).to_pylist()} == {"a" * 100}
        assert {row["v"] for row in db["t"].get_many(keys).to_pylist()} == {"new"}


@pytest.mark.parametrize("most", [1, COUNT * 2])
def test_many_rows_are_the_same_by_columns_and_one_by_one(
    db: st.Store, kind: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    for name in ("_AS_ROWS_MAX", "_COLD_AS_ROWS_MAX"):
        monkeypatch.setattr(read_union, name, most)
    _, key = kind
    numbers = [*range(0, COUNT, 30), *range(COUNT, COUNT + 50), 3, 5, 7]
    random.Random(1).shuffle(numbers)
    with db.transaction() as tx:
        tx["t"].upsert([{"id": key(n), "v": "own"} for n in range(0, COUNT + 20, 60)])
        tx["t"].delete([key(n) for n in range(0, COUNT, 90)])
        found = tx["t"].get_many([key(n) for n in numbers])
        one_by_one = [tx["t"].get(key(n)) for n in numbers]
        assert found.to_pylist() == [row for row in one_by_one if row is not None]
        tx.rollback()
