"""What an owner made durable and nobody was told of is no garbage, also when it died since."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.admin import follow_vacuum
from siltstone.errors import BusyError
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import own
from tests.maintenance.stores import Clock, env_of, open_store, paths, rows

KEYED = {"id": "int64", "v": "int64"}


class NoMark:
    """MARK of a process that is killed before it writes it."""

    def pwrite(self, *_: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock):
    store = open_store(tmp_path / "s", clock, retention_s=0)
    store.create_table("p", KEYED).append([{"id": 1, "v": 1}])
    store.checkpoint()
    return store


def beside(db, clock: Clock) -> None:
    follow_vacuum(db.path, db.options, env_of(clock), dry_run=False, grace_s=0)


def test_a_frame_behind_mark_of_an_owner_that_died_keeps_its_files(db, clock, monkeypatch):
    tx = db.transaction()
    tx["p"].append([{"id": 100, "v": 1}])
    (db.path / "tables" / "orphan.lance").write_bytes(b"x")
    clock.move(seconds=100)
    held, looks = Vacuum._held, []

    def die_at_first(self, limit_us: int) -> int:
        found = held(self, limit_us)
        if not looks:
            db._parts.owner.wal._mark = NoMark()
            tx.commit()
            db._parts.owner.ownership.release()
        looks.append(found)
        return found

    monkeypatch.setattr(Vacuum, "_held", die_at_first)
    with pytest.raises(BusyError, match="owner"):
        beside(db, clock)
    monkeypatch.undo()
    with open_store(db.path, clock, retention_s=0) as heir:
        assert rows(heir["p"]) == [(1, 1), (100, 1)]
        assert heir.verify(deep=True).is_sound


def test_nothing_is_deleted_beside_an_owner_that_has_not_recovered_the_log(db, clock):
    db["p"].append([{"id": 100, "v": 1}])
    (db.path / "wal" / "MARK").unlink()  # it is never synced: a power loss
    db._parts.owner.ownership.release()
    clock.move(seconds=100)
    heir = own(RealFiles(), db.path)
    before = {path for path in paths(db.path) if path.startswith("tables/")}
    with pytest.raises(BusyError, match="owner"):
        beside(db, clock)
    heir.release()
    assert before == {path for path in paths(db.path) if path.startswith("tables/")}
    with open_store(db.path, clock, retention_s=0) as again:
        assert rows(again["p"]) == [(1, 1), (100, 1)]
