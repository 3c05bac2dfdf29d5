"""A clock that is set back while work goes on makes its files older than the work, not garbage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltstone.admin import follow_vacuum
from siltstone.api.store import Store
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.write import bulk, submission
from siltstone.engine.write.bulk import BulkRows
from siltstone.errors import BusyError, RequestError
from siltstone.formats.manifest import Pin
from siltstone.maintenance.flush import bulk_load as loading
from tests.maintenance.stores import Clock, env_of, open_store, rows
from tests.support.fake_writers import FakeRewriter

ROWS = pa.table({"id": [2, 3]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        store.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        store.checkpoint()
        yield store


def test_a_merge_whose_files_a_vacuum_took_is_done_again(
    db: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Clock()
    fold, seen = FakeRewriter.fold, list[Pin]()

    def set_back(tables: FakeRewriter, *arguments: Any, **options: Any) -> Pin:
        pin = fold(tables, *arguments, **options)
        if not seen:
            seen.append(pin)
            clock.move(seconds=-3600)
            date_all(db.path, clock)
            later.move(seconds=1200)
            follow_vacuum(db.path, db.options, env_of(later), dry_run=False, grace_s=600)
        return pin

    monkeypatch.setattr(FakeRewriter, "fold", set_back)
    clock.move(seconds=3600)
    db.merge()
    assert seen
    assert rows(db["t"]) == [(1,)]


class Meanwhile:
    """What goes on beside a commit whose clock is an hour ahead."""

    def __init__(self, db: Store, clock: Clock, *, is_vacuumed: bool) -> None:
        self.db, self.clock, self.is_vacuumed = db, clock, is_vacuumed

    def set_back(self) -> None:
        """Set the clock back by two hours, and date by it what was written as if it were before."""
        self.clock.move(seconds=-7200)
        date_all(self.db.path, self.clock)

    def set_forward(self) -> None:
        self.clock.move(seconds=7200)

    def vacuum(self) -> None:
        """Vacuum from elsewhere, 20 minutes after the files were written, with half the grace."""
        later = Clock()
        later.move(seconds=-2400)
        if self.is_vacuumed:
            env = env_of(later)
            follow_vacuum(self.db.path, self.db.options, env, dry_run=False, grace_s=600)


Way = Callable[[Store, Meanwhile], None]


def append(db: Store, meanwhile: Meanwhile) -> None:
    with db.transaction() as tx:
        tx["plain"].append(ROWS)
        meanwhile.set_back()
        meanwhile.vacuum()


def load_into(name: str) -> Way:
    def load(db: Store, meanwhile: Meanwhile) -> None:
        def unique(*arguments: Any, may_repeat: bool) -> BulkRows:
            meanwhile.set_back()
            return bulk.unique(*arguments, may_repeat=may_repeat)

        def submit(*arguments: Any) -> Receipt:
            meanwhile.vacuum()
            return submission.submit(*arguments)

        definition, table_schema = db[name]._table_schema()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "unique", unique)
            patch.setattr(loading, "submit", submit)
            loading.load(db._core, definition, table_schema, ROWS, may_repeat=True, bytes_min=1)

    return load


def attach_to(name: str) -> Way:
    """Set the clock back while what was staged before is attached."""

    def attach(db: Store, meanwhile: Meanwhile) -> None:
        task = db.stage(name)
        piece = task.run_through(db._parts.site.tables.writer, ROWS)
        kept = {path: path.stat().st_mtime for path in files_of(db.path) if path.suffix}
        with db.transaction() as tx:
            tx.attach(task, [piece])
            meanwhile.set_back()
            for path, then in kept.items():
                os.utime(path, (then, then))
            meanwhile.vacuum()

    return attach


@pytest.mark.parametrize("is_vacuumed", [True, False], ids=["vacuum", "no-vacuum"])
@pytest.mark.parametrize(
    "way",
    [append, load_into("first"), load_into("t"), attach_to("plain"), attach_to("t")],
    ids=["append", "load-first", "load", "attach-plain", "attach"],
)
def test_a_commit_whose_files_a_vacuum_took_is_refused(
    db: Store, clock: Clock, way: Way, *, is_vacuumed: bool
) -> None:
    keys = {"t": "id", "first": "id", "plain": None}
    for name in ("first", "plain"):
        db.create_table(name, {"id": "int64"}, primary_key=keys[name])
    db.checkpoint()
    before = all_rows(db)
    clock.move(seconds=3600)
    if is_vacuumed:
        with pytest.raises(BusyError, match="for garbage"):
            way(db, Meanwhile(db, clock, is_vacuumed=True))
        assert all_rows(db) == before
    way(db, Meanwhile(db, clock, is_vacuumed=False))
    after = all_rows(db)
    assert sum(after[name] != before[name] for name in keys) == 1
    db.close()
    with open_store(db.path, clock, retention_s=0) as again:
        again.checkpoint()
        again.merge()
        again.vacuum(dry_run=False, grace_s=0)
        assert all_rows(again) == after
        assert again.verify(deep=True).is_sound


@pytest.mark.parametrize("is_attached", [True, False], ids=["attached", "not-attached"])
@pytest.mark.parametrize("name", ["plain", "t"])
def test_rows_of_a_worker_whose_clock_is_behind_stay_from_when_they_are_attached(
    db: Store, clock: Clock, name: str, *, is_attached: bool
) -> None:
    """They are held by the age of their files, not by the time when their job began."""
    db.create_table("first", {"id": "int64"}, primary_key="id")
    db.create_table("plain", {"id": "int64"})
    clock.move(seconds=3600)
    meanwhile = Meanwhile(db, clock, is_vacuumed=True)
    task = db.stage(name)
    piece = task.run_through(db._parts.site.tables.writer, ROWS)
    meanwhile.set_back()
    meanwhile.set_forward()
    before = all_rows(db)
    with db.transaction() as tx:
        if is_attached:
            tx.attach(task, [piece])
        meanwhile.vacuum()
        if not is_attached:
            with pytest.raises(RequestError, match="vacuumed"):
                tx.attach(task, [piece])
    assert set(all_rows(db)[name]) - set(before[name]) == ({(2,), (3,)} if is_attached else set())
    assert db.verify(deep=True).is_sound


def all_rows(db: Store) -> dict[str, list[tuple]]:
    return {name: rows(db[name]) for name in ("t", "first", "plain")}


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def date_all(root: Path, clock: Clock) -> None:
    """Date the files that are there by the clock."""
    then = clock() / 1e6
    for path in files_of(root):
        os.utime(path, (then, then))
