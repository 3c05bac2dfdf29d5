"""Keys whose codes collide, as Python hashes integers by a modulus, are still different keys."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

LOW, HIGH = 1, 1 + sys.hash_info.modulus
SCHEMA = {"a": "int64", "b": "int64", "v": "int64"}


def row(a: int, b: int, v: int) -> dict[str, int]:
    return {"a": a, "b": b, "v": v}


def rows(table: object) -> list[tuple[int, int, int]]:
    return sorted((r["a"], r["b"], r["v"]) for r in table.to_arrow().to_pylist())  # type: ignore[attr-defined]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    assert hash((HIGH, 7)) == hash((LOW, 7))
    with open_store(tmp_path / "db", fake_env()) as store:
        store.create_table("t", SCHEMA, primary_key=["a", "b"])
        yield store


def merged(db: Store) -> None:
    db.checkpoint()
    db.merge()


def test_a_write_hides_only_its_own_key_of_the_base(db: Store) -> None:
    db["t"].upsert([row(LOW, 7, 1), row(HIGH, 7, 1)])
    merged(db)
    first = db["t"].upsert(pa.table({"a": [HIGH] * 600, "b": range(600), "v": [2] * 600})).seq
    last = db["t"].upsert(pa.table({"a": [LOW] * 600, "b": range(600), "v": [3] * 600})).seq
    assert db["t"].count() == 1200
    with db.snapshot(seq=first) as then:
        assert then["t"].count() == 601
        assert (LOW, 7, 1) in rows(then["t"])
        assert then["t"].get((LOW, 7)) == row(LOW, 7, 1)
    with db.snapshot(seq=last) as then:
        assert then["t"].get((LOW, 7)) == row(LOW, 7, 3)


@pytest.mark.parametrize("where", ["memory", "history", "base"])
def test_a_batch_insert_finds_the_living_one_of_two_colliding_keys(db: Store, where: str) -> None:
    db["t"].upsert([row(LOW, 7, 1), row(HIGH, 8, 1)])
    if where != "memory":
        db.checkpoint()
    if where == "base":
        db.merge()
    batch = pa.table({"a": [HIGH, LOW] * 600, "b": [i // 2 for i in range(1200)], "v": [5] * 1200})
    with pytest.raises(st.DuplicateKeyError), db.transaction() as tx:
        tx["t"].insert(batch.filter(pa.compute.field("b") != 8))
    with pytest.raises(st.DuplicateKeyError), db.transaction() as tx:
        tx["t"].insert(batch.filter(pa.compute.field("b") != 7))
    free = batch.filter((pa.compute.field("b") != 7) & (pa.compute.field("b") != 8))
    db["t"].insert(free)
    assert db["t"].count() == 1198


def test_deletes_and_upserts_of_colliding_keys_stay_apart_in_every_level(db: Store) -> None:
    table = db["t"]
    for v in range(3):
        table.upsert([row(HIGH, 7, v), row(LOW, 7, v)])
        table.delete((HIGH, 7))
        assert table.get((HIGH, 7)) is None
        assert table.get((LOW, 7)) == row(LOW, 7, v)
        assert rows(table) == [(LOW, 7, v)]
        db.checkpoint()
        assert rows(table) == [(LOW, 7, v)]
        if v:
            db.merge()
        assert rows(table) == [(LOW, 7, v)]
        assert table.count() == 1
        assert table.get((HIGH, 7)) is None
