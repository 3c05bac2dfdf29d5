# pyright: basic
"""Who leased a record reads what the log above it names, until it lets go, whoever vacuums."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone import failpoints
from siltstone.admin import follow_vacuum
from siltstone.errors import UnavailableError
from siltstone.failpoints import Failpoint
from siltstone.maintenance.backup import backup
from siltstone.options import Options
from tests.maintenance.stores import Clock, env_of, open_store, rows
from tests.maintenance.test_backup import KEYED, beside, restored


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock):
    """A record, and above it versions of a plain table, and a row, that only the log names."""
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        store.create_table("p", KEYED).append([{"id": 0, "v": "a"}])
        store.create_table("t", KEYED, primary_key="id")
        store.checkpoint()
        for n in range(1, 4):
            store["p"].append([{"id": n, "v": "a"}])
            store["t"].upsert({"id": n, "v": "a"})
        yield store


def vacuum(db, clock, *, retention_s: float = 0) -> None:
    options = Options(background=False, segment_bytes=65_536, retention_s=retention_s)
    follow_vacuum(db.path, options, env_of(clock), dry_run=False, grace_s=0)


def past_goes(db, clock) -> None:
    """Have all versions superseded, and a vacuum die between its record and FLOOR.

    The next one keeps records for longer than that one said; the last one does not.
    """
    db.checkpoint()
    db["p"].overwrite([{"id": 9, "v": "b"}])
    db["t"].delete([1, 2, 3])
    db.checkpoint()
    clock.move(seconds=10)
    failpoints.arm(f"{Failpoint.VACUUM_AFTER_PUBLISH.label}=raise")
    try:
        with pytest.raises(UnavailableError):
            vacuum(db, clock)
    finally:
        failpoints.disarm()
    vacuum(db, clock, retention_s=3600)
    db["t"].upsert({"id": 10, "v": "b"})
    db.checkpoint()  # the owner, too, holds none of the records from before
    clock.move(seconds=10)
    vacuum(db, clock)


def data_files(db) -> list[Path]:
    return list((db.path / "tables").glob("p-*/data/*"))


def test_a_snapshot_beside_the_owner_outlives_a_vacuum_that_died_before_floor(db, clock, tmp_path):
    with open_store(tmp_path / "s", clock, read_only=True) as other, other.snapshot() as snapshot:
        past_goes(db, clock)
        assert rows(snapshot["p"]) == [(n, "a") for n in range(4)]
        assert rows(snapshot["t"]) == [(n, "a") for n in range(1, 4)]


def test_a_snapshot_of_the_owner_outlives_a_vacuum_that_died_before_floor(db, clock):
    with db.snapshot() as snapshot:
        past_goes(db, clock)
        assert rows(snapshot["p"]) == [(n, "a") for n in range(4)]
        assert rows(snapshot["t"]) == [(n, "a") for n in range(1, 4)]


def test_a_backup_outlives_a_vacuum_that_died_before_floor(db, clock, tmp_path, monkeypatch):
    seq, at = db.seq, []

    def cross(point: Failpoint) -> None:
        if point is Failpoint.BACKUP_AFTER_PLAN:
            at.append(point)
            past_goes(db, clock)

    monkeypatch.setattr(backup, "cross", cross)
    made = beside(db, tmp_path / "b")
    assert (len(at), made.seq) == (1, seq)
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert rows(again["p"]) == [(n, "a") for n in range(4)]
        assert again.verify(deep=True).is_sound


def test_what_a_lease_held_goes_once_it_is_let_go(db, clock, tmp_path):
    with open_store(tmp_path / "s", clock, read_only=True) as other, other.snapshot():
        past_goes(db, clock)
        assert len(data_files(db)) == 5
    for n in range(2):  # the first trims the newest record, the second gives up those before it
        db["t"].upsert({"id": 20 + n, "v": "b"})
        db.checkpoint()
        clock.move(seconds=10)
        vacuum(db, clock)
    assert len(data_files(db)) == 1
