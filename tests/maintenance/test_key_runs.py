"""Every base that maintenance made has key runs; damage of one is named, and repaired."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.engine.levels.base import Base
from siltstone.formats.key_run import PAGE_BYTES, PAGE_ROWS
from siltstone.formats.manifest import KeyRun, Pin
from siltstone.maintenance.merge import merge
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables.keys import key_cover

OPTIONS = {"segment_bytes": 1 << 20, "background": False, "retention_s": 0}
SCHEMA = {"id": "string", "v": "int64"}


def rows(numbers: range, value: int) -> list[dict[str, object]]:
    return [{"id": f"k{n}", "v": value} for n in numbers]


def folded(db: st.Store, numbers: range, value: int) -> None:
    db["t"].upsert(rows(numbers, value), missing="null")
    db.checkpoint()
    db.merge()


def base(root: Path) -> Pin:
    (storage,) = ManifestStore(RealFiles(), root).newest().keyed
    assert storage.base is not None
    return storage.base


def content(root: Path) -> dict[str, int]:
    with st.connect(root, **OPTIONS) as db:
        found = {n: db["t"].get(f"k{n}") for n in range(900)}
    return {f"k{n}": row["v"] for n, row in found.items() if row is not None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        folded(db, range(600), 0)
        folded(db, range(500, 700), 1)
        db["t"].delete([f"k{n}" for n in range(100, 110)])
        folded(db, range(5), 2)
    return tmp_path / "s"


WANTED = {f"k{n}": 2 if n < 5 else 1 if n >= 500 else 0
          for n in range(700) if not 100 <= n < 110}  # fmt: skip


def test_no_reader_builds_an_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Base, "_by_scan", None)
    monkeypatch.setattr(Base, "_uncovered_index", None)
    assert content(root) == WANTED
    with st.connect(root, **OPTIONS) as db:
        folded(db, range(690, 800), 3)
        assert db["t"].get("k695") == {"id": "k695", "v": 3}
        db.optimize(target_rows=100)
        assert db["t"].get("k695") == {"id": "k695", "v": 3}
        db["t"].add_column("w", "int64")
        folded(db, range(3), 4)
        assert db["t"].get("k2") == {"id": "k2", "v": 4, "w": None}
        assert db.verify(deep=True).is_sound


def test_a_bulk_load_writes_the_runs_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Base, "_by_scan", None)
    with st.connect(tmp_path, **OPTIONS) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        monkeypatch.setattr("siltstone.maintenance.flush.bulk_load.LOAD_BYTES_MIN", 1)
        table.upsert(loaded(range(500)))
        assert table.get("k7") == {"id": "k7", "v": 7}
    with st.connect(tmp_path, **OPTIONS) as db:
        assert db["t"].get("k7") == {"id": "k7", "v": 7}
        db.checkpoint()
        assert base(tmp_path).runs
        assert db["t"].get("k499") == {"id": "k499", "v": 499}


def loaded(numbers: range) -> pa.Table:
    ids = pa.array([f"k{n}" for n in numbers])
    return pa.table({"id": ids, "v": pa.array(np.array(numbers))})


def test_old_runs_go_with_vacuum_and_no_needed_one(root: Path) -> None:
    with st.connect(root, **OPTIONS) as db:
        for turn in range(6):
            folded(db, range(turn, turn + 9), turn)
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound
    folder = (root / base(root).runs[0].path).parent
    named = {run.path.rpartition("/")[2] for run in base(root).runs}
    assert {path.name for path in folder.iterdir()} == named


def test_a_backup_takes_the_runs_along(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with st.connect(root, **OPTIONS) as db:
        db.backup(tmp_path / "b")
    monkeypatch.setattr(Base, "_by_scan", None)
    st.restore(tmp_path / "b", tmp_path / "r")
    assert content(tmp_path / "r") == WANTED


@pytest.mark.parametrize("at", ["page", "foot", "cut", "gone"])
def test_a_damaged_run_is_named_and_written_again(root: Path, at: str) -> None:
    run = base(root).runs[0]
    path = root / run.path
    data = bytearray(path.read_bytes())
    pages = range(0, -(-run.entries // PAGE_ROWS) * PAGE_BYTES, PAGE_BYTES)
    for place in [page + 100 for page in pages] if at == "page" else [-50]:  # any may have the key
        data[place] ^= 1
    path.unlink()
    if at != "gone":
        path.write_bytes(data[:-1] if at == "cut" else data)
    report = admin.verify_store(root, deep=True)
    assert not report.is_sound
    assert {found.path.endswith(path.name) for found in report.findings} == {True}
    if at in {"foot", "cut", "page"}:
        with st.connect(root, **OPTIONS) as db, pytest.raises(st.CorruptionError) as caught:
            db["t"].get("k7")
        assert caught.value.path == path
    done = admin.repair(root, dry_run=False, deep=True)
    assert done.is_whole
    assert "the key run is written again" in str(done)
    assert admin.verify_store(root, deep=True).is_sound
    assert base(root).runs
    assert content(root) == WANTED
    with st.connect(root, **OPTIONS) as db:
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound
    assert content(root) == WANTED


Entries = tuple[np.ndarray, np.ndarray]
WRONG = {
    "lacks 2 rows of its parts, 0 are wrong": lambda codes, places: (codes[:-2], places[:-2]),
    "lacks 50 rows of its parts, 50 are wrong": lambda codes, places: (codes, np.roll(places, 1)),
    "lacks 0 rows of its parts, 50 are wrong": lambda codes, places: (
        np.repeat(codes, 2), np.repeat(places, 2)),
    "lacks 0 rows of its parts, 1 are wrong": lambda codes, places: (
        np.roll(codes, 1), np.roll(places, 1)),
}  # fmt: skip


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a store with a run that is not what its parts say, but intact; return what is wrong."""
    entries = key_cover.sorted_entries

    def changed(codes: np.ndarray, places: np.ndarray) -> Entries:
        return WRONG[request.param](*entries(codes, places))

    with monkeypatch.context() as bug:
        bug.setattr(key_cover, "sorted_entries", changed)
        with st.connect(tmp_path, **OPTIONS) as db:
            db.create_table("t", SCHEMA, primary_key="id")
            folded(db, range(50), 0)
    return request.param


def test_an_intact_run_that_is_wrong_is_named_and_written_again(tmp_path: Path, wrong: str) -> None:
    bad = base(tmp_path).runs[0].path
    (found,) = admin.verify_store(tmp_path, deep=True).findings
    assert found.path == bad
    assert wrong in found.message
    assert admin.repair(tmp_path, deep=True).is_whole
    assert base(tmp_path).runs[0].path == bad, "a dry run changes nothing"
    done = admin.repair(tmp_path, dry_run=False, deep=True)
    assert done.is_whole
    assert "the key run is written again" in str(done)
    assert bad not in {run.path for run in base(tmp_path).runs}
    assert admin.verify_store(tmp_path, deep=True).is_sound
    assert content(tmp_path) == {f"k{n}": 0 for n in range(50)}


def test_a_wrong_run_that_only_older_records_name_is_named_and_left_out(
    tmp_path: Path, wrong: str
) -> None:
    bad = base(tmp_path).runs[0].path
    with st.connect(tmp_path, **OPTIONS) as db:
        db.tag("then")
        folded(db, range(60, 70), 1)  # the small part is written anew, with another run
    assert bad not in {run.path for run in base(tmp_path).runs}
    (found,) = admin.verify_store(tmp_path, deep=True).findings
    assert (found.path, wrong in found.message) == (bad, True)
    assert admin.repair(tmp_path, dry_run=False, deep=True).is_whole
    assert admin.verify_store(tmp_path, deep=True).is_sound
    with st.connect(tmp_path, **OPTIONS) as db:
        then = db.snapshot(tag="then")["t"]
        assert [then.get(f"k{n}") for n in (3, 49, 50)] == [
            {"id": "k3", "v": 0}, {"id": "k49", "v": 0}, None]  # fmt: skip


def damage(path: Path, at: str) -> None:
    """Damage a run; "magic": it seems to be another kind of file."""
    data = bytearray(path.read_bytes())
    for place in {"page": [100], "foot": [-50], "magic": [-18]}.get(at, []):
        data[place] ^= 1
    path.unlink()
    path.write_bytes(data[:-1] if at == "cut" else data)


@pytest.mark.parametrize("at", ["page", "foot", "cut", "magic"])
def test_a_merge_that_finds_a_run_damaged_says_so_and_writes_it_again(
    root: Path, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = base(root).runs[0]
    damage(root / run.path, at)
    with st.connect(root, **OPTIONS) as db:
        folded(db, range(600), 3)
    healed(root, run, caplog)
    assert content(root) == WANTED | {f"k{n}": 3 for n in range(600)}


@pytest.mark.parametrize("at", ["foot", "cut", "magic"])
def test_an_optimize_that_finds_a_run_damaged_says_so_and_writes_it_again(
    root: Path, at: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    with st.connect(root, **OPTIONS) as db:
        for numbers in (range(800, 850), range(850, 900)):
            folded(db, numbers, 3)
    run = base(root).runs[0]
    damage(root / run.path, at)
    with st.connect(root, **OPTIONS) as db:
        assert db.optimize(target_rows=400).files_before
    healed(root, run, caplog)
    assert content(root) == WANTED | {f"k{n}": 3 for n in range(800, 900)}


def healed(root: Path, damaged: KeyRun, caplog: pytest.LogCaptureFixture) -> None:
    """Check that a damaged run was named, and that others cover all parts instead."""
    assert Path(damaged.path).name in caplog.text
    assert damaged.path not in {run.path for run in base(root).runs}
    with st.connect(root, **OPTIONS) as db:
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound
    tables = lance_tables(root, RealFiles())
    assert not tables.keys.open(base(root)).uncovered
