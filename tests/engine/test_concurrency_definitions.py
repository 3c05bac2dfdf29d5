"""Rows and definitions land while checkpoints, merges and other processes' merges run; all hold."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.local.store import LocalStore
from siltstone.maintenance.merge.merge import Merger
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from tests.engine.seams import Threads, fake_env, jobs_of, open_store
from tests.support.fake_lance import fake_lance

STEPS = 60


class Writer:
    """Writes one table alone, beside others on theirs, and knows what must be in it."""

    def __init__(self, db: st.Store, name: str, seed: int) -> None:
        self.db, self.name, self.chance = db, name, random.Random(seed)
        self.columns: list[str] = ["a"]
        self.rows: dict[int, dict[str, object]] = {}
        self.moments: dict[int, tuple[str, list[dict[str, object]]]] = {}
        self.serial = self.steps = 0
        db.create_table(name, {"id": "int64", "a": "string"}, primary_key="id")

    def run(self) -> None:
        works = [self.upsert] * 8 + [self.delete] * 4 + [self.update] * 4
        works += [self.add, self.drop, self.rename, self.truncate, self.rename_table]
        for _ in range(STEPS):
            self.chance.choice(works)()
            self.check()
            self.steps += 1

    def text(self) -> str:
        self.serial += 1
        return f"{self.serial}"

    def upsert(self) -> None:
        count = self.chance.choice((1, 3, 700))
        start = self.chance.randrange(40)
        rows = [
            {"id": start + n, **{name: self.text() for name in self.columns}} for n in range(count)
        ]
        self.seq = self.db[self.name].upsert(rows).seq
        self.rows.update({row["id"]: row for row in rows})

    def delete(self) -> None:
        keys = self.chance.sample(range(60), self.chance.choice((1, 20)))
        self.seq = self.db[self.name].delete(keys).seq
        for key in keys:
            self.rows.pop(key, None)

    def update(self) -> None:
        key = self.chance.randrange(60)
        if self.columns and key in self.rows:
            column, value = self.chance.choice(self.columns), self.text()
            self.seq = self.db[self.name].update(key, **{column: value}).seq
            self.rows[key] = {**self.rows[key], column: value}

    def add(self) -> None:
        name = self.chance.choice([c for c in "abcdefgh" if c not in self.columns])
        self.seq = self.db[self.name].add_column(name, "string").seq
        self.columns.append(name)
        self.rows = {key: {**row, name: None} for key, row in self.rows.items()}

    def drop(self) -> None:
        if self.columns:
            name = self.columns.pop(self.chance.randrange(len(self.columns)))
            self.seq = self.db[self.name].drop_column(name).seq
            self.rows = {k: {c: v for c, v in r.items() if c != name} for k, r in self.rows.items()}

    def rename(self) -> None:
        if self.columns:
            old, new = self.chance.choice(self.columns), f"r{self.text()}"
            self.seq = self.db[self.name].rename_column(old, new).seq
            self.columns[self.columns.index(old)] = new
            self.rows = {
                key: {new if c == old else c: v for c, v in row.items()}
                for key, row in self.rows.items()
            }

    def truncate(self) -> None:
        self.seq = self.db[self.name].truncate().seq
        self.rows = {}

    def rename_table(self) -> None:
        new = f"{self.name.split('-')[0]}-{self.text()}"
        self.seq = self.db.rename_table(self.name, new).seq
        self.name = new

    def check(self) -> None:
        expected = sorted(self.rows.values(), key=lambda row: row["id"])
        if hasattr(self, "seq"):
            self.moments[self.seq] = (self.name, expected)
        assert read(self.db[self.name]) == expected
        if self.moments:
            seq = self.chance.choice(list(self.moments))
            self.check_past(self.db, seq)

    def check_past(self, db: st.Store, seq: int) -> None:
        name, expected = self.moments[seq]
        with db.snapshot(seq=seq) as past:
            assert read(past[name]) == expected, f"{name} at seq {seq}"
            for row in expected[:2]:
                assert past[name].get(row["id"]) == row, f"{name} at seq {seq}"
            assert past[name].count() == len(expected)


def read(table) -> list[dict[str, object]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def merge_from_outside(root: Path, stop: threading.Event) -> None:
    files = RealFiles()
    manifests, tables = ManifestStore(files, root), fake_lance(root, files)
    merger = Merger(
        Site(root, files, manifests, tables, jobs_of(root)),
        Readers(tables.reader, tables.keys, PastRecords(manifests), index_bytes_max=1 << 20),
    )
    while not stop.is_set():
        merger.merge()


def checkpoint(db: st.Store, stop: threading.Event) -> None:
    while not stop.is_set():
        db.checkpoint()
        db._parts.owner.checkpointer.refresh()


def follow(root: Path, db: st.Store, stop: threading.Event) -> None:
    with LocalStore.open(root, db.options, read_only=True, env=fake_env()) as other:
        last = 0
        while not stop.is_set():
            with other.snapshot() as snapshot:
                assert snapshot.seq >= last
                last = snapshot.seq
                for name in snapshot.tables():
                    assert snapshot[name].count() == snapshot[name].to_arrow().num_rows


@pytest.mark.parametrize("seed", range(2))
def test_every_moment_of_every_table_stays_as_it_was(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "db"
    pa.array([0])  # the first one imports pandas: beside busy threads that took 25 s
    with open_store(root, fake_env(), memory_bytes_max=1 << 20) as db:
        writers = [Writer(db, f"t{n}", 100 * seed + n) for n in range(3)]
        working, beside, stop = Threads(), Threads(), threading.Event()
        beside.start(checkpoint, db, stop)
        beside.start(merge_from_outside, root, stop)
        beside.start(follow, root, db, stop)
        for writer in writers:
            working.start(writer.run)
        working.join(lambda: sum(writer.steps for writer in writers))
        stop.set()
        beside.join()
        db.checkpoint()
        db.merge()
        check_all(db, writers)
    with open_store(root, fake_env()) as again:
        check_all(again, writers)


def check_all(db: st.Store, writers: list[Writer]) -> None:
    for writer in writers:
        for seq in writer.moments:
            writer.check_past(db, seq)
