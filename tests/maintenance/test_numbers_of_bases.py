"""A number under which other clients saw a base never shows other rows (ADR 64).

Whatever is lost, repaired or restored, and in whatever order.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

import siltstone as st
from siltstone import admin
from siltstone.maintenance.merge import merge
from tests.maintenance.test_repair import damage

OPTIONS = {"background": False}
SCHEMA = {"id": "int64", "v": "string"}


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)


def merged(db, value, ids=range(20), table="t"):
    db[table].upsert([{"id": n, "v": value} for n in ids], missing="null")
    db.checkpoint()
    db.merge()


class OtherClient:
    """Another client: it remembers what rows each number of each base folder had."""

    def __init__(self):
        self.known = {}

    def look(self, root: Path, label: str = "") -> dict[str, int]:
        newest = {}
        for base in sorted(root.glob("tables/*/base")):
            if not any((base / "_versions").glob("*.manifest")):
                continue
            folder = str(base.relative_to(root))
            data = lance.dataset(str(base))
            newest[folder] = data.version
            for version in data.versions():
                number = version["version"]
                try:
                    rows = lance.dataset(str(base), version=number).to_table().to_pylist()
                except (ValueError, OSError):
                    continue
                rows = sorted((row["id"], row["v"]) for row in rows)
                old = self.known.setdefault((folder, number), (label, rows))
                assert old[1] == rows, (
                    f"{folder} version {number}: {old[0]!r} saw {old[1][:2]}..{len(old[1])},"
                    f" {label!r} sees {rows[:2]}..{len(rows)}"
                )
        return newest


def records(root):
    return set((root / "manifest").glob("*.json"))


def damage_records(root, before):
    for path in sorted(records(root) - before):
        damage(path)


def remove_records(root, before):
    for path in sorted(records(root) - before):
        path.unlink()


def repair(root, whole=True):
    done = admin.repair(root, dry_run=False, deep=True)
    assert not whole or done.is_whole, done
    return done


def go_on(root, witness, label="after"):
    with st.connect(root, **OPTIONS) as db:
        for value in ("x", "y", "z"):
            merged(db, f"{label} {value}")
            witness.look(root, f"{label} {value}")
        assert db.verify(deep=True).is_sound, db.verify(deep=True)


def newest_manifest(root):
    """Return the private manifest of the base of the newest record."""
    import json

    path = max(records(root))
    record = json.loads(path.read_bytes().partition(b"\n")[2])
    return root / record["keyed"][0]["base"]["path"]


@pytest.fixture
def root(tmp_path):
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id")
        merged(db, "a", range(400))
    return tmp_path / "s"


LOSE = pytest.mark.parametrize("lose", [damage_records, remove_records])


@LOSE
def test_no_number_comes_again_after_the_record_that_serves_has_no_base_yet(tmp_path, lose):
    root, witness = tmp_path / "s", OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id")
        db["t"].upsert([{"id": 1, "v": "first"}])
        db.checkpoint()
        before = records(root)
        db.merge()
        witness.look(root, "the first base")
    st.connect(root, **OPTIONS).close()
    lose(root, before)
    repair(root)
    with st.connect(root, **OPTIONS) as db:
        merged(db, "other")
        witness.look(root, "after the repair")


@LOSE
def test_no_number_comes_again_after_lost_record_had_truncated(root, lose):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db["t"].truncate()
        db["t"].upsert([{"id": n, "v": "b"} for n in range(5)])
        db.checkpoint()
        before = records(root)
        db.merge()
        witness.look(root, "truncated")
    st.connect(root, **OPTIONS).close()
    lose(root, before)
    repair(root)
    go_on(root, witness)


def test_no_number_comes_again_after_the_newest_manifest_alone_is_damaged(root):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        merged(db, "c", range(1000, 1020))
        witness.look(root, "before")
    damage(newest_manifest(root))
    repair(root)
    witness.look(root, "just repaired")
    go_on(root, witness)


def test_no_number_comes_again_after_the_newest_manifest_alone_is_missing(root):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        merged(db, "c", range(1000, 1020))
        witness.look(root, "before")
    newest_manifest(root).unlink()
    repair(root)
    witness.look(root, "just repaired")
    go_on(root, witness)


def test_no_number_comes_again_after_records_removed_and_the_base_below_damaged(root):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        db["t"].upsert([{"id": n, "v": "c"} for n in range(1000, 1020)])
        db.checkpoint()
        before = records(root)
        db.merge()
        witness.look(root, "before")
    st.connect(root, **OPTIONS).close()
    remove_records(root, before)
    for path in root.glob("tables/*/base/_siltstone/_kept/data/*"):
        damage(path)
    for n in range(3):
        done = admin.repair(root, dry_run=False, deep=True)
        witness.look(root, f"repair {n}")
    assert done.is_whole
    go_on(root, witness)


def test_no_number_comes_again_after_a_damaged_index_of_older_records(root):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db["t"].create_index("v", kind="btree")
        db.optimize()
        witness.look(root, "indexed")
        for n, value in enumerate("bcd"):
            merged(db, value, range(1000 + n * 20, 1020 + n * 20))
            witness.look(root, value)
    found = [
        p for p in root.glob("tables/*/base/_siltstone/_kept/_indices/*/*") if p.stat().st_size
    ]
    assert found
    for path in found:
        damage(path)
    repair(root)
    witness.look(root, "just repaired")
    go_on(root, witness)


def test_no_number_comes_again_after_a_stranger_has_the_next_number_when_a_base_begins_again(root):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        witness.look(root, "before")
    (base,) = root.glob("tables/*/base")
    rows = lance.dataset(str(base)).to_table().slice(0, 2)
    for _ in range(1):
        lance.write_dataset(rows, str(base), mode="append")
    witness.look(root, "strangers")
    for path in base.glob("_siltstone/_kept/data/*"):
        damage(path)
    admin.repair(root, dry_run=False, deep=True)
    witness.look(root, "just repaired")


@LOSE
def test_no_number_comes_again_after_strangers_with_higher_numbers_and_lost_records(root, lose):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db["t"].upsert([{"id": n, "v": "b"} for n in range(20)])
        db.checkpoint()
        before = records(root)
        db.merge()
        witness.look(root, "before")
    st.connect(root, **OPTIONS).close()
    (base,) = root.glob("tables/*/base")
    rows = lance.dataset(str(base)).to_table().slice(0, 2)
    for _ in range(3):
        lance.write_dataset(rows, str(base), mode="append")
    witness.look(root, "strangers")
    lose(root, before)
    repair(root)
    witness.look(root, "just repaired")
    go_on(root, witness)
    with st.connect(root, **OPTIONS) as db:
        for _ in range(3):
            db.vacuum(dry_run=False, grace_s=0)
        witness.look(root, "vacuumed")


@LOSE
def test_no_number_comes_again_after_several_repairs_in_a_row(root, lose):
    witness = OtherClient()
    for turn in range(3):
        with st.connect(root, **OPTIONS) as db:
            db["t"].upsert([{"id": n, "v": f"{turn}"} for n in range(20)])
            db.checkpoint()
            before = records(root)
            db.merge()
            witness.look(root, f"turn {turn}")
        st.connect(root, **OPTIONS).close()
        lose(root, before)
        repair(root)
        witness.look(root, f"repaired {turn}")
        assert admin.repair(root, dry_run=True, deep=True).steps == ()
    go_on(root, witness)


@LOSE
@pytest.mark.parametrize("act", ["optimize", "index", "alter", "rename", "vacuum"])
def test_no_number_comes_again_after_lost_records_of_other_maintenance(root, lose, act):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        db["t"].upsert([{"id": n, "v": "c"} for n in range(20)])
        db.checkpoint()
        before = records(root)
        if act == "optimize":
            db.optimize()
        elif act == "index":
            db["t"].create_index("v", kind="btree")
            db.optimize()
        elif act == "alter":
            db["t"].add_column("w", "int64")
        elif act == "rename":
            db["t"].rename_column("v", "w")
            db["t"].rename_column("w", "v")
        else:
            db.vacuum(dry_run=False, grace_s=0)
        witness.look(root, act)
        db.merge()
        witness.look(root, act)
    st.connect(root, **OPTIONS).close()
    lose(root, before)
    repair(root, whole=False)
    witness.look(root, "repaired")
    go_on(root, witness)


def replace_store(root, backup, **how):
    shutil.rmtree(root)
    admin.restore(backup, root, **how)


def test_no_number_comes_again_after_a_backup_without_a_base_restored_at_the_path_of_the_lost(
    tmp_path,
):
    root, witness = tmp_path / "s", OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.create_table("t", SCHEMA, "id")
        db["t"].upsert([{"id": 1, "v": "first"}])
        db.backup(tmp_path / "b")
        merged(db, "old")
        witness.look(root, "old")
    replace_store(root, tmp_path / "b")
    with st.connect(root, **OPTIONS) as db:
        merged(db, "new")
        witness.look(root, "new")


def test_no_number_comes_again_after_a_table_made_after_the_backup(root, tmp_path):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.backup(tmp_path / "b")
        db.create_table("u", SCHEMA, "id")
        merged(db, "old", table="u")
        witness.look(root, "old")
    replace_store(root, tmp_path / "b")
    with st.connect(root, **OPTIONS) as db:
        db.create_table("u", SCHEMA, "id")
        merged(db, "new", table="u")
        witness.look(root, "new")


def test_no_number_comes_again_after_one_backup_restored_twice_at_one_path(root, tmp_path):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.backup(tmp_path / "b")
        merged(db, "old")
        witness.look(root, "old")
    for turn in range(2):
        replace_store(root, tmp_path / "b")
        with st.connect(root, **OPTIONS) as db:
            merged(db, f"restored {turn}")
            witness.look(root, f"restored {turn}")


def test_no_number_comes_again_after_a_restore_of_a_restore(root, tmp_path):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.backup(tmp_path / "b")
        merged(db, "old")
        witness.look(root, "old")
    for turn in range(3):
        replace_store(root, tmp_path / "b")
        with st.connect(root, **OPTIONS) as db:
            merged(db, f"restored {turn}")
            witness.look(root, f"restored {turn}")
            shutil.rmtree(tmp_path / "b")
            db.backup(tmp_path / "b")
            merged(db, f"lost {turn}")
            witness.look(root, f"lost {turn}")


def test_no_number_comes_again_after_incremental_after_a_restore_and_tags(root, tmp_path):
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db.tag("one")
        merged(db, "b")
        db.tag("two")
        merged(db, "c")
        db.backup(tmp_path / "b")
        merged(db, "old")
        witness.look(root, "old")
    replace_store(root, tmp_path / "b")
    with st.connect(root, **OPTIONS) as db:
        assert db.verify(deep=True).findings == ()
        for tag, value in (("one", "a"), ("two", "b")):
            with db.snapshot(tag=tag) as snapshot:
                assert {r["v"] for r in snapshot["t"].to_arrow().to_pylist() if r["id"] < 20} == {
                    value
                }
        merged(db, "new")
        witness.look(root, "new")
        db.backup(tmp_path / "b2")
        merged(db, "newer2")
        db.backup(tmp_path / "b2", incremental=True)
        merged(db, "newer")
        witness.look(root, "newer")
    replace_store(root, tmp_path / "b2")
    with st.connect(root, **OPTIONS) as db:
        assert db.verify(deep=True).findings == ()
        merged(db, "newest")
        witness.look(root, "newest")
        for tag, value in (("one", "a"), ("two", "b")):
            with db.snapshot(tag=tag) as snapshot:
                assert {r["v"] for r in snapshot["t"].to_arrow().to_pylist() if r["id"] < 20} == {
                    value
                }
    shutil.rmtree(tmp_path / "s")


def test_no_number_comes_again_after_newest_records_that_are_missing_without_a_trace(root):
    """Neither the log's epoch nor its format says that they existed: nothing is repaired."""
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        db["t"].upsert([{"id": n, "v": "b"} for n in range(20)])
        db.checkpoint()
        before = records(root)
        db.merge()
        witness.look(root, "before")
    remove_records(root, before)
    repair(root)
    go_on(root, witness)


def test_no_number_comes_again_after_the_record_of_a_base_that_began_again_is_lost(root):
    """A repair makes older records do without base; the next one goes back to one of them."""
    witness = OtherClient()
    with st.connect(root, **OPTIONS) as db:
        merged(db, "b")
        witness.look(root, "before")
    before = records(root)
    for path in root.glob("tables/*/base/_siltstone/_kept/data/*"):
        damage(path)
    repair(root)
    witness.look(root, "began again")
    damage_records(root, before)
    repair(root)
    go_on(root, witness)
