"""A reader that stays beside an owner is it at each look, whatever the owner did between two."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.recover import nearby
from siltstone.joined.store import JoinedStore
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import Files
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.wal.follower import WalFollower
from tests.engine.seams import HookedTables, fake_env, open_store
from tests.nightly import by_day

SCHEMA = {"id": "int64", "v": "int64", "s": "string"}
KEYS = 40
SMALL = Options(segment_bytes=65_536)


class Life:
    """An owner that does anything, and a reader beside it that looks now and then."""

    def __init__(self, path: Path, seed: int, beside: Callable[[st.Store], st.Store]) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.hooked: list[HookedTables] = []
        self.db = open_store(path, Env(tables=self.tables))
        self.names = ["keyed", "words", "plain"]
        self.db.create_table("keyed", SCHEMA, "id")
        self.db.create_table("words", SCHEMA, "s")
        self.db.create_table("plain", SCHEMA)
        self.beside = beside(self.db)
        self.log: list[str] = []
        self.since = 0  # of the changes that both are asked for

    def tables(self, root: Path, files: Files, verify: str) -> HookedTables:
        self.hooked.append(HookedTables(lance_tables(root, files, verify)))
        return self.hooked[0]

    def close(self) -> None:
        self.beside.close()
        self.db.close()

    def run(self, steps: int) -> None:
        upkeep = [self.checkpoint, self.checkpoint, self.merge, self.optimizes, self.vacuum]
        for _ in range(steps):
            self.does(upkeep if self.chance.random() < 0.3 else self.commits)
            if self.chance.random() < 0.4:
                self.look()
        self.look()

    @property
    def commits(self) -> list[Callable[[], None]]:
        return [
            self.few, self.few, self.few, self.some, self.deletes, self.bulk, self.empties,
            self.widens, self.renames, self.remakes, self.tags, self.updates,
        ]  # fmt: skip

    def does(self, works: list[Callable[[], None]]) -> None:
        work = self.chance.choice(works)
        self.log.append(work.__name__)
        work()

    # what the owner does

    def rows(self, count: int) -> list[dict[str, object]]:
        ids = self.chance.sample(range(KEYS), min(count, KEYS))
        return [{"id": n, "v": self.chance.randrange(9), "s": f"s{n % 30}"} for n in ids]

    def written(self, name: str, count: int) -> list[dict[str, object]]:
        key = self.db[name].primary_key
        rows = {tuple(row[part] for part in key) if key else n: row
                for n, row in enumerate(self.rows(count))}  # fmt: skip
        return list(rows.values())

    def put(self, name: str, count: int) -> None:
        table, rows = self.db[name], self.written(name, count)
        if table.primary_key:
            table.upsert(rows, missing="null")
        else:
            table.append(rows)

    def few(self) -> None:
        self.put(self.chance.choice(self.names), self.chance.randrange(1, 4))

    def some(self) -> None:
        self.put(self.chance.choice(self.names), KEYS)

    def updates(self) -> None:
        with self.db.transaction() as tx:
            for name in self.names:
                tx[name].update_where("v > 4", sql={"v": "v - 1"})

    def deletes(self) -> None:
        self.db[self.chance.choice(self.names)].delete_where(f"id % 7 = {self.chance.randrange(7)}")

    def bulk(self) -> None:
        name = self.chance.choice(self.names)
        stage = self.db.stage(name)
        piece = stage.run(pa.Table.from_pylist(self.written(name, KEYS), self.db[name].schema))
        with self.db.transaction() as tx:
            tx.attach(stage, [piece])

    def empties(self) -> None:
        if self.chance.random() < 0.5:
            self.db[self.chance.choice(self.names)].truncate()

    def checkpoint(self) -> None:
        """Others commit between the seal and the publish, and the reader has looked by then."""
        hooks = self.hooked[0].hooks

        def between(*_: object) -> None:
            hooks.clear()
            self.log.append("between:")
            for _ in range(self.chance.randrange(4)):
                self.does(self.commits)
            self.look()

        if self.chance.random() < 0.7:
            hooks["stage"] = between
        self.db.checkpoint()
        hooks.clear()

    def merge(self) -> None:
        self.db.merge()

    def optimizes(self) -> None:
        self.db.optimize()

    def vacuum(self) -> None:
        self.db.vacuum(dry_run=False, grace_s=0)

    def widens(self) -> None:
        table = self.db[self.chance.choice(self.names)]
        if len(table.schema) < 6:
            table.add_column(f"more{self.db.seq}", "int32")

    def renames(self) -> None:
        place = self.chance.randrange(len(self.names))
        to = f"t{self.db.seq}"
        self.db.rename_table(self.names[place], to)
        self.names[place] = to

    def remakes(self) -> None:
        place = self.chance.randrange(len(self.names))
        name = self.names[place]
        key = self.db[name].primary_key
        with self.db.transaction() as tx:
            tx.drop_table(name)
            tx.create_table(name, SCHEMA, key or None)

    def tags(self) -> None:
        self.db.tag(f"tag{self.db.seq}")

    # what the reader sees

    def look(self) -> None:
        self.log.append("look")
        same = [self.seen(each) for each in (self.db, self.beside)]
        assert same[0] == same[1], (self.seed, self.log)
        self.since = self.db.seq - self.chance.randrange(20)

    def seen(self, db: st.Store) -> list[object]:
        found: list[object] = [db.seq, db.tags(), db.tables()]
        found.append([(e.seq, e.time, e.tables, e.rows) for e in db.log(limit=30)])
        for name in db.tables():
            table = db[name]
            rows = table.to_arrow()
            found += [name, table.schema, table.count(), sorted(map(str, rows.to_pylist()))]
            if table.primary_key:
                keys = [n if table.primary_key == ("id",) else f"s{n}" for n in range(0, KEYS, 3)]
                found.append([table.get(key) for key in keys])
                since = max(db.changes_from(name), self.since)
                changed = db.changes(since, tables=[name])[name].read_all()
                found.append((since, sorted(map(str, changed.to_pylist()))))
        return found


def a_reader(owner: st.Store) -> st.Store:
    return st.connect(owner.path, read_only=True)


def one_who_joined(owner: st.Store) -> st.Store:
    return JoinedStore(owner.path, str(owner.serve_local()), Options())


@pytest.mark.parametrize("beside", [a_reader, one_who_joined])
@pytest.mark.parametrize("seed", range(by_day(6, 30)))
def test_a_reader_beside_an_owner_sees_what_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, beside: Callable[..., st.Store]
) -> None:
    monkeypatch.setattr(nearby, "WAIT_S", 60.0)  # it reads all itself
    life = Life(tmp_path / "s", seed, beside)
    try:
        life.run(by_day(60, 120))
    finally:
        life.close()


def follow(root: Path) -> LocalStore:
    return LocalStore.open(root, SMALL, read_only=True, env=fake_env())


def followers_made(monkeypatch: pytest.MonkeyPatch) -> list[WalFollower]:
    made: list[WalFollower] = []
    first = WalFollower.__init__

    def counted(self: WalFollower, *given: object, **named: object) -> None:
        made.append(self)
        first(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(WalFollower, "__init__", counted)
    return made


@pytest.mark.parametrize("work", ["checkpoint", "merge", "optimize"])
def test_a_newer_record_is_no_reason_to_read_the_log_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    with open_store(tmp_path, fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        for n in range(100):
            db["t"].upsert({"id": n, "v": n, "s": "x"})
        with follow(tmp_path) as beside:
            made = followers_made(monkeypatch)
            assert beside["t"].count() == 100
            doing: Callable[[], object] = getattr(db, work)
            for n in range(3):
                doing()
                db["t"].upsert({"id": 100 + n, "v": n, "s": "y"})
                assert beside["t"].count() == 101 + n
            assert made == []


def test_a_reader_that_fell_behind_what_was_flushed_begins_again(tmp_path: Path) -> None:
    with open_store(tmp_path, fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 0, "v": 0, "s": "x"})
        with follow(tmp_path) as beside:
            assert beside["t"].count() == 1
            for turn in range(4):  # segments are recycled that nobody beside has read
                db["t"].upsert([{"id": n, "v": turn, "s": "x" * 100} for n in range(2000)])
                db.checkpoint()
            db["t"].upsert({"id": 9999, "v": 1, "s": "y"})
            assert beside["t"].count() == 2001
            assert beside["t"].get(5) == {"id": 5, "v": 3, "s": "x" * 100}
