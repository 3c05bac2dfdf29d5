"""What lives is the same whether it was found out anew, or carried on from an older seq."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.visibility import VisibilityCache
from siltstone.formats.bits import all_of
from tests.engine.seams import fake_env, open_store

SCHEMA = {"region": "int64", "id": "int64", "v": "int64", "pad": "string"}
# Python hashes by a modulus: each key of one region shares its code with one of the other.
KEYS = {"id": ["id"], "region and id": ["region", "id"], "pad": ["pad"]}
Rows = dict[object, int]


class Model:
    """A store and what it must hold; snapshots with what they must show for ever."""

    def __init__(self, db: Store, key: list[str], seed: int) -> None:
        self.db, self.key, self.random = db, key, random.Random(seed)
        self.table = db.create_table("t", SCHEMA, primary_key=key)
        self.rows: Rows = {}
        self.snapshots: list[tuple[st.Snapshot, Rows]] = []

    def row(self) -> dict[str, object]:
        number = self.random.randrange(40)
        region = 1 + number % 2 * sys.hash_info.modulus if self.key == ["region", "id"] else 0
        value = self.random.randrange(1 << 40)
        pad = f"{number:03}" * 200
        return {"region": region, "id": number // 2 if region else number, "v": value, "pad": pad}

    def key_of(self, row: dict[str, object]) -> object:
        return row[self.key[0]] if len(self.key) == 1 else tuple(row[name] for name in self.key)

    def upsert(self, *, as_arrow: bool) -> None:
        rows = [self.row() for _ in range(self.random.randrange(1, 30))]
        self.table.upsert(
            pa.Table.from_pylist(rows, schema=self.table.schema) if as_arrow else rows
        )
        self.rows = {**self.rows, **{self.key_of(row): row["v"] for row in rows}}  # type: ignore[dict-item]

    def delete(self) -> None:
        keys = [self.key_of(self.row()) for _ in range(self.random.randrange(1, 6))]
        self.table.delete(keys)
        self.rows = {key: value for key, value in self.rows.items() if key not in keys}

    def both(self) -> None:
        """One commit that writes and deletes, read in the transaction itself."""
        with self.db.transaction() as tx:
            row, gone = self.row(), self.key_of(self.row())
            tx["t"].upsert([row])
            tx["t"].delete([gone])
            self.rows = {**self.rows, self.key_of(row): row["v"]}  # type: ignore[dict-item]
            self.rows.pop(gone, None)
            self.check(tx["t"], self.rows)

    def alter(self) -> None:
        self.table.drop_column("pad")
        self.table.add_column("pad", "string")

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.3:
            self.upsert(as_arrow=True)
        elif choice < 0.5:
            self.upsert(as_arrow=False)
        elif choice < 0.65:
            self.delete()
        elif choice < 0.75:
            self.both()
        elif choice < 0.8 and self.key != ["pad"]:
            self.alter()
        elif choice < 0.87:
            self.db.checkpoint()
        elif choice < 0.9:
            self.db.merge()
        else:
            self.snapshots.append((self.db.snapshot(), self.rows))

    def check_all(self) -> None:
        seen = [(self.table, self.rows), *((s["t"], rows) for s, rows in self.snapshots[-4:])]
        self.random.shuffle(seen)
        for table, rows in seen:
            self.check(table, rows)

    def check(self, table: st.Table, rows: Rows) -> None:
        found = table.scan(columns=[*self.key, "v"]).read_all().to_pylist()
        assert {self.key_of(row): row["v"] for row in found} == rows
        assert len(found) == table.count() == len(rows)
        small = table.scan(columns=[*self.key, "v"], filter="v < 500000000000").read_all()
        assert {self.key_of(row): row["v"] for row in small.to_pylist()} == {
            key: value for key, value in rows.items() if value < 500_000_000_000
        }


@pytest.fixture(params=[1 << 20, 1 << 30], ids=["spilling", "roomy"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    options = {"memory_bytes_max": request.param, "memtable_bytes_max": 8192}
    with open_store(tmp_path / "db", fake_env(), **options) as db:
        yield db


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_every_snapshot_shows_its_rows_whatever_others_read_before(
    db: Store, key: list[str], seed: int
) -> None:
    model = Model(db, key, seed)
    for _ in range(60):
        model.step()
        model.check_all()


def test_a_scan_goes_on_from_the_scan_before(db: Store) -> None:
    table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    table.upsert([{"id": n, "v": n} for n in range(100)])
    assert table.count() == 100
    levels = next(iter(_view(db).levels.values()))
    before = levels.kept._kept[0]
    table.upsert([{"id": 50, "v": -1}, {"id": 100, "v": -1}])
    assert table.count() == 101
    after = levels.kept._kept[0]
    assert after.runs[0] is before.runs[0]
    assert after.rows[0][0] is before.rows[0][0]
    assert after.live.count == 101


def test_a_spill_keeps_the_index_and_what_lives(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env(), memory_bytes_max=1 << 20) as db:
        table = db.create_table("t", {"id": "int64", "pad": "string"}, primary_key="id")
        table.upsert([{"id": n, "pad": "x" * 2000} for n in range(200)])
        assert table.count() == 200
        levels = next(iter(_view(db).levels.values()))
        before = levels.kept._kept[0]
        db.checkpoint()
        levels = next(iter(_view(db).levels.values()))
        run = levels.flushed[0]
        assert isinstance(run, HistoryRun)
        assert run.nbytes, "the index came with the rows"
        assert table.count() == 200
        after = levels.kept._kept[0]
        assert (after.live, after.runs) == (before.live, before.runs)
        assert table.get(7) == {"id": 7, "pad": "x" * 2000}
        assert sum(len(pad) for pad in table.to_arrow()["pad"].to_pylist()) == 400_000


def test_what_is_known_of_an_overlay_is_memory_that_is_counted_and_bounded(db: Store) -> None:
    table = db.create_table("t", {"id": "int64"}, primary_key="id")
    table.upsert([{"id": n} for n in range(1000)])
    assert table.count() == 1000
    found = db.status().memory.overlays
    assert 16_000 <= found < 20_000
    levels = next(iter(_view(db).levels.values()))
    parts = [part for source in levels.sources for part in source.parts(2) if part.rows]
    codec = levels.active.contents.tail.table_schema.codec
    kept = VisibilityCache()
    for left, size in ((found, found), (found // 2, 0)):
        live = kept.at(2, codec, None, parts, bytes_left=lambda left=left: left - kept.nbytes).live
        assert live.count == 1000
        assert kept.nbytes == size


def test_bits_are_a_set_of_row_numbers() -> None:
    rng = np.random.default_rng(1)
    for length in (0, 1, 7, 8, 9, 1000):
        bits, wanted = all_of(length), np.ones(length, bool)
        for more in (0, 3, 8, 13):
            away = rng.integers(0, len(wanted), 20) if len(wanted) else np.zeros(0, np.int64)
            bits, wanted = bits.without(away), wanted.copy()
            wanted[away] = False
            added = rng.random(more) < 0.5
            bits, wanted = bits.followed_by(added), np.concatenate((wanted, added))
            assert bits.bools().tolist() == bits.mask().to_pylist() == wanted.tolist()
            assert bits.count == wanted.sum()
            assert bits.has(np.arange(len(wanted))).tolist() == wanted.tolist()
            middle = len(wanted) // 3
            assert bits.bools(middle, len(wanted)).tolist() == wanted[middle:].tolist()


def _view(db: Store):
    return db._core.state().view
