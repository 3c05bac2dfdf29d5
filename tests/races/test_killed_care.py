"""SIGKILL in backup, restore and repair: run again it completes, and nothing half made is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import siltstone as st
from siltstone import admin
from siltstone.failpoints import Failpoint, Point
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.races import shop
from tests.races.ledger import killed_at, points_of
from tests.races.processes import Spares
from tests.races.test_killed import kill, looks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("care") / "shop"
    shop.make(root)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "shop"))


@killed_at(points_of("backup"))
def test_a_backup_killed_at_every_failpoint_is_whole_or_none(
    spares: Spares, root: Path, point: Point
) -> None:
    with st.connect(root, **shop.OPTIONS) as db:
        first, looked = db.backup(shop.backups_of(root)), looks(db)
        db["wide"].upsert({"id": 7_000, "name": "since", "n": 1}, missing="null")
        after = looks(db)
        kill(spares, root, "backup", point, is_owner=False)
        is_made = point is Failpoint.BACKUP_AFTER_PUBLISH
        assert [b.seq for b in st.backups(shop.backups_of(root))] == [first.seq, db.seq][
            : 1 + is_made
        ]
        st.restore(shop.backups_of(root), shop.restored_of(root))
        with st.connect(shop.restored_of(root), **shop.OPTIONS) as again:
            assert looks(again) == (after if is_made else looked)
            assert again.verify(deep=True).is_sound
        shutil.rmtree(shop.restored_of(root))
        db.backup(shop.backups_of(root), incremental=True)
        assert looks(db) == after
    st.restore(shop.backups_of(root), shop.restored_of(root))
    with st.connect(shop.restored_of(root), read_only=True) as again:
        assert looks(again) == after


@killed_at(points_of("restore"))
def test_a_restore_killed_at_every_failpoint_is_completed_by_the_next(
    spares: Spares, root: Path, point: Point
) -> None:
    with st.connect(root, **shop.OPTIONS) as db:
        db.backup(shop.backups_of(root))
        expected = looks(db)
    kill(spares, root, "restore", point, is_owner=False)
    target = shop.restored_of(root)
    if point is not Failpoint.RESTORE_AFTER_PUBLISH:
        with pytest.raises(st.RequestError, match="half restored"):
            st.connect(target)
    st.restore(shop.backups_of(root), target)
    with st.connect(target, **shop.OPTIONS) as db:
        assert looks(db) == expected
        assert db.verify(deep=True).is_sound


@killed_at(points_of("repair"))
def test_a_repair_killed_at_every_failpoint_is_completed_by_the_next(
    spares: Spares, root: Path, point: Point
) -> None:
    with st.connect(root, **shop.OPTIONS) as db:
        db.vacuum(dry_run=False)
        expected = looks(db)
    assert not isinstance(admin.merge_store(root), st.Deferred)
    manifests = ManifestStore(RealFiles(), root)
    newest = manifests.path(manifests.newest().number)
    newest.write_bytes(newest.read_bytes()[:-40])
    (root / "manifest" / "FLOOR").unlink()
    kill(spares, root, "repair", point, is_owner=False)
    assert admin.repair(root, dry_run=False).is_whole
    with st.connect(root, **shop.OPTIONS) as db:
        assert looks(db) == expected
        assert db.verify(deep=True).is_sound
        db["wide"].upsert({"id": 7_000, "name": "since", "n": 1}, missing="null")
        db.checkpoint()
        assert db["wide"].get(7_000)["name"] == "since"
    assert admin.repair(root, dry_run=False).steps == ()
