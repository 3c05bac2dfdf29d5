"""Vacuum from any process: beside an owner that need not know, and without one.

Over 400 lines: each moment of a vacuum at which others begin or end their work, over one store.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import follow_vacuum, vacuum_store
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.formats.manifest import Pin
from siltstone.local.store import LocalStore
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files.staged_catalog import StagedCatalog
from siltstone.storage.lance.write.commits import LanceCommits
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables.jobs import Jobs
from tests.engine.seams import HookedTables, fake_env
from tests.maintenance.stores import Clock, data_paths, env_of, open_store, paths, rows

KEYED = {"id": "int64", "v": "int64"}
DAYS = 3
OPTIONS = Options(background=False, segment_bytes=65_536, retention_s=0)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock):
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        for step in range(3):
            generation(store, step)
        age(store.path)
        yield store


def age(path: Path) -> None:
    """Have the files written an hour ago: a fast machine made them within a tick of vacuum's."""
    for file in path.rglob("*"):
        if file.is_file():
            then = file.stat().st_mtime - 3600
            os.utime(file, (then, then))


def generation(db, step: int) -> None:
    db["t"].upsert([{"id": n, "v": step} for n in range(5)])
    db["p"].append([{"id": step, "v": step}])
    db.checkpoint()
    db.merge()


def beside(db, clock, *, dry_run: bool = False, grace_s: float = 86_400, real_lance: bool = False):
    """Vacuum as another process does that finds the store owned."""
    env = env_of(clock, real_lance=real_lance)
    return follow_vacuum(db.path, db.options, env, dry_run=dry_run, grace_s=grace_s)


def staged_elsewhere(db):
    """Stage a row as an executor does: nobody holds it from vacuum until it is attached."""
    task = db.stage("p")
    return task, [task.run_through(db._core.tables.writer, pa.table({"id": [100], "v": [1]}))]


def jobs_of(db, clock) -> Jobs:
    env = env_of(clock)
    return Jobs(env.files, db.path, env.now_us, env.new_token)


def test_an_owner_that_knows_nothing_of_a_vacuum_goes_on(db, clock):
    clock.move(days=DAYS)
    answers = rows(db["t"]), rows(db["p"])
    assert beside(db, clock).files
    assert (rows(db["t"]), rows(db["p"])) == answers
    for step in range(3, 6):
        generation(db, step)
        beside(db, clock)
        assert rows(db["t"]) == [(n, step) for n in range(5)]
        assert len(rows(db["p"])) == step + 1
    assert db.verify(deep=True).is_sound


def test_a_snapshot_of_the_owner_outlives_a_vacuum_beside_it(db, clock):
    with db.snapshot() as past:
        answers = rows(past["t"]), rows(past["p"])
        for step in range(3, 6):
            generation(db, step)
            clock.move(days=DAYS)
            beside(db, clock)
        assert (rows(past["t"]), rows(past["p"])) == answers


def test_an_owner_refuses_a_seq_that_a_vacuum_beside_it_let_expire(db, clock):
    old = db.seq
    generation(db, 3)
    clock.move(days=DAYS)
    beside(db, clock)
    db["t"].upsert({"id": 0, "v": 9})
    db.checkpoint()
    with pytest.raises(st.SnapshotExpiredError):
        db.snapshot(seq=old - 3)
    with pytest.raises(st.SnapshotExpiredError):
        db.tag("late", seq=old - 3)


def past_of(db) -> set[int]:
    """Return the seqs at which, says the newest record, versions of `p` began."""
    (table,) = (
        t for t in db._parts.site.manifests.newest().catalog.tables if t.names[-1].name == "p"
    )
    return {version.seq for step in table.incarnations for version in step.versions}


def test_a_checkpoint_brings_no_past_back_that_was_trimmed_while_it_wrote(tmp_path, clock):
    hooked: list[HookedTables] = []
    with LocalStore.open(tmp_path / "s", OPTIONS, env=fake_env(hooked=hooked, now_us=clock)) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        for step in range(3):
            generation(db, step)
        db["t"].upsert({"id": 0, "v": 9})
        db["p"].overwrite([{"id": 100, "v": 1}])

        def overtake(pin: Pin, *_: object) -> None:
            if pin.folder == "commits":
                del hooked[0].hooks["stage"]
                clock.move(days=DAYS)  # what was published is old, what is staged is young
                beside(db, clock)
                kept.append(past_of(db))

        before, kept = past_of(db), list[set[int]]()
        hooked[0].hooks["stage"] = overtake
        db.checkpoint()
        assert kept[0] < before
        assert past_of(db) & before == kept[0]
        assert rows(db["p"]) == [(100, 1)]
        assert db.verify(deep=True).is_sound
        beside(db, clock)
        assert db.verify(deep=True).is_sound


def test_a_tag_that_the_log_alone_has_keeps_its_past(db, clock):
    answer = rows(db["t"])
    db.tag("audit")
    for step in range(3, 6):
        db["t"].upsert([{"id": n, "v": step} for n in range(5)])
        db.checkpoint()
        db.merge()
        clock.move(days=DAYS)
        beside(db, clock)
    with db.snapshot(tag="audit") as past:
        assert rows(past["t"]) == answer


def test_a_tag_that_is_set_while_a_vacuum_counts_keeps_its_past(db, clock, monkeypatch):
    """Its lease is let go before the vacuum asks, its frame is behind the look at the tags."""
    answer, old = (rows(db["t"]), rows(db["p"])), db.seq
    held = [db.transaction()]
    held[0].tag("late", old)
    for step in range(3, 5):
        generation(db, step)
    clock.move(days=DAYS)
    numbers = ManifestStore.try_exclusive
    done: list[int] = []

    def tag_first(self, number):
        if not done:
            done.append(number)
            held.pop().commit()
            db._parts.owner.checkpointer.renew()
        return numbers(self, number)

    monkeypatch.setattr(ManifestStore, "try_exclusive", tag_first)
    beside(db, clock)
    assert done
    db.checkpoint()
    with db.snapshot(tag="late") as past:
        assert (rows(past["t"]), rows(past["p"])) == answer


@pytest.mark.parametrize("vacuums", [1, 2, 3])
def test_files_that_an_open_transaction_of_the_owner_staged_stay(db, clock, vacuums):
    with db.transaction() as tx:
        tx["p"].append([{"id": 100, "v": 1}])
        for _ in range(vacuums):
            clock.move(days=DAYS)
            beside(db, clock, grace_s=0)
    assert (100, 1) in rows(db["p"])
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_staged_elsewhere_stay_from_when_they_are_attached(db, clock, is_first):
    """Whatever the grace period: here it is shorter than the time between the two."""
    task, staged = staged_elsewhere(db)
    clock.move(days=DAYS)
    tx = db.transaction()
    if not is_first:  # the transaction holds what it stages itself since a later time
        tx["p"].append([{"id": 101, "v": 1}])
    tx.attach(task, staged)
    clock.move(seconds=10)
    beside(db, clock, grace_s=1)
    tx.commit()
    assert (100, 1) in rows(db["p"])
    assert db.verify(deep=True).is_sound


def test_a_transaction_that_stages_after_a_vacuum_commits(db, clock):
    with db.transaction() as tx:
        clock.move(days=DAYS)
        beside(db, clock, grace_s=0)
        tx["p"].add_column("w", "int64")
    assert db["p"].schema.names[-1] == "w"


@pytest.mark.parametrize("how", ["commit", "rollback", "forget"])
def test_a_transaction_that_has_ended_keeps_nothing_from_vacuum(db, clock, how):
    tx = db.transaction()
    tx["p"].append([{"id": 100, "v": 1}])
    if how != "forget":
        getattr(tx, how)()
    del tx
    gc.collect()
    assert not list((db.path / "jobs").glob("*-*.json"))
    assert not [seen for seen in jobs_of(db, clock).list() if seen.is_running]


def test_a_load_keeps_what_it_writes_from_vacuum(db, clock):
    def batches():
        yield from first.to_batches()
        clock.move(days=DAYS)
        beside(db, clock, grace_s=0)
        yield from second.to_batches()

    first, second = (
        pa.table({"id": pa.array(range(n, n + 4000)), "v": pa.array([7] * 4000)})
        for n in (1000, 5000)
    )
    reader = pa.RecordBatchReader.from_batches(first.schema, batches())
    table = catalogs.find(db._core.state().view.catalog, "t")
    load(
        db._core,
        table,
        table_schema_of(catalogs.schema_of(table)),
        reader,
        may_repeat=True,
        bytes_min=1000,
    )
    assert len(rows(db["t"])) == 8005
    assert db.verify(deep=True).is_sound
    assert db.verify(deep=True).is_sound


def test_a_commit_of_rows_that_a_vacuum_condemned_is_refused_whole(db, clock):
    before = rows(db["p"]), rows(db["t"])
    task, staged = staged_elsewhere(db)
    clock.move(days=DAYS)
    beside(db, clock)
    tx = db.transaction()
    tx["t"].upsert({"id": 100, "v": 1})
    with pytest.raises(st.RequestError, match="vacuumed"):
        tx.attach(task, staged)
    tx.rollback()
    assert (rows(db["p"]), rows(db["t"])) == before
    db["p"].append([{"id": 100, "v": 1}])
    assert db.verify(deep=True).is_sound


def test_an_owner_that_sleeps_before_its_frame_keeps_the_files_it_names(db, clock, monkeypatch):
    """A vacuum of days later looks who holds what after it said what it condemns."""
    task, staged = staged_elsewhere(db)
    tx = db.transaction()
    tx.attach(task, staged)
    asked = Core.gc_horizon_us

    def sleep(core: Core) -> int:
        found = asked(core)
        clock.move(days=DAYS)
        beside(db, clock)
        return found

    monkeypatch.setattr(Core, "gc_horizon_us", sleep)
    tx.commit()
    assert (100, 1) in rows(db["p"])
    assert db.verify(deep=True).is_sound


def test_an_owner_that_sleeps_before_it_holds_its_files_is_refused(db, clock, monkeypatch):
    before = rows(db["p"])
    task, staged = staged_elsewhere(db)
    tx = db.transaction()
    jobs = db._core.site.jobs
    hold = jobs.hold

    def sleep(staged_us: int):
        clock.move(days=DAYS)
        beside(db, clock)
        return hold(staged_us)

    monkeypatch.setattr(jobs, "hold", sleep)
    with pytest.raises(st.RequestError, match="vacuumed"):
        tx.attach(task, staged)
    tx.rollback()
    assert rows(db["p"]) == before
    assert db.verify(deep=True).is_sound


def test_a_commit_of_what_a_vacuum_has_said_that_it_condemns_is_refused(db, clock, monkeypatch):
    before = rows(db["p"])
    task, staged = staged_elsewhere(db)
    clock.move(days=DAYS)
    condemn, refused = Vacuum._raise_gc_horizon, []

    def commit_behind(self, gc_horizon_us):
        said_us = condemn(self, gc_horizon_us)
        tx = db.transaction()
        tx.attach(task, staged)
        with pytest.raises(st.BusyError, match="staged"):
            tx.commit()
        refused.append(tx)
        return said_us

    monkeypatch.setattr(Vacuum, "_raise_gc_horizon", commit_behind)
    beside(db, clock)
    assert refused
    assert rows(db["p"]) == before
    assert db.verify(deep=True).is_sound


def test_a_vacuum_that_said_what_it_condemns_looks_again_who_is_at_work(db, clock, monkeypatch):
    """The commit begins between the two."""
    before = data_paths(db.path)
    task, _ = staged_elsewhere(db)
    staged = data_paths(db.path) - before
    clock.move(days=DAYS)
    held = []
    condemn = Vacuum._raise_gc_horizon

    def hold_first(self, gc_horizon_us):
        held.append(db._core.site.jobs.hold(task.began_us))
        return condemn(self, gc_horizon_us)

    monkeypatch.setattr(Vacuum, "_raise_gc_horizon", hold_first)
    beside(db, clock)
    assert staged
    assert staged <= data_paths(db.path)
    held[0].drop()


def test_an_async_commit_that_names_files_is_durable_before_they_are_let_go(db):
    with db.transaction(durability="async") as tx:
        tx["p"].append([{"id": 100, "v": 1}])
    assert db.durable_seq == db.seq


def test_a_long_transaction_that_staged_nothing_commits(db, clock):
    tx = db.transaction()
    tx["t"].upsert({"id": 100, "v": 1})
    clock.move(days=DAYS)
    beside(db, clock)
    tx.commit()
    assert (100, 1) in rows(db["t"])


def test_a_running_job_keeps_what_is_as_young_as_it_is(db, clock):
    with jobs_of(db, clock).begin("optimize", ("t",)) as job:
        orphan = db.path / "tables" / "orphan.lance"
        orphan.write_bytes(b"x")
        clock.move(days=DAYS)
        db.vacuum(dry_run=False, grace_s=0)
        assert orphan.exists()
        assert ManifestStore(RealFiles(), db.path).newest().gc_horizon_us <= job.job.started_us
    clock.move(days=1)
    db.vacuum(dry_run=False, grace_s=0)
    assert not orphan.exists()


def test_a_dead_job_that_is_not_condemned_keeps_what_is_a_tick_older_than_it(
    db, clock, monkeypatch
):
    """Somebody may be about to publish it, and a file has the time of the last tick."""
    with jobs_of(db, clock).begin("optimize", ("t",)) as job:
        job.append(b"1")
    orphan = db.path / "tables" / "orphan.lance"
    orphan.write_bytes(b"x")
    begun_s = job.job.started_us / 1e6
    os.utime(orphan, (begun_s - 0.004,) * 2)
    with monkeypatch.context() as patch:  # set back since, a little
        patch.setattr(type(clock), "__call__", lambda _: job.job.started_us - 2000)
        db.vacuum(dry_run=False, grace_s=0)
    assert orphan.exists()
    assert [seen.id for seen in jobs_of(db, clock).list()] == [job.job.id]
    clock.move(days=1)
    db.vacuum(dry_run=False, grace_s=0)
    assert not orphan.exists()
    assert jobs_of(db, clock).list() == []


def test_what_is_committed_while_a_vacuum_without_a_grace_gathers_what_is_needed_stays(
    db, clock, monkeypatch
):
    """Its files have the time of the tick before the commit began, and nobody is at work later."""
    (db.path / "tables" / "orphan.lance").write_bytes(b"x")
    os.utime(db.path / "tables" / "orphan.lance", (1, 1))
    before = paths(db.path)
    tx = db.transaction()
    tx["p"].append([{"id": 100, "v": 1}])
    (held,) = jobs_of(db, clock).list()
    then = held.job.started_us / 1e6 - 0.003
    for name in paths(db.path) - before:
        os.utime(db.path / name, (then, then))
    ages, asked = Vacuum._ages, []

    def after_the_commit(self, *arguments, **options):
        asked.append(self)
        if len(asked) == 2:  # the first is before the horizon is said
            tx.commit()
        return ages(self, *arguments, **options)

    monkeypatch.setattr(Vacuum, "_ages", after_the_commit)
    beside(db, clock, grace_s=0)
    assert len(asked) == 2
    assert (100, 1) in rows(db["p"])
    assert db.verify(deep=True).is_sound


def test_the_record_of_a_dead_job_goes_after_the_grace_period_and_not_before(db, clock):
    with jobs_of(db, clock).begin("optimize", ("t",)) as job:
        job.append(b"1")
    db.vacuum(dry_run=False, grace_s=3600)
    assert jobs_of(db, clock).list()
    clock.move(days=DAYS)
    preview = db.vacuum(grace_s=3600)
    assert f"jobs/{job.job.id}.json" in {file.path for file in preview.files}
    assert jobs_of(db, clock).list()
    found = db.vacuum(dry_run=False, grace_s=3600)
    assert f"jobs/{job.job.id}.json" in {file.path for file in found.files}
    assert jobs_of(db, clock).list() == []


def test_unpublished_files_are_condemned_in_a_record_before_they_go(db, clock, monkeypatch):
    orphan = db.path / "tables" / "orphan.lance"
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    clock.move(days=DAYS)
    seen: list[int] = []
    unlink = RealFiles.unlink

    def noted(self, path):
        if path == orphan:
            seen.append(ManifestStore(RealFiles(), db.path).newest().gc_horizon_us)
        unlink(self, path)

    monkeypatch.setattr(RealFiles, "unlink", noted)
    db.vacuum(dry_run=False, grace_s=3600)
    assert not orphan.exists()
    assert seen[0] > 1_000_000


def test_a_dry_run_beside_an_owner_changes_nothing(db, clock):
    clock.move(days=DAYS)
    before = paths(db.path)
    assert beside(db, clock, dry_run=True).files
    assert paths(db.path) == before


def test_without_an_owner_what_a_crash_left_in_the_log_is_recovered_first(tmp_path):
    code = (
        "import sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], background=False, retention='0s')\n"
        "p = db.create_table('p', {'id': 'int64'})\n"
        "p.append([{'id': 1}]); p.append([{'id': 2}])\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    root = tmp_path / "s"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGKILL)
    (root / "wal" / "MARK").unlink()
    old = time.time() - 10 * 86_400
    for path in (root / "tables").rglob("*"):
        os.utime(path, (old, old))
    assert not vacuum_store(root, dry_run=False, grace_s=0, retention="0s").is_dry_run
    with st.connect(root) as db:
        assert sorted(row["id"] for row in db["p"].to_arrow().to_pylist()) == [1, 2]
        assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("turn", [1, 4, 9, 14])
def test_a_vacuum_that_another_one_overtakes_goes_on(db, clock, monkeypatch, turn):
    """What is gone when it comes to read it, the other one took."""
    generation(db, 3)
    clock.move(days=DAYS)
    read, reads = ManifestStore.read, []

    def overtaken(self, number):
        reads.append(number)
        if len(reads) == turn:
            beside(db, clock)
        return read(self, number)

    monkeypatch.setattr(ManifestStore, "read", overtaken)
    assert not beside(db, clock).is_dry_run
    assert len(reads) > turn
    monkeypatch.undo()
    assert rows(db["t"]) == [(n, 3) for n in range(5)]
    assert db.verify(deep=True).is_sound


def test_what_a_client_staged_and_nobody_took_goes_after_the_grace_period(db, clock):
    (folder,) = (db.path / "tables").glob("p-*")
    (folder / "_versions").mkdir(exist_ok=True)
    names = ["18446744073709551601.manifest-0b7c", "9.manifest-2f1e7d0a-aa"]
    names += ["9.manifest-0b7c#1", "18446744073709551601.manifest#12", ".tmpgbURA1"]  # killed
    staged = [folder / "_versions" / name for name in names]
    stays = [folder / "_versions" / name for name in ("9.manifest", "9.manifest-", "hint.json")]
    for path in (*staged, *stays):
        path.write_bytes(b"x")
    beside(db, clock, grace_s=3600)
    assert all(path.exists() for path in staged)
    clock.move(days=1)
    beside(db, clock, grace_s=3600)
    assert not any(path.exists() for path in staged)
    assert all(path.exists() for path in stays)
    assert len(rows(db["p"])) == 3


def test_a_vacuum_of_no_store_is_refused(tmp_path):
    with pytest.raises(st.RequestError):
        vacuum_store(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_vacuum_whose_clock_is_ahead_wedges_nobody(db, clock):
    """What begins upon a record is never before what that record condemns."""
    orphan = db.path / "tables" / "orphan.lance"
    orphan.write_bytes(b"x")
    ahead = Clock()
    ahead.move(days=3650)
    beside(db, ahead)
    assert not orphan.exists()
    assert ManifestStore(RealFiles(), db.path).newest().gc_horizon_us > clock()
    db["t"].upsert({"id": 0, "v": 9})
    db.checkpoint()
    db["p"].append([{"id": 100, "v": 1}])
    db.checkpoint()
    db.merge()
    assert isinstance(db.optimize(), Optimized)
    assert (0, 9) in rows(db["t"])
    assert (100, 1) in rows(db["p"])
    assert db.verify(deep=True).is_sound


def test_a_second_vacuum_whose_clock_is_ahead_is_heard_by_what_began_after_the_first(db):
    ahead = Clock()
    ahead.move(days=3650)
    orphan = db.path / "tables" / "orphan.lance"
    orphan.write_bytes(b"x")
    beside(db, ahead)
    db._parts.owner.checkpointer.renew()
    task, staged = staged_elsewhere(db)
    beside(db, ahead)
    with pytest.raises(st.RequestError, match="vacuumed"), db.transaction() as tx:
        tx.attach(task, staged)
    assert db.verify(deep=True).is_sound


def test_what_began_upon_a_horizon_that_is_ahead_is_condemned_by_the_next_one(
    db, clock, monkeypatch
):
    """Its start is said to be that horizon: the next one is above it, whatever the clock says."""
    ahead = Clock()
    ahead.move(days=3650)
    (db.path / "tables" / "orphan.lance").write_bytes(b"x")
    beside(db, ahead)
    db._parts.owner.checkpointer.renew()
    test_a_commit_of_what_a_vacuum_has_said_that_it_condemns_is_refused(db, clock, monkeypatch)


def test_the_directories_of_a_base_that_is_being_made_stay(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "s", clock, real_lance=True) as db:
        db.create_table("t", KEYED, primary_key="id")
        db["t"].upsert({"id": 1, "v": 1})
        db.checkpoint()
        of_a_crash = db.path / "tables/t-1/base/data/crashed.lance"
        begin = LanceCommits.begin

        def begun(commits: LanceCommits, folder: str, pin: Pin | None = None) -> StagedCatalog:
            made = begin(commits, folder, pin)
            if folder.endswith("/base") and of_a_crash.exists():
                beside(db, clock, grace_s=60, real_lance=True)
                assert not of_a_crash.exists()
            return made

        of_a_crash.parent.mkdir(parents=True)
        of_a_crash.write_bytes(b"x")
        age(db.path)
        monkeypatch.setattr(LanceCommits, "begin", begun)
        db.merge()
        assert rows(db["t"]) == [(1, 1)]
        assert db.verify(deep=True).is_sound


def test_who_holds_the_lock_and_has_not_recovered_is_not_taken_for_the_owner_that_died(tmp_path):
    """It stands still between its lock of LOCK and its first write: LOCK names who died."""
    root, clock = tmp_path / "s", Clock()
    with open_store(root, clock) as db:
        db.create_table("p", KEYED)
        words = (root / "LOCK").read_bytes()
        beside(db, clock, grace_s=0)  # is not refused: its owner has recovered
    (root / "LOCK").write_bytes(words)
    lock = RealFiles().lock(root / "LOCK")
    assert lock is not None
    with pytest.raises(st.BusyError, match="no owner yet"):
        follow_vacuum(root, OPTIONS, env_of(clock), dry_run=False, grace_s=0)
    lock.release()


def test_an_owner_is_not_kept_from_its_work_by_who_looks_whether_it_recovered(tmp_path):
    root, clock = tmp_path / "s", Clock()
    open_store(root, clock).close()
    looking = RealFiles().lock(root / "wal" / "MARK", shared=True)
    assert looking is not None  # and stands still
    with open_store(root, clock) as db:
        db.create_table("p", KEYED).append([{"id": 1, "v": 1}])
        looking.release()
        with pytest.raises(st.BusyError, match="no owner yet"):
            beside(db, clock, grace_s=0)
        assert db["p"].count() == 1
