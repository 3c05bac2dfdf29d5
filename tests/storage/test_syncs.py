"""What is synced at once is durable at the end of the block, or the block raises."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from siltstone.storage.files.files import RealFiles
from siltstone.storage.files.syncs import Syncs


class Noting(RealFiles):
    """Real files that note what is synced, and refuse one name."""

    def __init__(self, refused: str = "") -> None:
        self.synced: list[str] = []
        self.refused = refused
        self._lock = threading.Lock()

    def sync_file(self, path: Path) -> None:
        self._note(path)
        super().sync_file(path)

    def sync_dir(self, path: Path) -> None:
        self._note(path)
        super().sync_dir(path)

    def _note(self, path: Path) -> None:
        if path.name == self.refused:
            raise OSError(28, "no space")
        with self._lock:
            self.synced.append(path.name)


def file(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_files_and_all_folders_above_are_synced_and_known_ones_once(tmp_path: Path) -> None:
    root, files = tmp_path / "root", Noting()
    syncs = Syncs(root, files)
    with syncs.all() as syncing:
        syncing.begin(file(root, "t/data/1"), is_known=False)
    assert sorted(files.synced) == ["1", "data", "root", "t"]
    files.synced.clear()
    with syncs.all() as syncing:
        syncing.begin(file(root, "t/data/2"), file(root, "t/new/3"), is_known=True)
    assert sorted(files.synced) == ["2", "3", "data", "new", "t"]
    files.synced.clear()
    with syncs.all() as syncing:
        syncing.begin(file(root, "t/data/4"), is_known=False)
    assert sorted(files.synced) == ["4", "data", "root", "t"]


class Meeting(RealFiles):
    """Real files whose syncs wait until as many run at once as one test syncs."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=30)

    def sync_file(self, path: Path) -> None:
        self._barrier.wait()
        super().sync_file(path)


def test_the_files_of_one_version_are_synced_at_once(tmp_path: Path) -> None:
    paths = [file(tmp_path / "root", f"t/data/{number}") for number in range(4)]
    with Syncs(tmp_path / "root", Meeting(len(paths))).all() as syncing:
        syncing.begin(*paths, is_known=False)


def test_a_sync_that_fails_is_raised_and_its_folders_are_not_taken_for_durable(
    tmp_path: Path,
) -> None:
    root, files = tmp_path / "root", Noting("data")
    syncs = Syncs(root, files)
    with pytest.raises(OSError, match="no space"), syncs.all() as syncing:
        syncing.begin(file(root, "t/data/1"), is_known=True)
    files.refused = ""
    files.synced.clear()
    with syncs.all() as syncing:
        syncing.begin(file(root, "t/data/1"), is_known=True)
    assert sorted(files.synced) == ["1", "data", "root", "t"]
