"""An owner whose directory was replaced touches nothing of the store that is there now.

A notebook that still has the store open, a `rm -rf`, and a process that begins a new store at the
same path: their epochs and segments have the same numbers, so the files have the same names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.api.store import Store
from siltstone.errors import (
    FencedError,
    InDoubtError,
    PoisonedError,
    ReplacedError,
    UnavailableError,
)
from siltstone.storage.files.locks import FILE_TICK_NS
from siltstone.storage.manifest.ownership import read_holder
from tests.maintenance.stores import DAY_US, Clock, UnsyncedFile, open_store

SCHEMA = {"id": "int64", "v": "string"}
ROWS = 60  # of 2 KB: the second segment of the new store is in use


def written(root: Path, value: str, **options: object) -> Store:
    db = open_store(root, **options)
    table = db.create_table("t", SCHEMA, "id")
    for number in range(ROWS):
        table.upsert([{"id": number, "v": value * 2_000}])
    return db


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return each file with its inode, time and bytes."""
    return {
        str(path.relative_to(root)): (stat.st_ino, stat.st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
        for stat in [path.stat()]
    }


def fill(db: Store) -> None:
    """Write until the log needs its next segment."""
    for number in range(100):
        db["t"].upsert([{"id": number, "v": "o" * 2_000}])


def rest(db: Store) -> object:
    return db._parts.owner.rest.when_idle()


def vacuum(db: Store) -> object:
    return db.vacuum(dry_run=False, grace_s=0)


def prepare(db: Store) -> object:
    return db._parts.owner.wal.prepare()


def hear_news(db: Store) -> object:
    return db._parts.owner.checkpointer.refresh()


def merge(db: Store) -> object:
    return db.merge("t")


def checkpoint(db: Store) -> object:
    return db.checkpoint()


def optimize(db: Store) -> object:
    return db.optimize("t")


def serve(db: Store) -> object:
    return db.serve_local()


DOORS: list[Callable[[Store], object]] = [
    checkpoint,
    rest,
    vacuum,
    prepare,
    hear_news,
    fill,
    merge,
    optimize,
    serve,
]


@pytest.fixture
def old(tmp_path):
    """A store that is open, with a next segment that is ready, and in whose place another is."""
    db = open_store(tmp_path / "s", Clock(), retention_s=0)
    db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "o" * 40_000}])
    db._parts.owner.wal.prepare()
    shutil.move(tmp_path / "s", tmp_path / "aside")
    return db


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("door", DOORS)
def test_an_owner_does_nothing_to_the_store_in_place_of_its_own(old, door, is_open):
    new = written(old.path, "n")
    new.checkpoint()
    new.checkpoint()
    if not is_open:
        new.close()
    before = tree(old.path)
    with pytest.raises((UnavailableError, FencedError), match="deleted or replaced"):
        door(old)
    assert tree(old.path) == before
    old.close()
    assert tree(old.path) == before
    new.close()
    with open_store(old.path) as again:
        assert again["t"].count() == ROWS


def test_closing_takes_no_segment_of_the_store_in_its_place(old):
    new = written(old.path, "n")
    before = tree(old.path)
    old.close()
    assert tree(old.path) == before, "and LOCK says who owns it"
    assert read_holder(new._parts.site.files, old.path).pid is not None
    new.close()
    with open_store(old.path) as again:
        assert again["t"].count() == ROWS


def test_closing_makes_no_checkpoint_in_the_store_in_its_place(tmp_path):
    old = open_store(tmp_path / "s")
    table = old.create_table("t", SCHEMA, "id")
    for number in range(300):
        table.upsert([{"id": number, "v": "o"}])
    shutil.move(tmp_path / "s", tmp_path / "aside")
    with written(tmp_path / "s", "n") as new:
        before = tree(tmp_path / "s")
        old.close()
        assert tree(tmp_path / "s") == before
        assert new["t"].count() == ROWS
    shutil.rmtree(tmp_path / "s")
    shutil.move(tmp_path / "aside", tmp_path / "s")
    with open_store(tmp_path / "s") as again:
        assert again["t"].count() == 300, "what was moved away has all of it"


def test_an_owner_whose_directory_is_gone_closes_and_makes_nothing(tmp_path):
    old = written(tmp_path / "s", "o")
    shutil.rmtree(tmp_path / "s")
    for door in DOORS:
        with pytest.raises((UnavailableError, FencedError), match="deleted or replaced"):
            door(old)
    old.close()
    assert not (tmp_path / "s").exists()


def test_a_restored_store_of_the_same_epoch_is_not_taken_for_ours(tmp_path):
    """The same store id, epoch and record: a copy of the directory."""
    old = open_store(tmp_path / "s", clock := Clock())
    table = old.create_table("t", SCHEMA, "id")
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    table.upsert([{"id": 1, "v": "o" * 40_000}])
    old._owner().wal.prepare()
    shutil.move(tmp_path / "s", tmp_path / "aside")
    shutil.move(tmp_path / "copy", tmp_path / "s")
    clock.ahead_us += DAY_US
    before = tree(tmp_path / "s")
    for door in DOORS:
        with pytest.raises((UnavailableError, FencedError), match="deleted or replaced"):
            door(old)
    old.close()
    assert tree(tmp_path / "s") == before


# --- what is acknowledged


def gone(root: Path) -> None:
    shutil.rmtree(root)


def unlocked(root: Path) -> None:
    (root / "LOCK").unlink()


def upsert(db: Store, number: int) -> object:
    return db["t"].upsert([{"id": number, "v": "late"}])


def in_transaction(db: Store, number: int) -> object:
    with db.transaction() as tx:
        return tx["t"].upsert([{"id": number, "v": "late"}])


def asynchronously(db: Store, number: int) -> object:
    with db.transaction(durability="async") as tx:
        return tx["t"].upsert([{"id": number, "v": "late"}])


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("write", [upsert, in_transaction, asynchronously])
@pytest.mark.parametrize("lose", [gone, unlocked])
def test_an_owner_whose_lock_was_deleted_acknowledges_nothing(tmp_path, lose, write, background):
    with open_store(tmp_path / "s", background=background) as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        lose(tmp_path / "s")
        for number in (2, 3):
            with pytest.raises(UnavailableError, match="deleted or replaced"):
                write(db, number)
        assert db["t"].count() == 1


def test_who_owns_a_store_after_its_lock_was_deleted_is_alone(tmp_path):
    with open_store(tmp_path / "s") as old:
        old.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        unlocked(tmp_path / "s")
        program = "import siltstone as st; st.connect({!r})['t'].upsert({{'id': 2, 'v': 'new'}})"
        command = [sys.executable, "-c", program.format(str(tmp_path / "s"))]
        subprocess.run(command, check=True, timeout=60)
        with pytest.raises(UnavailableError, match="deleted or replaced"):
            upsert(old, 3)
        old.close()
    with open_store(tmp_path / "s") as again:
        assert sorted(row["id"] for row in again["t"].to_arrow().to_pylist()) == [1, 2]


def test_a_commit_whose_store_is_deleted_before_its_answer_is_in_doubt(tmp_path, monkeypatch):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        writes = UnsyncedFile.pwritev_synced

        def and_is_gone(
            self: UnsyncedFile, *given: object
        ) -> bool:  # between the sync and the answer
            found = writes(self, *given)
            gone(tmp_path / "s")
            return found

        monkeypatch.setattr(UnsyncedFile, "pwritev_synced", and_is_gone)
        with pytest.raises(InDoubtError):
            upsert(db, 2)
        with pytest.raises(PoisonedError):
            upsert(db, 3)


def test_commits_that_were_to_be_synced_later_are_not_said_to_be_in_a_deleted_store(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        asynchronously(db, 2)
        gone(tmp_path / "s")
        with pytest.raises(PoisonedError, match="deleted or replaced"):
            db._parts.owner.committer.sync()


@pytest.mark.parametrize("write", [upsert, in_transaction, asynchronously])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_an_owner_whose_directory_was_moved_acknowledges_nothing(tmp_path, write, is_fresh):
    """Moved back, it goes on: nobody else could own it meanwhile."""
    here, aside = tmp_path / "s", tmp_path / "aside"
    with open_store(here) as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        if not is_fresh:  # the directory was not changed for longer than a tick of its clock
            os.utime(here, ns=(0, 0))
            while time.time_ns() - here.stat().st_ctime_ns < 2 * FILE_TICK_NS:
                pass
            upsert(db, 1)
        here.rename(aside)
        for number in (2, 3):
            with pytest.raises(UnavailableError, match="deleted or replaced"):
                write(db, number)
        assert db["t"].count() == 1
        aside.rename(here)
        write(db, 4)
    with open_store(here) as again:
        assert sorted(row["id"] for row in again["t"].to_arrow().to_pylist()) == [1, 4]


def test_an_owner_in_a_directory_that_was_moved_stops_when_its_background_looks(tmp_path):
    (tmp_path / "place").mkdir()
    with open_store(tmp_path / "place" / "s") as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": "first"}])
        (tmp_path / "place").rename(tmp_path / "aside")
        with pytest.raises(ReplacedError):
            prepare(db)
        with pytest.raises(ReplacedError):
            upsert(db, 2)


def test_an_owner_that_has_seen_another_directory_acknowledges_nothing(old):
    """For good, also if its own is put back: files of its maintenance may be in the other one."""
    with written(old.path, "n") as new:
        with pytest.raises(UnavailableError, match="deleted or replaced"):
            prepare(old)
        new.close()
    shutil.rmtree(old.path)
    shutil.move(old.path.parent / "aside", old.path)
    with pytest.raises(UnavailableError, match="deleted or replaced"):
        upsert(old, 3)
    old.close()
    with open_store(old.path) as again:
        assert again["t"].count() == 1
