"""A worker that becomes the owner has the state that an ordinary open of the directory finds.

An owner does anything, and a worker reads beside it now and then. At some moments the directory is
copied, as a kill would leave it: one copy is opened with what the worker had read, one without.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.recover import nearby
from siltstone.engine.recover.following import Followed
from siltstone.engine.recover.nearby import Nearby
from siltstone.local.store import LocalStore
from siltstone.open import owner as owners
from siltstone.open.environment import Env
from siltstone.open.owner import own_store
from siltstone.open.parts import follow_beside
from siltstone.open.shared import Opened
from siltstone.options import Options
from siltstone.storage.wal.recovery import Recovery
from tests.engine import test_following
from tests.engine.seams import open_store
from tests.engine.test_following import Life
from tests.nightly import by_day

OPTIONS = Options(background=False, segment_bytes=65_536)


class Worker(LocalStore):
    """A store as a process that joined reads it."""

    @property
    def nearby(self) -> Nearby:
        follower = self._parts.follower
        assert isinstance(follower, Nearby)
        return follower

    def hand_over(self) -> Followed | None:
        return self.nearby.hand_over()


def worker_beside(owner: st.Store) -> Worker:
    found = follow_beside(Path(owner.path), Options(), Env())
    assert found is not None
    return Worker(Opened.alone(Path(owner.path), Options(), found[0]))


def opened(root: Path, followed: Followed | None = None) -> LocalStore:
    parts = own_store(root, OPTIONS, Env(), followed=lambda: followed)
    return LocalStore(Opened.alone(root, OPTIONS, parts))


def copied(root: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", root, to], check=True)
    return to


def notes_of(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note of each log that is recovered whether it went on from a place that was known."""
    found: list[bool] = []
    recover = owners.recover

    def noted(*given: object, **named: object) -> Recovery:
        made = recover(*given, **named)  # type: ignore[arg-type]
        found.append(made.goes_on)
        return made

    monkeypatch.setattr(owners, "recover", noted)
    return found


class LifeBesideWorker(Life):
    """A life of more kinds of commits, which is cut now and then."""

    beside: Worker

    def __init__(self, path: Path, seed: int, went_on: list[bool]) -> None:
        super().__init__(path / "s", seed, worker_beside)
        self.path, self.went_on, self.cuts, self.warm = path, went_on, 0, 0
        self.batch = 0

    @property
    def commits(self) -> list[Callable[[], None]]:
        return [*super().commits, self.asynchronous, self.tokens, self.untags, self.spaces]

    def asynchronous(self) -> None:
        with self.db.transaction(durability="async") as tx:
            tx["plain" if "plain" in self.names else self.names[0]].delete_where("id = 1")
        self.few()

    def tokens(self) -> None:
        self.batch += 1
        name = next(n for n in self.names if self.db[n].primary_key)
        with self.db.transaction(token=("app", self.batch)) as tx:
            tx[name].upsert(self.written(name, 2), missing="null")

    def untags(self) -> None:
        for tag in list(self.db.tags())[:1]:
            self.db.untag(tag)

    def spaces(self) -> None:
        self.db.tag(f"t{self.db.seq}", lasts="1d")

    def look(self) -> None:
        self.beside.nearby.newest()  # else it may see 50 ms late what a vacuum has trimmed
        super().look()

    def unseen(self) -> None:
        """Do what the worker does not look at any more; also records come, and segments go."""
        records = [self.flush, self.flush, self.merge, self.vacuum]
        for _ in range(self.chance.randrange(5)):
            self.does(records if self.chance.random() < 0.4 else self.commits)

    def flush(self) -> None:
        self.db.checkpoint()

    def cut(self) -> None:
        """Take over twice, warm and by an ordinary open, and go on with both."""
        self.cuts += 1
        root = self.path / f"cut{self.cuts}"
        root.mkdir()
        warm, cold = (copied(Path(self.db.path), root / name) for name in ("warm", "cold"))
        followed = self.beside.hand_over()
        with opened(warm, followed) as one, opened(cold) as other:
            self.warm += self.went_on[-2]
            self.same(one, other, "opened")
            assert begun(one) == begun(other), (self.seed, self.log)
            for db in (one, other):
                self.go_on(db)
            self.same(one, other, "after commits")
            again = copied(warm, root / "again")
            with opened(again) as third:  # as after a kill of the new owner
                self.same(one, third, "opened again")
            for db in (one, other):
                db.checkpoint()
                db.merge()
            self.same(one, other, "after a merge")

    def go_on(self, db: LocalStore) -> None:
        for name in db.tables():
            table = db[name]
            if table.primary_key:
                table.upsert(self.same_rows(table), missing="null")
                table.delete_where("id % 5 = 1")
            else:
                table.append([{"id": 1, "v": 2, "s": "s1"}])

    def same_rows(self, table: st.Table) -> list[dict[str, object]]:
        return [{"id": n, "v": n, "s": f"s{n}"} for n in range(0, 30, 4)]

    def same(self, one: LocalStore, other: LocalStore, when: str) -> None:
        """Compare two stores: after commits of each they differ in times and in names of files."""
        have_one_past = when.startswith("opened")
        found, wanted = (self.seen(each) for each in (one, other))
        if not have_one_past:
            found[3], wanted[3] = (without_times(each[3]) for each in (found, wanted))
        assert found == wanted, (self.seed, when, self.log)
        assert rows_inside(one) == rows_inside(other), (self.seed, when, self.log)
        if have_one_past:
            assert inside(one) == inside(other), (self.seed, when, self.log)


def without_times(log: object) -> object:
    assert isinstance(log, list)
    return [(seq, *rest) for seq, _, *rest in log]


def inside(db: LocalStore) -> dict[str, object]:
    """Return all that a state and its owner have, but what tells one claim from another."""
    view, owner = db._core.state().view, db._parts.owner
    assert owner is not None
    record, number = view.record, view.log.count
    return {
        "record": msgspec.structs.replace(record, number=0, epoch=0, writer="", time_us=0),
        "catalog": view.catalog,
        "storages": {key: levels.storage for key, levels in view.levels.items()},
        "commits": (view.log.first, [view.log.commit(n) for n in range(number)]),
        "sealed": (view.sealed, view.generation),
        "end": (owner.wal.end.seq, owner.wal.durable_seq, owner.committer.durable_seq),
        "last time": owner.committer._last_time,
    }


def begun(db: LocalStore) -> tuple[object, ...]:
    """Return what an owner begins with, and goes on from."""
    owner = db._parts.owner
    assert owner is not None
    return db._core.recent.floor, next(db._core.ids), next(db._core.numbers)


def rows_inside(db: LocalStore) -> dict[int, list[object]]:
    """Return each level's row versions above base, by incarnation, in seq order."""
    return {
        number: [version for source in levels.sources for version in versions(source)]
        for number, levels in db._core.state().view.levels.items()
    }


def versions(source: object) -> list[object]:
    if isinstance(source, HistoryRun):
        rows = source.table.scan(["_seq", "_op"], seqs=(source.low, source.high))
        found = [(row["_seq"], row["_op"]) for batch in rows for row in batch.to_pylist()]
        return [each for each in found if source.low < each[0] <= source.high]
    assert isinstance(source, Memtable)
    return [
        (seq, op, row)
        for chunk in source.chunks_upto(1 << 60)
        for seq, op, row in zip(
            chunk.seqs.tolist(), chunk.ops.tolist(), chunk.batch.to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize("seed", range(by_day(6, 60)))
def test_a_warm_take_over_is_the_state_of_an_ordinary_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(nearby, "WAIT_S", 60.0)  # the worker reads all itself
    retention_s = 0.0 if seed % 2 else 1e6  # vacuums trim the past, and its tables
    opens = partial(open_store, retention_s=retention_s)
    monkeypatch.setattr(test_following, "open_store", opens)
    life = LifeBesideWorker(tmp_path, seed, notes_of(monkeypatch))
    try:
        for _ in range(by_day(4, 8)):
            life.run(8)
            life.unseen()
            life.cut()
        assert life.warm
    finally:
        life.close()


def test_what_a_bulk_commit_names_in_the_log_alone_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of an empty table is its base, one of another table a level between two memtables."""
    monkeypatch.setattr(nearby, "WAIT_S", 60.0)
    life = LifeBesideWorker(tmp_path, 0, notes_of(monkeypatch))
    life.names = ["words", "keyed"]
    try:
        life.db.checkpoint()  # a record knows the tables, which are empty
        life.put("words", 3)
        for name in life.names:
            stage = life.db.stage(name)
            rows = [{"id": n, "v": 7, "s": f"s{n}"} for n in range(1, 30)]
            piece = stage.run(pa.Table.from_pylist(rows, life.db[name].schema))
            with life.db.transaction() as tx:
                tx.attach(stage, [piece])
            life.put(name, 4)
        life.look()
        levels = life.beside._core.state().view.levels.values()
        assert [(each.base is None, len(each.sealed)) for each in levels] == [(False, 0), (True, 2)]
        life.cut()
        assert life.warm
    finally:
        life.close()
