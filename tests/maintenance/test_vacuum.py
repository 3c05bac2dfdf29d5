"""Vacuum leaves on disk what some kept seq, tag or reader needs, and nothing else."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.formats.manifest import pins_of
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.tables.kept_names import kept_of
from tests.maintenance.stores import Clock, data_paths, open_store, paths, rows

KEYED = {"id": "int64", "v": "int64"}


def generation(db, step: int) -> None:
    db["t"].upsert([{"id": n, "v": step} for n in range(5)])
    db["p"].append([{"id": step, "v": step}])
    db.checkpoint()
    db.merge()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def real_lance():
    return False


@pytest.fixture
def db(tmp_path: Path, clock, real_lance):
    with open_store(tmp_path / "s", clock, real_lance=real_lance, retention_s=0) as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        for step in range(3):
            generation(store, step)
        yield store


def reachable(db) -> set[str]:
    manifests, reader = db._parts.site.manifests, db._parts.site.tables.reader
    records = [manifests.read(n) for n in manifests.numbers(below_floor=True)]
    pins = distinct(pin for record in records for pin in pins_of(record))
    return {file.path for pin in pins.values() for file in reader.files(pin)}


def private(names: set[str]) -> set[str]:
    return {name for name in names if "/_versions/" not in name and "/_refs/" not in name}


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])
def test_what_is_left_is_exactly_what_the_records_need(db):
    report = db.vacuum(dry_run=False, grace_s=0)
    assert report.files
    names, needed_names = private(data_paths(db.path)), reachable(db)
    assert needed_names <= names
    assert names - needed_names == {kept_of(name) for name in needed_names} - {None}
    assert rows(db["t"]) == [(n, 2) for n in range(5)]
    assert rows(db["p"]) == [(0, 0), (1, 1), (2, 2)]


def test_a_dry_run_changes_nothing_and_names_what_goes(db):
    before = paths(db.path)
    preview = db.vacuum(grace_s=0)
    assert paths(db.path) == before
    assert preview.nbytes > 0
    named = {file.path for file in preview.files}
    db.vacuum(dry_run=False, grace_s=0)
    assert named <= before - paths(db.path)


def test_a_second_vacuum_finds_nothing(db):
    db.vacuum(dry_run=False, grace_s=0)
    assert db.vacuum(dry_run=False, grace_s=0).files == ()


def test_seqs_within_the_retention_stay_readable(tmp_path, clock):
    with open_store(tmp_path / "s", clock, retention_s=86_400) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        generation(db, 0)
        clock.move(days=2)
        kept = {}
        for step in (1, 2, 3):
            generation(db, step)
            kept[db.seq] = rows(db["t"]), rows(db["p"])
        db.vacuum(dry_run=False, grace_s=0)
        for seq, (keyed, plain) in kept.items():
            with db.snapshot(seq=seq) as past:
                assert (rows(past["t"]), rows(past["p"])) == (keyed, plain)


def test_an_older_seq_is_refused_with_the_oldest_one(db):
    db.vacuum(dry_run=False, grace_s=0)
    with pytest.raises(st.SnapshotExpiredError) as caught:
        db.snapshot(seq=3)
    assert caught.value.oldest_seq == db.seq


def test_a_tag_keeps_its_seq_over_vacuum_merge_and_reopen(db):
    tagged = db.seq
    answer = rows(db["t"]), rows(db["p"])
    db.tag("audit")
    for step in range(3, 6):
        generation(db, step)
        db.vacuum(dry_run=False, grace_s=0)
    with db.snapshot(tag="audit") as past:
        assert (rows(past["t"]), rows(past["p"])) == answer
    with db.snapshot(seq=tagged) as past:
        assert rows(past["t"]) == answer[0]
    with open_store(db.path, read_only=True) as other, other.snapshot(tag="audit") as past:
        assert rows(past["t"]) == answer[0]


def test_an_untagged_past_is_vacuumed(db):
    tagged = db.seq
    db.tag("audit")
    generation(db, 3)
    db.vacuum(dry_run=False, grace_s=0)
    db.untag("audit")
    generation(db, 4)
    db.vacuum(dry_run=False, grace_s=0)
    with pytest.raises(st.SnapshotExpiredError):
        db.snapshot(seq=tagged)
    assert private(data_paths(db.path)) == reachable(db)


def test_a_tag_for_a_time_keeps_its_seq_as_long_as_it_is_set_again(db, clock):
    tagged = db.seq
    answer = rows(db["t"])
    for _ in range(3):
        db.tag("stream", tagged, lasts="2d")
        clock.move(days=1.5)
        generation(db, 3)
        db.vacuum(dry_run=False, grace_s=0)
        with db.snapshot(tag="stream") as past:
            assert rows(past["t"]) == answer
    assert db.tags() == {"stream": tagged}


def test_a_tag_for_a_time_is_forgotten_by_a_vacuum_after_it(db, clock):
    tagged = db.seq
    db.tag("stream", lasts="2d")
    db.tag("audit")
    generation(db, 3)
    clock.move(days=2)
    assert db.vacuum(grace_s=0).files
    assert set(db.tags()) == {"stream", "audit"}  # a dry run changes nothing
    db.untag("audit")
    db.vacuum(dry_run=False, grace_s=0)
    assert db.tags() == {}
    with pytest.raises(st.SnapshotExpiredError):
        db.snapshot(seq=tagged)


def test_the_changes_since_a_tag_are_kept_however_often_it_is_truncated_and_merged(db):
    since, copy = db.seq, dict(rows(db["t"]))
    db.tag("stream", lasts="2d")
    for step in range(3, 9):
        generation(db, step)
        db["t"].delete([step % 5])
        if step % 3 == 0:
            db["t"].truncate()
        generation(db, step)
        db.vacuum(dry_run=False, grace_s=0)
    for row in db.changes(since=since, tables=["t"])["t"].read_all().to_pylist():
        if row["_op"] == "delete":
            copy.pop(row["id"], None)
        else:
            copy[row["id"]] = row["v"]
    assert sorted(copy.items()) == rows(db["t"])


def test_changes_since_a_seq_that_a_tag_keeps_without_all_later_versions_are_refused(db):
    tagged = db.seq
    db.tag("audit")
    for step in range(3, 5):
        db["t"].truncate()
        generation(db, step)
        db.vacuum(dry_run=False, grace_s=0)
    with pytest.raises(st.SnapshotExpiredError) as caught:
        db.changes(since=tagged, tables=["t"])
    assert caught.value.oldest_seq == db.seq
    found = db.changes(tables=["t"])["t"].read_all().to_pylist()
    assert {(row["_op"], row["id"], row["v"]) for row in found} == {
        ("snapshot", *row) for row in rows(db["t"])
    }


def test_a_snapshot_reads_the_same_however_much_is_vacuumed_around_it(db):
    now, past = db.snapshot(), db.snapshot(seq=db.seq - 2)
    answers = [rows(s[name]) for s in (now, past) for name in ("t", "p")]
    fresh = db.snapshot()
    for step in range(3, 6):
        generation(db, step)
        db.vacuum(dry_run=False, grace_s=0)
    assert [rows(s[name]) for s in (now, past) for name in ("t", "p")] == answers
    assert rows(fresh["t"]) == answers[0]


def test_a_stream_goes_on_while_its_files_fall_below_the_floor(tmp_path, clock):
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=0) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        many = [{"id": n, "v": n} for n in range(30_000)]
        db["t"].upsert(many)
        db["p"].append(many)
        db.checkpoint()
        db.merge()
        streams = [db["t"].scan(), db["p"].scan()]
        db["t"].upsert({"id": 1, "v": 0})
        db["p"].overwrite([{"id": 1, "v": 0}])
        for _ in range(2):
            db["t"].upsert({"id": 2, "v": 0})
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        assert [stream.read_all().num_rows for stream in streams] == [30_000, 30_000]


def test_a_reader_in_another_handle_is_spared_and_its_end_frees_the_files(db):
    with open_store(db.path, read_only=True) as other:
        snapshot = other.snapshot()
        answer = rows(snapshot["t"])
        for step in range(3, 5):
            generation(db, step)
            report = db.vacuum(dry_run=False, grace_s=0)
        assert any("leased" in reason for reason in report.spared)
        assert rows(snapshot["t"]) == answer
    del snapshot, other
    assert db.vacuum(dry_run=False, grace_s=0).spared == ()
    assert private(data_paths(db.path)) == reachable(db)


def test_a_dropped_table_leaves_nothing_behind(db):
    db.drop_table("t")
    db.drop_table("p")
    for n in range(2):
        db.create_table(f"x{n}", KEYED, primary_key="id")
        db.checkpoint()
    db.vacuum(dry_run=False, grace_s=0)
    assert not [p for p in (db.path / "tables").iterdir() if p.name[0] in "tp"]
    assert [t.id for t in db._core.state().view.catalog.tables] == [3, 4]
    db.checkpoint()
    assert len(db._core.state().view.record.catalog.tables) == 2


def test_commits_after_a_trim_are_kept_by_the_next_checkpoint_and_by_recovery(db, clock):
    db.rename_table("t", "renamed")
    db.rename_table("renamed", "t")
    db["t"].truncate()
    db["t"].upsert({"id": 1, "v": 1})
    db.checkpoint()
    db["t"].upsert({"id": 2, "v": 2})
    db.create_table("late", KEYED, primary_key="id")
    db["late"].upsert({"id": 3, "v": 3})
    db.vacuum(dry_run=False, grace_s=0)
    (table,) = (t for t in db._core.state().view.catalog.tables if t.id == 1)
    assert len(table.names) == len(table.incarnations) == 1
    db.checkpoint()
    root = db.path
    db.close()
    with open_store(root, clock) as again:
        assert rows(again["t"]) == [(1, 1), (2, 2)]
        assert rows(again["late"]) == [(3, 3)]


def test_the_change_feed_begins_with_the_state_where_history_begins(db):
    db.vacuum(dry_run=False, grace_s=0)
    db["t"].delete(0)
    feed = db.changes(tables=["t"])["t"].read_all().to_pylist()
    assert [(row["_op"], row["id"]) for row in feed] == [
        *(("snapshot", n) for n in range(5)),
        ("delete", 0),
    ]
    with pytest.raises(st.SnapshotExpiredError):
        db.changes(since=3)


@pytest.mark.parametrize("span", [(-1, None), (0, 1_000), (1_000, None), (3, None)])
def test_a_refused_range_of_changes_names_the_oldest_seq_that_is_kept(db, span):
    db.vacuum(dry_run=False, grace_s=0)
    kept = db.seq
    db["t"].delete(0)
    with pytest.raises(st.SnapshotExpiredError, match=f"keeps seq {kept} to {db.seq}") as caught:
        db.changes(*span)
    assert caught.value.oldest_seq == kept


def test_history_and_commits_lose_what_nothing_needs(db):
    db.vacuum(dry_run=False, grace_s=0)
    record = db._core.state().view.record
    (storage,) = record.keyed
    assert storage.history.rows == 0
    assert storage.history_from == storage.merged_seq
    assert record.commits.rows < db.seq


def test_the_outcome_of_a_transaction_is_never_denied_once_it_is_forgotten(db):
    old = db["t"].upsert({"id": 1, "v": 9})
    db.checkpoint()
    for step in range(3, 5):
        generation(db, step)
        db.vacuum(dry_run=False, grace_s=0)
    recent = db["t"].upsert({"id": 1, "v": 9})
    with pytest.raises(st.SnapshotExpiredError):
        db.outcome(old.transaction_id)
    assert db.outcome(recent.transaction_id) == "committed"


def test_a_moment_in_the_kept_past_finds_its_seq_after_a_trim(tmp_path, clock):
    with open_store(tmp_path / "s", clock, retention_s=86_400) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        generation(db, 0)
        clock.move(days=2)
        generation(db, 1)
        kept, moment = db.seq, clock()
        clock.move(days=0.5)
        generation(db, 2)
        db.vacuum(dry_run=False, grace_s=0)
        at = dt.datetime.fromtimestamp(moment / 1e6, dt.UTC)
        with db.snapshot(at=at) as past:
            assert past.seq == kept
        with pytest.raises(st.SnapshotExpiredError):
            db.snapshot(at="2001-01-01T00:00Z")


def test_the_record_of_a_finished_snapshot_is_no_longer_leased(db):
    manifests = db._parts.site.manifests
    snapshot, stream = db.snapshot(), db["t"].scan()
    number = db._core.state().view.record.number
    generation(db, 3)
    assert manifests.try_exclusive(number) is None
    del snapshot
    assert manifests.try_exclusive(number) is None
    stream.read_all()
    del stream
    lock = manifests.try_exclusive(number)
    assert lock is not None
    lock.release()


def test_a_file_that_nobody_published_waits_for_the_grace_period(db):
    leftover = db.path / "tables/t-1/base/data/unpublished.lance"
    temporary = db.path / "manifest/.00000000000000000099.json.abc.tmp"
    for path in (leftover, temporary):
        path.write_bytes(b"x")
    db.vacuum(dry_run=False)
    assert leftover.exists()
    assert temporary.exists()
    old = time.time() - 90_000
    for path in (leftover, temporary):
        os.utime(path, (old, old))
    gone = {file.path: file.why for file in db.vacuum(dry_run=False).files}
    assert not leftover.exists()
    assert not temporary.exists()
    assert "grace" in gone["tables/t-1/base/data/unpublished.lance"]


def test_frames_above_the_newest_record_keep_their_files(db, clock):
    db["p"].overwrite([{"id": 9, "v": 9}])
    for _ in range(2):
        db.vacuum(dry_run=False, grace_s=0)
    assert rows(db["p"]) == [(9, 9)]
    root = db.path
    db.close()
    with open_store(root, clock) as again:
        assert rows(again["p"]) == [(9, 9)]


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])
@pytest.mark.parametrize("is_opened_again", [False, True])
def test_a_checkpoint_needs_no_version_within_a_commit_that_a_vacuum_took(db, is_opened_again):
    """One that truncates and attaches makes two versions of a plain table, and names one."""
    stage = db.stage("p")
    staged = stage.run(pa.table({"id": [7], "v": [7]}).to_batches())
    with db.transaction() as tx:
        tx.attach(stage, [staged], overwrite=True)
    db.vacuum(dry_run=False, grace_s=0)
    if is_opened_again:
        db.close()
        with st.connect(db.path, background=False) as again:
            assert again.checkpoint().flushed_seq == again.seq
            assert rows(again["p"]) == [(7, 7)]
    else:
        assert db.checkpoint().flushed_seq == db.seq
        assert rows(db["p"]) == [(7, 7)]
        assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])
def test_plain_path_readers_see_the_newest_base_after_a_vacuum(db):
    import lance

    db.vacuum(dry_run=False, grace_s=0)
    assert lance.dataset(str(db.path / "tables/t-1/base")).count_rows() == 5
    assert lance.dataset(str(db.path / "tables/p-2")).count_rows() == 3


def test_a_store_that_was_closed_keeps_no_record_however_long_it_is_in_memory(
    tmp_path: Path,
) -> None:
    closed = []
    for step in range(3):
        with st.connect(tmp_path / "s", background=False, retention="0s") as db:
            if not step:
                db.create_table("t", KEYED, primary_key="id")
            db["t"].upsert({"id": step, "v": step})
            db.checkpoint()
            assert db.vacuum(dry_run=False, grace_s=0).spared == ()
        closed.append(db)
