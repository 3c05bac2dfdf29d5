"""Every base that maintenance made has key runs, and ordered ones where codes are hashes.

Damage of one is named, and repaired.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.engine.levels.base import Base
from siltstone.formats.key_run import PAGE_BYTES
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
        rows = {f"k{n}": row["v"] for n, row in found.items() if row is not None}
        ordered = db["t"].range().read_all().to_pylist()
    assert [(row["id"], row["v"]) for row in ordered] == sorted(rows.items())
    return rows


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
    runs = base(tmp_path / "r").runs
    assert {run.is_ordered for run in runs} == {False, True}
    assert all((tmp_path / "r" / run.path).stat().st_size == run.size for run in runs)


def run_of(root: Path, kind: str) -> KeyRun:
    """Return the oldest run of a base, of one kind."""
    return next(run for run in base(root).runs if run.is_ordered == (kind == "ordered"))


def test_there_is_a_run_of_each_kind_for_texts_and_of_one_for_numbers(root: Path) -> None:
    assert {run.is_ordered for run in base(root).runs} == {False, True}
    with st.connect(root, **OPTIONS) as db:
        db.drop_table("t")
        db.create_table("t", {**SCHEMA, "id": "int64"}, primary_key="id").upsert({"id": 1, "v": 2})
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
    assert {run.is_ordered for run in base(root).runs} == {False}


@pytest.mark.parametrize("kind", ["key", "ordered"])
@pytest.mark.parametrize("at", ["page", "foot", "cut", "gone"])
def test_a_damaged_run_is_named_and_written_again(root: Path, at: str, kind: str) -> None:
    run = run_of(root, kind)
    path = root / run.path
    data = bytearray(path.read_bytes())
    pages = range(0, len(data), PAGE_BYTES)[: None if kind == "ordered" else -1]  # then the foot
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
            db["t"].get("k7") if kind == "key" else db["t"].range().read_all()
        assert caught.value.path == path
    elif kind == "ordered":
        with st.connect(root, **OPTIONS) as db:  # a reader does without
            assert db["t"].range().read_all()["id"].to_pylist() == sorted(WANTED)
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


Entries = tuple[Any, np.ndarray]
WRONG = {
    "lacks 2 rows of its parts, 0 are wrong": lambda codes, places: (codes[:-2], places[:-2]),
    "lacks 50 rows of its parts, 50 are wrong": lambda codes, places: (codes, np.roll(places, 1)),
    "lacks 0 rows of its parts, 50 are wrong": lambda codes, places: (
        codes[np.arange(50).repeat(2)], places.repeat(2)),
    "lacks 0 rows of its parts, 1 are wrong": lambda codes, places: (
        codes[np.roll(np.arange(50), 1)], np.roll(places, 1)),
}  # fmt: skip
KINDS = {"key": "sorted_entries", "ordered": "sorted_keys"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=WRONG)
def wrong(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Make a store with a run that is not what its parts say, but intact; return what is wrong."""
    entries = getattr(key_cover, KINDS[kind])

    def changed(codes: Any, places: np.ndarray) -> Entries:
        return WRONG[request.param](*entries(codes, places))

    with monkeypatch.context() as bug:
        bug.setattr(key_cover, KINDS[kind], changed)
        with st.connect(tmp_path, **OPTIONS) as db:
            db.create_table("t", SCHEMA, primary_key="id")
            folded(db, range(50), 0)
    return request.param


def test_an_intact_run_that_is_wrong_is_named_and_written_again(
    tmp_path: Path, wrong: str, kind: str
) -> None:
    bad = run_of(tmp_path, kind).path
    (found,) = admin.verify_store(tmp_path, deep=True).findings
    assert found.path == bad
    assert wrong in found.message
    assert admin.repair(tmp_path, deep=True).is_whole
    assert run_of(tmp_path, kind).path == bad, "a dry run changes nothing"
    done = admin.repair(tmp_path, dry_run=False, deep=True)
    assert done.is_whole
    assert "the key run is written again" in str(done)
    assert bad not in {run.path for run in base(tmp_path).runs}
    assert admin.verify_store(tmp_path, deep=True).is_sound
    assert content(tmp_path) == {f"k{n}": 0 for n in range(50)}


def test_a_wrong_run_that_only_older_records_name_is_named_and_left_out(
    tmp_path: Path, wrong: str, kind: str
) -> None:
    bad = run_of(tmp_path, kind).path
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


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (k, a)
        for k in KINDS
        for a in ("page", "foot", "cut", "magic")
        if (k, a) != ("ordered", "page")
    ],
)
def test_a_merge_that_finds_a_run_damaged_says_so_and_writes_it_again(
    root: Path, at: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of(root, kind)
    damage(root / run.path, at)
    with st.connect(root, **OPTIONS) as db:
        folded(db, range(600), 3)
    healed(root, run, caplog)
    assert content(root) == WANTED | {f"k{n}": 3 for n in range(600)}


def test_an_ordered_run_that_is_found_damaged_when_runs_are_merged_is_written_again(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    run = run_of(root, "ordered")
    damage(root / run.path, "page")
    with st.connect(root, **OPTIONS) as db:
        for turn in range(6):
            folded(db, range(1_000 + 300 * turn, 1_300 + 300 * turn), 3)
        ids = db["t"].range(limit=5).read_all()["id"].to_pylist()
    assert ids == sorted([*WANTED, *(f"k{n}" for n in range(1_000, 2_800))])[:5]
    healed(root, run, caplog)


@pytest.mark.parametrize("at", ["foot", "cut", "magic"])
def test_an_optimize_that_finds_a_run_damaged_says_so_and_writes_it_again(
    root: Path,
    at: str,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    with st.connect(root, **OPTIONS) as db:
        for numbers in (range(800, 850), range(850, 900)):
            folded(db, numbers, 3)
    run = run_of(root, kind)
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
    keys = tables.keys.open(base(root))
    assert not keys.uncovered
    assert not keys.in_order.uncovered
