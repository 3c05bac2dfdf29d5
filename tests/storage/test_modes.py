"""What siltstone makes on disk is closed to other users, unless its directory was open to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st


@pytest.fixture(params=[0o000, 0o022])
def wide_umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(root: Path) -> list[Path]:
    """Return the directories that other users may enter."""
    return [path for path in (root, *root.rglob("*")) if path.is_dir() and mode(path) & 0o077]


def fill(db: st.Store) -> None:
    db.create_table("t", {"id": "int64"}, primary_key="id")
    db["t"].upsert([{"id": 1}])
    db.checkpoint()


def test_a_new_store_a_backup_and_a_restored_store_are_for_their_user_alone(
    tmp_path: Path, wide_umask: int
) -> None:
    shop, copies, again = tmp_path / "deep" / "shop", tmp_path / "copies", tmp_path / "again"
    with st.connect(shop, background=False) as db:
        fill(db)
        assert mode(shop / "LOCK") == 0o600
        db.backup(copies)
    st.restore(copies, again)
    for root in (shop, copies, again):
        assert mode(root) == 0o700
        assert mode(next(path for path in root.iterdir() if path.is_dir())) == 0o700
    assert mode(tmp_path / "deep") == mode(tmp_path) & ~wide_umask  # that one is not the store


def test_a_store_in_memory_is_for_its_user_alone(wide_umask: int) -> None:
    with st.connect(":memory:", background=False) as db:
        fill(db)
        assert mode(Path(db.path)) == 0o700, wide_umask
        assert mode(Path(db.path) / "LOCK") == 0o600


def test_a_store_for_a_group_may_be_read_by_it_and_by_nobody_else(
    tmp_path: Path, wide_umask: int
) -> None:
    shop = tmp_path / "shop"
    with st.connect(shop, background=False, group_access=True) as db:
        fill(db)
    assert mode(shop) == mode(shop / "manifest") == mode(shop / "tables") == 0o750, wide_umask
    assert mode(shop / "LOCK") == 0o640


def test_a_directory_that_exists_keeps_its_mode_and_so_does_an_older_store(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        shop = tmp_path / "shop"
        shop.mkdir(0o755)
        with st.connect(shop, background=False) as db:
            fill(db)
        assert mode(shop) == mode(shop / "manifest") == 0o755
        with st.connect(shop, background=False) as db:
            db.create_table("later", {"id": "int64"}, primary_key="id")
            db["later"].upsert([{"id": 1}])
            db.checkpoint()
        assert mode(shop) == 0o755
        assert {mode(path) for path in (shop / "tables").iterdir()} == {0o755}
    finally:
        os.umask(before)
