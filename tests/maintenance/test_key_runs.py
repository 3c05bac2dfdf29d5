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
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables import key_cover

OPTIONS = {"segment_bytes": 1 << 20, "background": False, "retention_s": 0}
SCHEMA = {"id": "string", "v": "int64"}


def rows(numbers: range, value: int) -> list[dict[str, object]]:
    return [{"id": f"k{n}", "v": value} for n in numbers]


def folded(db: st.Store, numbers: range, value: int) -> None:
    db["t"].upsert(rows(numbers, value))
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


def test_a_run_that_lacks_rows_of_its_parts_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = key_cover.sorted_entries

    def lossy(codes: np.ndarray, places: np.ndarray):
        codes, places = entries(codes, places)
        return codes[:-2], places[:-2]

    monkeypatch.setattr(key_cover, "sorted_entries", lossy)
    with st.connect(tmp_path, **OPTIONS) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        folded(db, range(50), 0)
        (found,) = db.verify(deep=True).findings
    assert found.path == base(tmp_path).runs[0].path
    assert "lacks 2 rows of its parts, 0 are wrong" in found.message


def test_a_run_with_codes_of_other_rows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = key_cover.sorted_entries

    def shifted(codes: np.ndarray, places: np.ndarray):
        codes, places = entries(codes, places)
        return codes, np.roll(places, 1)

    monkeypatch.setattr(key_cover, "sorted_entries", shifted)
    with st.connect(tmp_path, **OPTIONS) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        folded(db, range(50), 0)
        (found,) = db.verify(deep=True).findings
    assert "lacks 50 rows of its parts, 50 are wrong" in found.message
