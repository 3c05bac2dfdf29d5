"""Staged bulk rows are spared as long as a frame or a reader needs them, and then they go."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import follow_vacuum
from siltstone.api.store import Store
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.gc import live_store
from siltstone.maintenance.gc.sweep import distinct
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.storage.tables.jobs import FILE_TICK_S
from tests.engine import seams
from tests.engine.seams import GatedFiles, fake_env
from tests.maintenance.stores import Clock, data_paths, open_store, rows

KEYED = {"id": "int64", "v": "int64"}
ROWS = pa.table({"id": [2, 3], "v": [7, 7]})
EXPECTED = [(1, 1), (2, 7), (3, 7)]
GRACE_S = 3600.0


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def real_lance(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def db(root: Path, clock: Clock, real_lance: bool):
    with open_store(root, clock, real_lance=real_lance, retention_s=0) as store:
        store.create_table("t", KEYED, primary_key="id").upsert(
            [{"id": 1, "v": 1}, {"id": 2}], missing="null"
        )
        store.checkpoint()
        attach(store)
        yield store


def attach(db: Store) -> None:
    load_into(db, "t")
    assert attached(db.path), "the rows went another way"


def attached(root: Path) -> set[str]:
    return {path for path in data_paths(root) if "/.attached/" in path}


def named(db: Store) -> set[str]:
    """Return the files of the runs that only frames name."""
    pins = distinct(live_store.attached(db._parts.owner.vacuum._live.view()))
    return db._parts.site.tables.paths.needed(pins.values())


def grow_old(root: Path) -> None:
    """Let all files be older than any grace period."""
    for path in data_paths(root):
        os.utime(root / path, (0, 0))


def test_a_run_that_only_a_frame_names_is_spared_and_survives_a_reopen(
    db: Store, root: Path, clock: Clock, real_lance: bool
) -> None:
    kept = named(db)
    assert any("/.attached/" in path for path in kept)
    grow_old(root)
    assert not {file.path for file in db.vacuum(grace_s=0).files} & kept
    db.vacuum(dry_run=False, grace_s=0)
    assert kept <= data_paths(root)
    assert rows(db["t"]) == EXPECTED
    db.close()
    with open_store(root, clock, real_lance=real_lance, retention_s=0) as again:
        again.vacuum(dry_run=False, grace_s=0)
        assert kept == named(again) <= data_paths(root)
        assert rows(again["t"]) == EXPECTED


def test_a_vacuum_of_a_store_that_is_closed_meanwhile_spares_what_only_a_frame_names(
    db: Store, root: Path, clock: Clock, real_lance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = named(db)
    grow_old(root)
    monkeypatch.setattr(Vacuum, "_raise_gc_horizon", after_closing(db, Vacuum._raise_gc_horizon))
    with pytest.raises(st.ClosedError):
        db.vacuum(dry_run=False, grace_s=0)
    assert kept <= data_paths(root)
    with open_store(root, clock, real_lance=real_lance, retention_s=0) as again:
        assert rows(again["t"]) == EXPECTED


@pytest.mark.parametrize("is_beside", [False, True], ids=["owner", "beside"])
@pytest.mark.parametrize("name", ["keyed", "plain", "tag"])
def test_what_a_commit_in_doubt_names_stays_until_it_is_known(
    tmp_path: Path, name: str, is_beside: bool
) -> None:
    files, root = GatedFiles(), tmp_path / "s"
    db = seams.open_store(root, fake_env(files=files), retention_s=0)
    db.create_table("keyed", KEYED, primary_key="id")
    db.create_table("plain", KEYED)
    db["keyed"].upsert({"id": 1, "v": 1})
    seq = db.checkpoint().flushed_seq
    db["keyed"].upsert({"id": 1, "v": 2})
    db.checkpoint()
    db.merge()
    commits: dict[str, Callable[[], object]] = {
        "keyed": lambda: load_into(db, "keyed"),
        "plain": lambda: db["plain"].append(ROWS),
        "tag": lambda: db.tag("then", seq),
    }
    files.failure = OSError(5, "Input/output error")
    with pytest.raises(st.InDoubtError) as caught:
        commits[name]()
    files.failure = None
    until_older_than_a_tick()
    if is_beside:
        follow_vacuum(root, db.options, fake_env(), dry_run=False, grace_s=0)
    else:
        db.vacuum(dry_run=False, grace_s=0)
    db.close()
    with seams.open_store(root, fake_env(), retention_s=0) as again:
        assert again.outcome(caught.value.transaction_id) == "committed"
        if name == "tag":
            assert rows(again.snapshot(tag="then")["keyed"]) == [(1, 1)]
        else:
            assert {(2, 7), (3, 7)} <= set(rows(again[name]))
        assert not list((root / "jobs").glob("*.json")), "it is kept for ever"


def until_older_than_a_tick() -> None:
    """Wait until what was written just now may be taken by a vacuum without a grace period."""
    threading.Event().wait(2 * FILE_TICK_S)


def load_into(db: Store, name: str) -> None:
    definition, table_schema = db[name]._table_schema()
    load(db._core, definition, table_schema, ROWS, may_repeat=True, bytes_min=1)


def after_closing(db: Store, step: Callable[..., int]) -> Callable[..., int]:
    """Return a step of a vacuum before which another thread closes the store."""

    def closed_before(*arguments: object) -> int:
        db.close()
        return step(*arguments)

    return closed_before


def test_a_run_goes_after_its_checkpoint_and_the_grace_period(
    db: Store, root: Path, clock: Clock
) -> None:
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=GRACE_S)
    assert attached(root), "it is younger than the grace period"
    clock.move(days=1)
    db["t"].upsert({"id": 1, "v": 1})
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=GRACE_S)
    assert not attached(root)
    assert not any(path.name == ".attached" for path in root.rglob("*"))
    assert rows(db["t"]) == EXPECTED


def test_a_snapshot_from_before_the_checkpoint_keeps_the_run(db: Store, root: Path) -> None:
    kept = named(db)
    with db.snapshot() as snapshot:
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        assert kept <= data_paths(root)
        assert rows(snapshot["t"]) == EXPECTED
    db["t"].upsert({"id": 1, "v": 1})
    db.checkpoint()
    del snapshot
    db.vacuum(dry_run=False, grace_s=0)
    assert not attached(root)
    assert rows(db["t"]) == EXPECTED


def test_a_process_that_reads_beside_the_owner_keeps_the_run(
    db: Store, root: Path, clock: Clock, real_lance: bool
) -> None:
    with open_store(root, clock, real_lance=real_lance, read_only=True) as beside:
        snapshot = beside.snapshot()
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert rows(snapshot["t"]) == EXPECTED


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])  # a task opens the store by its path
def test_a_snapshot_keeps_rows_that_were_staged_long_before_they_were_attached(
    db: Store, root: Path, clock: Clock
) -> None:
    """Only the version over them, which the attach makes, is younger than the snapshot's record."""
    task = db.stage("t")
    piece = task.run(pa.table({"id": [8, 9], "v": [8, 9]}))
    for path in attached(root):
        os.utime(root / path, (1, 1))
    db["t"].upsert({"id": 7, "v": 7})
    db.checkpoint()
    with db.transaction() as tx:
        tx.attach(task, [piece])
    with db.snapshot() as snapshot:
        expected = rows(snapshot["t"])
        assert (9, 9) in expected
        db.checkpoint()
        db.merge()
        clock.move(days=1)
        db.vacuum(dry_run=False, grace_s=GRACE_S)
        assert rows(snapshot["t"]) == expected
    del snapshot, tx
    clock.move(days=1)
    db["t"].upsert({"id": 7, "v": 8})
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=GRACE_S)
    assert not attached(root)
