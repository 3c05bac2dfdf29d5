"""Files have two names as soon as an owner opens the store; `verify` tells which have one."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import lance
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.maintenance.gc.sweep import UNPUBLISHED, Removed, Sweep
from siltstone.maintenance.merge import merge
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.files.files import RealFiles
from siltstone.storage.tables import kept_names
from tests.namespace.test_clean_up import check, keyed_past, path_clean_up, plain_past

OPTIONS = {"segment_bytes": 65536, "background": False}


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)  # merges hide rows, of few


def forget_kept_names(root: Path) -> None:
    """Make a store as a siltstone left it that knew of one name for each file."""
    homes = list(root.glob(f"tables/**/{kept_names.KEPT}"))
    assert homes
    for home in homes:
        shutil.rmtree(home)


@pytest.mark.parametrize("make", [plain_past, keyed_past])
def test_a_store_of_an_older_siltstone_is_safe_once_it_was_opened(tmp_path: Path, make) -> None:
    root = tmp_path / "shop"
    with st.connect(root, **OPTIONS) as db:
        past = make(db)
    forget_kept_names(root)
    with st.connect(root, read_only=True) as db:
        for seq, expected in past.items():
            with db.snapshot(seq=seq) as then:
                assert sorted(then["t"].to_arrow()["id"].to_pylist()) == expected
        found = db.verify()
        assert found.is_sound
        (told,) = [finding for finding in found.findings if "clean-up" in finding.message]
        assert "open the store once for writing" in told.message
        assert not list(root.glob(f"tables/**/{kept_names.KEPT}"))
    with st.connect(root, **OPTIONS) as db:
        assert db.verify().findings == ()
        path_clean_up(db, "t")
        check(db, past, tmp_path / "backup")


def test_a_public_name_that_is_gone_is_told_and_made_again(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", **OPTIONS) as db:
        past = plain_past(db)
        path_clean_up(db, "t")
        found = db.verify(deep=True)
        assert found.is_sound
        (told,) = found.findings
        assert "no public name any more" in told.message
    with st.connect(tmp_path / "shop", **OPTIONS) as db:
        assert db.verify(deep=True).findings == ()
        check(db, past, tmp_path / "backup")


def test_vacuum_takes_both_names_away(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", retention_s=0, **OPTIONS) as db:
        table = db.create_table("t", {"id": "int64"})
        table.append([{"id": 1}])
        table.overwrite([{"id": 2}])
        path_clean_up(db, "t")
        assert len(names(db)) == 3, "two files, one of which has lost its public name"
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert len(names(db)) == 2, "one file, by its two names"
        assert table.to_arrow()["id"].to_pylist() == [2]


def names(db: Store) -> set[str]:
    return {str(path) for path in db.path.glob("tables/**/*.lance")}


class LinkedMeanwhile(RealFiles):
    """Real files, where another process puts a file into a directory just before it is removed."""

    def rmdir(self, path: Path) -> None:
        if path.parent.name == kept_names.KEPT:
            (path / "linked.lance").write_bytes(b"by another process")
        super().rmdir(path)


def test_a_directory_that_somebody_links_into_as_it_is_emptied_stays(tmp_path: Path) -> None:
    for path in ("data/a.lance", "_siltstone/_kept/data/a.lance", "_siltstone/x/1.manifest"):
        (tmp_path / "tables/t-1" / path).parent.mkdir(parents=True)
        (tmp_path / "tables/t-1" / path).write_bytes(b"")
    sweep = Sweep(LinkedMeanwhile(), tmp_path)
    sweep.delete([Removed("tables/t-1/data/a.lance", 0, UNPUBLISHED)])
    assert (tmp_path / "tables/t-1/_siltstone/_kept/data").is_dir(), "the next file goes there"
    sweep.delete([Removed("tables/t-1/_siltstone/x/1.manifest", 0, UNPUBLISHED)])
    assert list(tmp_path.glob("tables/**/*.lance")) == [
        tmp_path / "tables/t-1/_siltstone/_kept/data/linked.lance"
    ]


def test_a_file_of_an_index_that_lost_its_public_name_gets_it_back(tmp_path: Path) -> None:
    """Of the files of an index the directory of the index alone tells that one is gone."""
    with st.connect(tmp_path / "shop", **OPTIONS) as db:
        plain_past(db)
        ns = SiltstoneNamespace(db)
        lance.dataset(namespace_client=ns, table_id=["t"]).create_scalar_index("id", "BTREE")
        (folder,) = db.path.glob("tables/t-*")
        files = sorted(folder.glob("_indices/*/*"))
        past = time.time() - 60
        for path in [*folder.rglob("*"), folder]:
            if path.is_dir():
                os.utime(path, (past, past))  # as it is a minute later
        lance.dataset(namespace_client=ns, table_id=["t"])
        for path in files:
            path.unlink()
        lance.dataset(namespace_client=ns, table_id=["t"])
        assert sorted(folder.glob("_indices/*/*")) == files
