"""A merge hides what it replaced: readers, the past, other clients and every door see the truth."""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone import admin
from siltstone.engine.levels.base import Base
from siltstone.errors import CorruptionError
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.merge import merge
from siltstone.namespace import SiltstoneNamespace

KEYS = {
    "whole numbers": (lambda n: n, "int64"),
    "texts": (lambda n: f"k{n:04}", "string"),
}


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db") as found:
        yield found


def filled(db: st.Store, rows: int = 400) -> st.Table:
    table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    table.upsert([{"id": n, "v": f"v{n}"} for n in range(rows)])
    fold(db)
    return table


def fold(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


def newest(db: st.Store) -> dict[str, Any]:
    path = max((db.path / "manifest").glob("*.json"))
    return json.loads(path.read_bytes().partition(b"\n")[2])


def hidden(db: st.Store) -> int:
    return newest(db)["keyed"][0]["base"].get("hidden", 0)


def as_dict(source: Any) -> dict[Any, Any]:
    found = source.to_table() if isinstance(source, lance.LanceDataset) else source.to_arrow()
    return {row["id"]: row["v"] for row in found.to_pylist()}


def test_a_fold_writes_what_changed_and_no_part_again(db: st.Store) -> None:
    table = filled(db)
    before = set(db.path.rglob("base/data/*.lance"))
    table.upsert([{"id": 3, "v": "new"}, {"id": 400, "v": "more"}])
    table.delete({"id": 4})
    fold(db)
    more = set(db.path.rglob("base/data/*.lance")) - before
    assert [lance.file.LanceFileReader(str(path)).num_rows() for path in more] == [2]
    assert hidden(db) == 2
    assert (table.count(), table.get(3), table.get(4)) == (400, {"id": 3, "v": "new"}, None)


def test_other_clients_read_what_we_read(db: st.Store) -> None:
    table = filled(db)
    for turn in range(4):
        table.upsert([{"id": n, "v": f"turn {turn}"} for n in range(turn, 400, 57)])
        table.delete({"id": 100 + turn})
        fold(db)
        shown = lance.dataset(db.path / "tables/t-1/base")
        rows = {row["id"]: row["v"] for row in shown.to_table().to_pylist()}
        assert rows == as_dict(table)
        assert shown.count_rows() == table.count() == len(rows)
    assert hidden(db)


@pytest.mark.parametrize("kind", KEYS)
def test_whatever_is_folded_the_rows_are_those_of_a_dict_now_and_in_the_past(
    kind: str, tmp_path: Path
) -> None:
    key, type_name = KEYS[kind]
    chance = random.Random(5)
    with st.connect(tmp_path / "db") as db:
        table = db.create_table("t", {"id": type_name, "v": "string"}, primary_key="id")
        now: dict[Any, str] = {}
        past: list[tuple[int, dict[Any, str]]] = []
        for turn in range(30):
            rows = {key(chance.randrange(300)): f"turn {turn}" for _ in range(12)}
            if not turn:
                rows = {key(n): "first" for n in range(250)}
            gone = [key(chance.randrange(300)) for _ in range(3)]
            with db.transaction() as tx:
                tx["t"].upsert([{"id": k, "v": v} for k, v in rows.items()])
                tx["t"].delete([{"id": k} for k in gone])
            now = {k: v for k, v in (now | rows).items() if k not in gone}
            past.append((db.seq, dict(now)))
            if turn % 3 == 0:
                fold(db)
            for n in chance.sample(range(300), 40):  # what finds rows is carried from fold to fold
                found = table.get(key(n))
                assert (found and found["v"]) == now.get(key(n)), (turn, n)
            assert as_dict(table) == now
            assert table.count() == len(now)
            assert table.count(pc.field("v") == "first") == sum(v == "first" for v in now.values())
        assert hidden(db)
        for seq, rows in past:
            with db.snapshot(seq=seq) as snapshot:
                assert as_dict(snapshot["t"]) == rows
                assert snapshot["t"].count() == len(rows)
        report = db.verify(deep=True)
        assert report.is_sound, report
    with st.connect(tmp_path / "db", read_only=True) as reader:
        assert as_dict(reader["t"]) == now


def test_every_way_to_read_leaves_hidden_rows_out(db: st.Store) -> None:
    table = filled(db)
    table.create_index("v", kind="btree")
    db.optimize()
    table.upsert([{"id": n, "v": "v5"} for n in (7, 8)])
    table.delete([{"id": 5}])
    fold(db)
    assert hidden(db) == 3
    assert sorted(row["id"] for row in table.to_arrow(filter="v = 'v5'").to_pylist()) == [7, 8]
    assert table.count("v = 'v7'") == 0
    assert db.sql("select count(*) from t").fetchone() == (399,)
    with db.snapshot() as snapshot:
        tasks = snapshot.scan_tasks("t", rows_max=100)
        rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
        wanted = snapshot.scan_tasks("t", filter="v = 'v7'")
        none = [row for task in wanted for batch in task.read() for row in batch.to_pylist()]
    assert ({row["id"]: row["v"] for row in rows}, none) == (as_dict(table), [])
    assert pa.Table.from_batches(table.dataset().to_batches()).num_rows == 399
    assert table.get_many([5, 7]).to_pylist() == [{"id": 7, "v": "v5"}]


def test_base_takes_over_what_finds_rows_and_reads_the_new_part_alone(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(db)
    for n in range(200):
        assert table.get(n) == {"id": n, "v": f"v{n}"}
    table.upsert([{"id": n, "v": "new"} for n in (3, 401)])
    table.delete({"id": 4})
    fold(db)
    with monkeypatch.context() as patch:
        patch.setattr(Base, "_by_scan", None)
        patch.setattr(Base, "_load", None)
        assert [table.get(n) for n in (3, 401, 4, 399)] == [
            {"id": 3, "v": "new"}, {"id": 401, "v": "new"}, None, {"id": 399, "v": "v399"},
        ]  # fmt: skip


def test_an_altered_table_keeps_its_rows_hidden(db: st.Store) -> None:
    table = filled(db)
    table.upsert({"id": 3, "v": "new"})
    fold(db)
    table.add_column("w", "int32")
    table.rename_column("v", "u")
    table.upsert({"id": 9, "u": "nine", "w": 9})
    fold(db)
    assert hidden(db) == 2
    assert (table.count(), table.get(3)) == (400, {"id": 3, "u": "new", "w": None})
    assert table.get(9) == {"id": 9, "u": "nine", "w": 9}


def test_an_optimize_and_a_vacuum_bring_no_hidden_row_back(db: st.Store) -> None:
    table = filled(db)
    for turn in range(4):
        table.upsert([{"id": n, "v": f"turn {turn}"} for n in range(turn, 400, 91)])
        fold(db)
    expected = as_dict(table)
    db.optimize()
    db._owner().vacuum._retention_s = 0
    db.vacuum(dry_run=False, grace_s=-1e9)
    assert as_dict(table) == expected
    assert db.verify(deep=True).is_sound
    left = {path.name for path in (db.path / "tables/t-1/base/_deletions").iterdir()}
    fragments = lance.dataset(db.path / "tables/t-1/base").get_fragments()
    named = {str(f.deletion_file()).rpartition("/")[2] for f in fragments if f.deletion_file()}
    assert left == named


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["compacted", "also cleaned up"])
def test_a_compaction_by_path_takes_no_hidden_row_out_and_brings_none_back(
    db: st.Store, is_cleaned: bool
) -> None:
    table = filled(db)
    before = as_dict(table), db.seq
    table.upsert([{"id": n, "v": "new"} for n in range(0, 400, 50)])
    table.delete({"id": 3})
    fold(db)
    assert hidden(db) == 9
    folded = as_dict(table), db.seq
    theirs = shown(db.path)
    theirs.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert not any(part.deletion_file() for part in theirs.get_fragments())
    if is_cleaned:
        clean_up(theirs)
    assert as_dict(table) == folded[0]
    report = db.verify(deep=True)
    assert report.is_sound
    # A clean-up takes public names of our files; until the next promotion each is a warning.
    lost = {"warning"} if is_cleaned else set()
    assert {finding.severity for finding in report.findings} == {"drift", *lost}, report
    table.upsert([{"id": n, "v": "newer"} for n in (7, 50, 400)])
    fold(db)
    assert hidden(db) == 11
    expected = folded[0] | dict.fromkeys((7, 50, 400), "newer")
    assert as_dict(table) == as_dict(shown(db.path)) == expected
    with st.connect(db.path, read_only=True) as reader:
        assert as_dict(reader["t"]) == expected
        for rows, seq in (before, folded):
            with reader.snapshot(seq=seq) as past:
                assert as_dict(past["t"]) == rows
        report = reader.verify(deep=True)
    assert report.is_sound
    assert {finding.severity for finding in report.findings} == {"drift"}, report


def clean_up(dataset: lance.LanceDataset) -> None:
    """Delete all that no version but the newest one needs, however new it is."""
    now = dt.timedelta(microseconds=1)  # zero means "not given" to pylance
    dataset.cleanup_old_versions(now, delete_unverified=True, error_if_tagged_old_versions=False)


def test_a_backup_and_a_restored_store_have_the_rows_and_what_hides_them(
    db: st.Store, tmp_path: Path
) -> None:
    table = filled(db)
    table.upsert([{"id": n, "v": "new"} for n in range(0, 400, 50)])
    fold(db)
    db.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", tmp_path / "restored")
    with st.connect(tmp_path / "restored") as restored:
        assert as_dict(restored["t"]) == as_dict(table)
        assert restored.verify(deep=True).is_sound


@pytest.mark.parametrize("what", ["_deletions", "physical.manifest"])
def test_damage_of_what_hides_rows_is_named_and_repaired(what: str, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with st.connect(root) as db:
        table = filled(db)
        table.upsert([{"id": n, "v": "new"} for n in range(0, 400, 50)])
        fold(db)
        expected = as_dict(table)
    for path in [p for p in root.rglob("*") if what in str(p) and p.is_file()]:
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])
    with st.connect(root, read_only=True) as reader, pytest.raises(CorruptionError, match=what):
        as_dict(reader["t"])
    assert not admin.verify_store(root, deep=True).is_sound
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    admin.repair(copy, dry_run=False, deep=True)
    with st.connect(copy) as repaired:
        assert as_dict(repaired["t"]) == expected
        assert repaired.verify(deep=True).is_sound


@pytest.fixture
def trimmed(tmp_path: Path) -> Path:
    """Return a store with hidden rows of which neither an older record nor history says."""
    root = tmp_path / "db"
    with st.connect(root, background=False, retention_s=0) as db:
        table = filled(db)
        for turn in range(3):
            table.upsert([{"id": n, "v": f"new {turn}"} for n in range(turn, 400, 50)])
            fold(db)
            db.vacuum(dry_run=False, grace_s=0)
        db.create_table("other", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        fold(db)
    return root


OURS, THEIRS = "base/_siltstone/_kept/_deletions", "base/_deletions"


def damaged(root: Path, folder: str) -> Path:
    """Turn a bit of the one deletion file in a folder of the table."""
    (path,) = (root / "tables/t-1" / folder).iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("folder", [OURS, THEIRS])
def test_either_copy_of_the_hidden_rows_is_made_whole_by_the_other_one(
    folder: str, trimmed: Path
) -> None:
    with st.connect(trimmed, read_only=True) as db:
        expected = as_dict(db["t"])
    path = damaged(trimmed, folder)
    found = admin.verify_store(trimmed, deep=True)
    assert {path.name in str(finding) for finding in found.findings} == {True}, found
    assert admin.repair(trimmed, dry_run=False, deep=True).is_whole
    ours, theirs = (next((trimmed / "tables/t-1" / each).iterdir()) for each in (OURS, THEIRS))
    assert ours.read_bytes() == theirs.read_bytes()
    assert not ours.samefile(theirs)
    assert admin.verify_store(trimmed, deep=True).findings == ()
    rows = shown(trimmed).to_table().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == expected
    with st.connect(trimmed, background=False) as db:
        assert as_dict(db["t"]) == expected


def test_a_deletion_file_of_another_length_is_found_without_a_checksum(trimmed: Path) -> None:
    (path,) = (trimmed / "tables/t-1" / THEIRS).iterdir()
    path.write_bytes(path.read_bytes() + b"?")
    found = admin.verify_store(trimmed)
    assert {path.name in str(finding) for finding in found.findings} == {True}, found
    assert admin.repair(trimmed, dry_run=False).is_whole
    assert admin.verify_store(trimmed, deep=True).findings == ()


def test_damage_of_both_copies_is_named_and_left_where_no_history_has_the_rows(
    trimmed: Path,
) -> None:
    """Who trims the past, and loses both copies of what hides rows, restores a backup."""
    paths = [damaged(trimmed, folder) for folder in (OURS, THEIRS)]
    data = [path.read_bytes() for path in paths]
    for _ in range(2):  # the first changes nothing for the second
        repaired = admin.repair(trimmed, dry_run=False, deep=True)
        assert any(paths[0].name in str(finding) for finding in repaired.unproven), repaired
    assert [path.read_bytes() for path in paths] == data
    with st.connect(trimmed, background=False) as db:
        assert db["other"].count() == 1
        with pytest.raises(CorruptionError, match=paths[0].name):
            as_dict(db["t"])


def test_a_part_that_was_removed_by_hand_is_named_and_the_rows_come_back(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with st.connect(root) as db:
        table = filled(db)
        table.upsert([{"id": n, "v": "new"} for n in range(0, 400, 50)])
        fold(db)
        expected = as_dict(table)
        assert hidden(db) == 8
    part = str(shown(root).get_fragments()[0].data_files()[0].path)
    removed = [path for path in root.rglob(part) if "base" in str(path)]
    assert len(removed) == 2  # and the store's own name of it
    for path in removed:
        path.unlink()
    with st.connect(root, read_only=True) as reader, pytest.raises(st.SiltstoneError, match=part):
        as_dict(reader["t"])
    report = admin.verify_store(root, deep=True)
    assert any(part in str(finding) for finding in report.findings), report
    admin.repair(root, dry_run=False, deep=True)
    with st.connect(root) as repaired:
        assert as_dict(repaired["t"]) == expected
        assert repaired.verify(deep=True).is_sound


def shown(root: Path) -> lance.LanceDataset:
    return lance.dataset(root / "tables/t-1/base")


def test_the_status_counts_the_rows_of_a_base_that_are_not_hidden(db: st.Store) -> None:
    table = filled(db)
    table.upsert([{"id": n, "v": "new"} for n in range(0, 400, 50)])
    table.delete({"id": 3})
    fold(db)
    assert hidden(db) == 9
    assert [each.base_rows for each in db.status().tables] == [table.count()] == [399]


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "swapped"])
def test_a_manifest_without_deletion_files_is_made_again_where_no_history_has_the_rows(
    damage: str, tmp_path: Path
) -> None:
    root = tmp_path / "db"
    with st.connect(root) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        loaded = pa.table({"id": range(400), "v": [f"v{n}" for n in range(400)]})
        load(db._core, *table._table_schema(), loaded, may_repeat=True, bytes_min=1)
        for n in (3, 50):
            table.upsert({"id": n, "v": "new"})
            fold(db)
        expected = as_dict(table)
        record = newest(db)
    newest_one = root / Path(record["keyed"][0]["base"]["path"]).with_name("physical.manifest")
    (older,) = [path for path in root.rglob("physical.manifest") if path != newest_one]
    data = newest_one.read_bytes()
    newest_one.write_bytes(
        {
            "flipped": data[:40] + bytes([data[40] ^ 1]) + data[41:],
            "cut": data[:-1],
            "empty": b"",
            "swapped": older.read_bytes(),
        }[damage]
    )
    assert not admin.verify_store(root).is_sound
    for deep in (False, True):
        found = admin.repair(root, deep=deep)
        assert found.is_whole, found
        assert len(found.steps) == 1
    assert admin.repair(root, dry_run=False).is_whole
    assert newest_one.read_bytes() == data
    assert admin.repair(root, deep=True).steps == ()
    with st.connect(root) as db:
        assert as_dict(db["t"]) == expected
        assert db.verify(deep=True).is_sound


def test_a_lost_manifest_without_deletion_files_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with st.connect(root) as db:
        table = filled(db)
        table.upsert({"id": 3, "v": "new"})
        fold(db)
        expected = as_dict(table)
    (path,) = root.rglob("physical.manifest")
    data = path.read_bytes()
    path.unlink()
    assert admin.repair(root, dry_run=False).is_whole
    assert path.read_bytes() == data
    with st.connect(root) as db:
        assert as_dict(db["t"]) == expected
        assert db.verify(deep=True).is_sound


def test_what_an_index_has_and_lacks_is_counted_in_live_rows(db: st.Store) -> None:
    table = filled(db)
    table.create_index("v")
    table.upsert([{"id": n, "v": "new"} for n in range(390, 420)])
    fold(db)
    table.delete([{"id": n} for n in range(400, 405)])
    fold(db)
    assert hidden(db) == 15
    (index,) = table.indexes()
    assert (index.indexed_rows, index.lagging_rows) == (390, 25)
    table.upsert([{"id": n, "v": "not merged"} for n in range(1_000, 1_005)])
    (index,) = table.indexes()
    assert (index.indexed_rows, index.lagging_rows) == (390, 25)
    asked = {"id": ["t"]}
    tables = SiltstoneNamespace(db)
    (told,) = tables.list_table_indices(asked).indexes
    assert (told.num_indexed_rows, told.num_unindexed_rows) == (390, 25)
    stats = tables.get_table_stats(asked)
    fragments = stats.fragment_stats
    assert (stats.num_rows, fragments.num_fragments) == (420, 2)
    assert (fragments.lengths.min, fragments.lengths.max) == (25, 390)
