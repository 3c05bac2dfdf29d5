"""Who slept until FLOOR had passed the record that it made does nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from siltstone.admin import follow_vacuum
from siltstone.failpoints import Failpoint
from siltstone.maintenance.merge.merge import Merged
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.maintenance.stores import Clock, env_of, open_store, rows

KEYED = {"id": "int64", "v": "int64"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock):
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        table = store.create_table("t", KEYED, primary_key="id")
        table.upsert([{"id": n, "v": 1} for n in range(5)])
        yield store


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch):
    """Sleep once after a record is made, while `meanwhile` goes on."""

    def until(meanwhile: Callable[[], object]) -> None:
        left = [meanwhile]

        def cross(point: object) -> None:
            if point is Failpoint.PUBLISH_AFTER_CREATE and left:
                left.pop()()

        monkeypatch.setattr("siltstone.storage.manifest.manifest_store.cross", cross)

    return until


def pass_by(db, clock: Clock) -> None:
    """Let others publish, and a vacuum raise FLOOR above all that was there before."""
    manifests = ManifestStore(RealFiles(), db.path)
    for _ in range(3):
        clock.move(seconds=10)
        manifests.publish(msgspec.structs.replace, base=manifests.newest())
    clock.move(seconds=10)
    follow_vacuum(db.path, db.options, env_of(clock), dry_run=False, grace_s=3600)


@pytest.mark.parametrize("is_leased", [True, False], ids=["leased", "vacuumed"])
def test_a_checkpoint_flushes_no_row_twice(db, clock, asleep, is_leased) -> None:
    before = db.changes()["t"].read_all().num_rows
    leases = []

    def meanwhile() -> None:
        if is_leased:
            leases.append(ManifestStore(RealFiles(), db.path).lease_newest()[1])
        pass_by(db, clock)

    asleep(meanwhile)
    db.checkpoint()
    assert db.changes()["t"].read_all().num_rows == before
    assert rows(db["t"]) == [(n, 1) for n in range(5)]
    assert [entry.seq for entry in db.log()] == [*range(db.seq, 0, -1)]
    for lease in leases:
        assert ManifestStore(RealFiles(), db.path).path(lease.number).exists()
    assert db.verify(deep=True).is_sound


def test_a_merge_that_is_published_is_done(db, clock, asleep) -> None:
    db.checkpoint()
    asleep(lambda: pass_by(db, clock))
    found = db.merge()
    assert isinstance(found, Merged)
    assert found.rows == 5
    assert rows(db["t"]) == [(n, 1) for n in range(5)]
