"""Verify names the damaged file, whichever it is, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import CorruptionError
from siltstone.formats.manifest import pins_of
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.gc.sweep import distinct
from siltstone.maintenance.repair.verify import Verifier
from siltstone.storage.tables.jobs import Jobs
from tests.maintenance.stores import Clock, open_store, paths

KEYED = {"id": "int64", "v": "float64"}


@pytest.fixture
def db(tmp_path: Path):
    with open_store(tmp_path / "s") as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        store["t"].upsert([{"id": n, "v": float("nan")} for n in range(5)])
        store["p"].append([{"id": 1, "v": 1.0}])
        store.checkpoint()
        store["t"].delete(3)
        store.checkpoint()
        store.merge()
        store["t"].upsert({"id": 9, "v": 9.0})
        yield store


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_store_has_no_findings_and_stays_as_it_is(db, deep):
    before = {name: (db.path / name).read_bytes() for name in paths(db.path)}
    heard: list[str] = []
    done: list[tuple[int, int]] = []

    def hear(what: str, *progress: int) -> None:
        heard.append(what)
        done.append(progress)

    report = db.verify(deep=deep, on_progress=hear)
    assert report.is_sound
    assert report.findings == ()
    assert report.records == len([name for name in heard if name.startswith("record")])
    assert (report.rows > 0) is deep
    assert {name: (db.path / name).read_bytes() for name in paths(db.path)} == before


def test_verify_is_sound_after_a_vacuum_and_in_a_read_only_handle(db):
    db.vacuum(dry_run=False, grace_s=0)
    assert db.verify(deep=True).findings == ()
    with open_store(db.path, read_only=True) as other:
        assert other.verify(deep=True).findings == ()


def test_a_table_that_was_loaded_and_then_truncated_is_sound(db):
    loaded = db.create_table("loaded", KEYED, primary_key="id")
    definition, table_schema = loaded._table_schema()
    rows = pa.table({"id": [1, 2], "v": [1.0, 2.0]})
    load(db._core, definition, table_schema, rows, may_repeat=False, bytes_min=1)
    db.checkpoint()
    loaded.truncate()
    loaded.upsert({"id": 3, "v": 3.0})
    for step in (db.checkpoint, db.merge):
        step()
        assert db.verify(deep=True).findings == ()


def test_every_file_that_a_record_needs_is_missed_when_it_is_gone(db):
    record = db._core.state().view.record
    for path in sorted(db._parts.site.tables.paths.needed(distinct(pins_of(record)).values())):
        aside = db.path / "aside"
        (db.path / path).rename(aside)
        with open_store(db.path, read_only=True) as _:
            found = fresh_verify(db, deep=False)
        aside.rename(db.path / path)
        assert any(path in str(finding.path) for finding in found.findings), path
        assert "DAMAGED" in str(found)


def test_a_flipped_byte_in_any_data_file_is_found_by_the_deep_check(db):
    record = db._core.state().view.record
    names = sorted(db._parts.site.tables.paths.needed(distinct(pins_of(record)).values()))
    for path in (name for name in names if "/data/" in name):
        data = (db.path / path).read_bytes()
        changed = bytearray(data)
        changed[len(data) // 2] ^= 1
        (db.path / path).write_bytes(changed)
        assert [f.path for f in fresh_verify(db, deep=True).findings if f.path == path] == [path]
        (db.path / path).write_bytes(data)


def fresh_verify(db, *, deep: bool):
    """Verify with nothing in memory of what was read before."""
    from tests.support.fake_lance import fake_lance

    parts = db._parts
    site = replace(parts.site, tables=fake_lance(db.path, parts.site.files))
    return Verifier(site, parts.storage.readers).run(deep=deep)


def test_damaged_records_and_floor_are_named(db):
    db.vacuum(dry_run=False, grace_s=0)
    oldest = min((db.path / "manifest").glob("*.json"))
    whole = oldest.read_bytes()
    oldest.write_bytes(whole[:-1])
    floor = db.path / "manifest/FLOOR"
    text = floor.read_bytes()
    floor.write_bytes(b"siltstone-floor 6 9  9 0000000000000000\n")
    found = [finding.path for finding in fresh_verify(db, deep=False).findings]
    oldest.write_bytes(whole)
    floor.write_bytes(text)
    assert found == [str(floor), str(oldest)]


def test_a_damaged_frame_of_the_log_is_named(db):
    segment = max((db.path / "wal").glob("*.wal"), key=lambda path: path.stat().st_mtime_ns)
    whole = segment.read_bytes()
    at = whole.rindex(b"SLT") if b"SLT" in whole[200:] else 200
    segment.write_bytes(whole[: at + 40] + bytes(len(whole) - at - 40))
    found = fresh_verify(db, deep=False).findings
    segment.write_bytes(whole)
    assert [finding.severity for finding in found] == ["error"]
    assert "wal" in found[0].path


def test_a_base_that_is_not_the_fold_of_history_is_found(db):
    parts = db._parts
    record = parts.site.manifests.newest()
    (storage,) = record.keyed
    pin = parts.site.tables.rewriter.rewrite(storage.base, drop=np.array([0]), batches=())
    parts.site.manifests.publish(
        lambda now: msgspec.structs.replace(
            now, keyed=(msgspec.structs.replace(storage, base=pin),)
        ),
        base=record,
    )
    assert [f.message for f in fresh_verify(db, deep=True).findings] == [
        "it differs from the fold of its history"
    ]


@pytest.mark.parametrize("hides", [False, True])
def test_keys_that_appear_twice_are_found_where_no_history_tells(tmp_path, hides):
    clock = Clock()
    with open_store(tmp_path / "s", clock, retention_s=60) as store:
        table = store.create_table("t", KEYED, primary_key="id")
        table.upsert([{"id": n, "v": float(n)} for n in range(50)])
        store.checkpoint()
        store.merge()
        clock.move(days=1)
        store.vacuum(dry_run=False, grace_s=0)
        site = store._parts.site
        record = site.manifests.newest()
        (storage,) = record.keyed
        assert storage.history_from
        assert fresh_verify(store, deep=True).findings == ()
        again = [table.to_arrow().slice(0, 2).to_batches()[0]]
        pin = site.tables.rewriter.fold(
            storage.base, drop=np.array([7] if hides else []), batches=again, compact_below=0
        )
        pin = site.tables.keys.cover(pin, table._table_schema()[1].codec)
        assert pin.hidden == hides
        keyed = (msgspec.structs.replace(storage, base=pin),)
        site.manifests.publish(lambda now: msgspec.structs.replace(now, keyed=keyed), base=record)
        found = fresh_verify(store, deep=True).findings
    assert [(each.severity, each.path, each.message) for each in found] == [
        ("error", pin.folder, "2 keys appear twice")
    ]


def test_a_dead_job_is_a_warning_and_a_running_one_is_not(db):
    parts = db._parts
    jobs = Jobs(parts.site.files, db.path, parts.site.now_us, lambda: "j")
    with jobs.begin("optimize", ("t",)) as job:
        assert db.verify(deep=True).findings == ()
        job.append(b"{}")
    (found,) = db.verify().findings
    assert (found.severity, found.path.endswith("jobs/j.json")) == ("warning", True)
    assert "optimize of t" in found.message
    assert "1 finished tasks" in found.message


@pytest.mark.parametrize("read_only", [False, True])
def test_a_seq_whose_record_is_lost_is_read_from_history_if_that_reaches_back(tmp_path, read_only):
    with open_store(tmp_path / "s") as store:
        table = store.create_table("t", KEYED, primary_key="id")
        for value in (1.0, 2.0):
            table.upsert({"id": 1, "v": value})
            store.checkpoint()
            store.merge()
    lost = tmp_path / "s" / "manifest" / f"{3:020d}.json"
    lost.unlink()
    with open_store(tmp_path / "s", read_only=read_only) as store:
        for seq in (2, 3):
            with store.snapshot(seq=seq) as past:
                assert past["t"].to_arrow().to_pylist() == [{"id": 1, "v": float(seq - 1)}]
        assert store.snapshot(seq=1)["t"].to_arrow().num_rows == 0  # history reaches back to it
        (finding,) = store.verify().findings
        assert Path(finding.path).stem == f"{4:020d}"
        assert "records 3 to 3, before it, are lost; reads at seqs 0 to 2" in finding.message


def test_a_seq_of_a_bulk_load_whose_record_is_lost_is_corrupt_and_not_answered_short(tmp_path):
    with open_store(tmp_path / "s") as store:
        definition, table_schema = store.create_table("t", KEYED, primary_key="id")._table_schema()
        store.checkpoint()
        rows = pa.table({"id": [1], "v": [1.0]})
        load(store._core, definition, table_schema, rows, may_repeat=False, bytes_min=1)
        store.checkpoint()
        loaded, kept = store.seq, store._parts.site.manifests.newest().number
        store["t"].upsert({"id": 1, "v": 2.0})
        store.checkpoint()
        store.merge()
        newest = store._parts.site.manifests.newest().number
    for number in range(kept, newest):
        (tmp_path / "s" / "manifest" / f"{number:020d}.json").unlink()
    with open_store(tmp_path / "s") as store:
        with pytest.raises(CorruptionError, match=f"seq {loaded} cannot be read without it"):
            store.snapshot(seq=loaded)["t"].to_arrow()
        assert store["t"].get(1) == {"id": 1, "v": 2.0}


@pytest.mark.parametrize("ahead_s", [3_600, 59])
def test_a_store_whose_commits_are_ahead_of_the_clock_is_told_of(tmp_path, ahead_s):
    with open_store(tmp_path / "s", clock := Clock()) as db:
        db.create_table("t", KEYED, primary_key="id")
        clock.ahead_us += ahead_s * 1_000_000
        db["t"].upsert({"id": 1, "v": 1.0})
        clock.ahead_us -= ahead_s * 1_000_000  # it was wrong
        db["t"].upsert({"id": 2, "v": 1.0})
        db.checkpoint()
        found = db.verify()
        told = [finding.message for finding in found.findings]
        assert found.is_sound
        assert told == [] if ahead_s < 60 else "ahead of this machine's clock" in told[0]
