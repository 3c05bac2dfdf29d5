"""After a repair the newest record has the format of all that the log has, owner or no owner.

An older siltstone asks the newest record alone whether it may read the log. A repair may go back to
a record from before the format of the store was raised.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone import admin, failpoints
from siltstone.errors import CorruptionError
from siltstone.failpoints import Failpoint, FailpointError
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.maintenance.stores import UnsyncedFiles, paths

KEYED = {"id": "int64", "v": "int64"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of format 2: the last commits in its log need it, and older records do not."""
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", KEYED, primary_key="id").upsert({"id": 1, "v": 1})
        db.checkpoint()
        assert format_of(db.path) == 1
        with db.transaction() as tx:
            tx.lance.create_namespace("a", {"owner": "x"})
            tx.create_table("a.t", {"u": "uuid"})
        assert format_of(db.path) == 2
    return tmp_path / "s"


def format_of(root: Path) -> int:
    return ManifestStore(UnsyncedFiles(), root).newest().format


def records(root: Path) -> list[Path]:
    return sorted((root / "manifest").glob("*.json"))


def formats(root: Path) -> list[int]:
    manifests = ManifestStore(UnsyncedFiles(), root)
    return [manifests.read(number).format for number in manifests.numbers()]


def of_format(root: Path, level: int) -> list[Path]:
    return [
        path for path, found in zip(records(root), formats(root), strict=True) if found == level
    ]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def repaired(root: Path) -> st.Repaired:
    found = st.repair(root, dry_run=False)
    assert found.is_whole, str(found)
    assert st.repair(root).steps == ()
    return found


def is_whole(root: Path) -> None:
    """The store is of format 2 for all who read it, before any owner opened it."""
    assert format_of(root) == 2
    before = paths(root)
    with st.connect(root, read_only=True) as db:
        assert db.tables() == ["a.t", "t"]
    admin.backup_store(root, root.with_name("backup"))
    assert paths(root) == before
    st.restore(root.with_name("backup"), root.with_name("restored"))
    assert format_of(root.with_name("restored")) == 2
    for path in (root, root.with_name("restored")):
        with st.connect(path, background=False) as db, db.snapshot() as now:
            assert db.tables() == ["a.t", "t"]
            assert now.namespaces() == {"a": {"owner": "x"}}
            assert db.verify(deep=True).is_sound
        assert format_of(path) == 2


def test_a_repair_that_goes_back_to_a_record_of_format_1_publishes_it_as_2(root: Path) -> None:
    for path in of_format(root, 2):
        damage(path)
    repaired(root)
    is_whole(root)


@pytest.mark.parametrize("point", [Failpoint.REPAIR_BEFORE_PUBLISH, Failpoint.REPAIR_AFTER_PUBLISH])
def test_a_repair_that_ends_before_its_record_leaves_none_of_format_1_on_top(
    root: Path, point: failpoints.Point
) -> None:
    for path in of_format(root, 2):
        damage(path)
    failpoints.arm(f"{point.label}=raise")
    try:
        with pytest.raises((st.SiltstoneError, FailpointError)):
            st.repair(root, dry_run=False)
    finally:
        failpoints.disarm()
    assert format_of(root) == 2
    st.repair(root, dry_run=False)
    is_whole(root)


def test_a_lost_record_of_format_2_is_named_and_repaired(root: Path) -> None:
    for path in of_format(root, 2):
        path.unlink()
    assert formats(root)[-1] == 1
    found = admin.verify_store(root)
    assert not found.is_sound
    assert "its format is 1, the log is of format 2" in str(found)
    with pytest.raises(CorruptionError, match="its format is 1, the log is of format 2"):
        admin.backup_store(root, root.with_name("backup"))
    assert "format" in str(repaired(root))
    assert admin.verify_store(root, deep=True).is_sound
    is_whole(root)
