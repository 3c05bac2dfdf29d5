"""A store that was copied without its hard links has two files of each name: neither is lost.

The store reads the one in `_siltstone/_kept`, other programs the public one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

import siltstone as st
from siltstone.storage.tables import kept_names
from tests.maintenance.test_repair import damage

OPTIONS = {"background": False, "retention": "0s"}
SCHEMA = {"id": "int64", "v": "string"}
FILES = {"plain": "tables/p-*/data/*", "base": "tables/t-*/base/data/*",
         "index": "tables/t-*/base/_indices/*/*"}  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": n, "v": "a"} for n in range(20)])
        db.create_table("p", SCHEMA).append([{"id": n, "v": "a"} for n in range(20)])
        db.checkpoint()
        db.merge()
        db["t"].create_index("v")
        db.vacuum(dry_run=False, grace_s=0)
    return Path(shutil.copytree(tmp_path / "s", tmp_path / "copy"))


def file_of(root: Path, kind: str) -> tuple[Path, Path]:
    """Return the two names of a file."""
    path = max(root.glob(FILES[kind]), key=lambda path: path.stat().st_size)
    home = kept_names.kept_of(str(path.relative_to(root)))
    assert home is not None
    assert not (root / home).samefile(path)
    return path, root / home


def put_aside(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in (root / "quarantine").glob("*/[0-9]*")]


def require_whole(root: Path) -> None:
    assert st.repair(root, dry_run=False, deep=True).steps == ()
    with st.connect(root, **OPTIONS) as db:
        assert db.verify(deep=True).findings == ()
        for name in ("t", "p"):
            assert db[name].to_arrow(["id"], "v = 'a'").num_rows == db[name].count() == 20
        db["t"].upsert({"id": 1, "v": "a"})
        db["p"].append([{"id": 20, "v": "a"}])
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).findings == ()
        assert db.import_external("p").rows == 0


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_whose_other_copy_is_whole_is_put_aside_and_that_one_serves(
    copy: Path, kind: str
) -> None:
    public, home = file_of(copy, kind)
    whole = public.read_bytes()
    damage(home)
    damaged = home.read_bytes()
    preview = st.repair(copy, deep=True)
    assert home.read_bytes() == damaged
    done = st.repair(copy, dry_run=False, deep=True)
    assert done.steps == preview.steps
    assert (len(done.steps), done.is_whole) == (1, True), done
    assert put_aside(copy) == [damaged]
    assert public.read_bytes() == whole
    assert home.samefile(public)
    require_whole(copy)


def test_of_two_damaged_copies_of_an_index_both_are_put_aside(copy: Path) -> None:
    public, home = file_of(copy, "index")
    damage(home)
    public.write_bytes(b"worse")
    both = {home.read_bytes(), b"worse"}
    assert st.repair(copy, dry_run=False, deep=True).is_whole
    assert both <= set(put_aside(copy))
    require_whole(copy)


def test_two_damaged_copies_of_a_plain_table_are_only_named(copy: Path) -> None:
    for path in file_of(copy, "plain"):
        damage(path)
    done = st.repair(copy, dry_run=False, deep=True)
    assert (done.steps, done.is_whole) == ((), False)


def test_a_version_that_does_not_serve_any_more_goes_from_the_plain_path_of_a_copy(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id").upsert([{"id": n, "v": "a"} for n in range(20)])
        db.checkpoint()
        db.merge()
        db["t"].upsert([{"id": n, "v": "b"} for n in range(20)])
        db.checkpoint()
        before = set((tmp_path / "s/manifest").glob("*.json"))
        db.merge()
    copy = Path(shutil.copytree(tmp_path / "s", tmp_path / "copy"))
    for root in (tmp_path / "s", copy):  # what a repair does to the one it does to the other
        (base,) = root.glob("tables/t-*/base")
        assert set(lance.dataset(str(base)).to_table()["v"].to_pylist()) == {"b"}
        for path in sorted((root / "manifest").glob("*.json")):
            if tmp_path / "s/manifest" / path.name not in before:
                damage(path)
        done = st.repair(root, dry_run=False, deep=True)
        assert done.is_whole, done
        assert set(lance.dataset(str(base)).to_table()["v"].to_pylist()) == {"a"}, root
        with st.connect(root, **OPTIONS) as db:
            assert set(db["t"].to_arrow()["v"].to_pylist()) == {"b"}
            for _ in range(2):
                db.checkpoint()
                db.merge()
                db.vacuum(dry_run=False, grace_s=0)
            assert db.verify(deep=True).findings == ()
            assert set(lance.dataset(str(base)).to_table()["v"].to_pylist()) == {"b"}
