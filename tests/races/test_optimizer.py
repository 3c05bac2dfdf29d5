"""An optimizer in a process of its own survives whatever happens to the store meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import lance
import msgspec
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.failpoints import Failpoint, Point
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.lance.write import compactor
from siltstone.storage.manifest.manifest_store import ManifestStore, system_time_us
from siltstone.storage.tables.values import Compacted, InputsMovedError
from tests.races import shop
from tests.races.ledger import held_at
from tests.races.processes import Held, Meeting, Process


@pytest.fixture(scope="module")
def optimizer() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


@pytest.fixture(scope="module")
def meeting() -> Iterator[Meeting]:
    found = Meeting()
    yield found
    found.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("optimizer") / "shop"
    shop.make(root)
    return root


@pytest.fixture
def db(made: Path, tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(shutil.copytree(made, tmp_path / "shop"), **shop.OPTIONS) as store:
        yield store


class Optimize:
    """An optimize in the other process, held at a failpoint until `end`."""

    def __init__(self, process: Process, meeting: Meeting, db: st.Store, point: Point) -> None:
        orders = f"{held_at(point).label}=pause"
        process.call("arm", orders=orders, socket=meeting.address)
        self.process = process
        self.running = process.start("optimize", root=str(db.path), stamp=0)
        self.held: Held = meeting.expect(self.running)

    def end(self) -> None:
        """Let it go on to its end; it raises what the optimizer did."""
        self.held.go()
        self.running.result(60)


def by_id(db: st.Store, table: str = "wide") -> dict[object, dict[str, object]]:
    return {row["id"]: row for row in db[table].to_arrow().to_pylist()}


def check(db: st.Store, expected: shop.Answers) -> None:
    """Check what this process, a merge and a fresh reader see."""
    assert shop.answers(db) == expected
    db.checkpoint()
    db.merge()
    assert shop.answers(db) == expected
    assert db.verify(deep=True).is_sound
    with st.connect(db.path, read_only=True) as reader:
        assert shop.answers(reader) == expected


def parts(db: st.Store, table: str) -> int:
    """Return how many parts the base and the history of a table have in the newest record."""
    record = ManifestStore(RealFiles(), db.path).newest()
    tables = lance_tables(db.path, RealFiles(), verify="scrub")
    (storage,) = (s for s in record.keyed if f"/{table}-" in s.folder)
    pins = {"base": storage.base, ".history": storage.history}
    opened = [tables.reader.open(pin) for name, pin in pins.items() if pin]
    return sum(len(found.spans) for found in opened)


def test_an_optimize_survives_a_foreign_insert_that_advances_the_manifest(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
    db["wide"].insert({"id": 5_000, "name": "foreign", "n": 1})
    db.checkpoint()
    expected = shop.answers(db)
    optimize.end()
    assert parts(db, "wide") == 2
    check(db, expected)


def test_an_optimize_survives_a_foreign_delete_in_the_files_that_it_compacts(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
    db["wide"].delete([0, 1, 150, 230])
    db["short"].delete_where("id < 3")
    db.checkpoint()
    db.merge()
    expected = shop.answers(db)
    assert not {0, 1, 150, 230} & set(by_id(db))
    optimize.end()
    check(db, expected)


def test_half_done_work_of_an_optimizer_is_not_mistaken_for_drift(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    expected = shop.answers(db)
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_BEFORE_PUBLISH)
    found = db.verify(deep=True)
    assert found.is_sound
    assert found.findings == ()
    check(db, expected)
    optimize.end()
    check(db, expected)


def test_a_lost_acknowledgement_after_publish_is_recognised(
    db: st.Store, optimizer: Process
) -> None:
    """The record is made, and the answer is an error: it is not made twice."""
    expected = shop.answers(db)
    manifests = ManifestStore(RealFiles(), db.path)
    number = manifests.newest().number
    lost, planned = Failpoint.PUBLISH_AFTER_CREATE.label, Failpoint.OPTIMIZE_AFTER_PLAN.label
    optimizer.call("arm", orders=f"{lost}=raise, {planned}=note", socket="")
    optimizer.call("optimize", root=str(db.path), stamp=0)
    counts = optimizer.call("crossings")
    assert isinstance(counts, dict)
    assert counts[planned] == 1
    assert manifests.newest().number == number + 2  # it says the same again: its sync counts
    check(db, expected)


def test_two_optimizers_do_the_work_once_and_neither_fails(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    expected = shop.answers(db)
    manifests = ManifestStore(RealFiles(), db.path)
    number = manifests.newest().number
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_BEFORE_PUBLISH)
    assert isinstance(db.optimize(target_rows=shop.TARGET_ROWS), st.Optimized)
    optimize.end()
    assert manifests.newest().number == number + 1
    check(db, expected)


def test_an_owner_killed_while_an_optimizer_runs_hinders_neither_it_nor_its_heir(
    made: Path, tmp_path: Path, optimizer: Process, meeting: Meeting
) -> None:
    root = Path(shutil.copytree(made, tmp_path / "shop"))
    owner = Process()
    owner.call("open", root=str(root))
    with st.connect(root, read_only=True) as db:
        optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_BEFORE_PUBLISH)
        owner.call("ddl", root=str(root), stamp=3)
        expected = shop.answers(db)
        owner.signal(signal.SIGKILL)
        owner.end()
        optimize.end()
        assert shop.answers(db) == expected
    with st.connect(root, **shop.OPTIONS) as heir:
        check(heir, expected)


def test_an_optimizer_asleep_while_50_records_pass_and_vacuum_takes_its_number_starts_again(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    manifests = ManifestStore(RealFiles(), db.path)
    number = manifests.newest().number + 1
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_BEFORE_PUBLISH)
    for turn in range(50):
        db["short"].upsert({"id": turn, "n": turn})
        db.checkpoint()
    db.vacuum(dry_run=False)
    assert not manifests.path(number).exists()
    assert manifests.kept().number > number
    expected = shop.answers(db)
    optimize.end()
    assert not manifests.path(number).exists()
    check(db, expected)


def test_an_optimizer_stopped_by_a_signal_while_others_publish_goes_on_where_it_stood(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    """It holds its lease while it sleeps; nobody needs it to be awake."""
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_PLAN)
    os.kill(optimize.held.pid, signal.SIGSTOP)
    optimize.held.go()
    try:
        db["wide"].upsert([{"id": n, "name": "late", "n": n} for n in range(30)], missing="null")
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False)
        expected = shop.answers(db)
    finally:
        os.kill(optimize.held.pid, signal.SIGCONT)
    optimize.running.result(60)
    check(db, expected)


def test_an_optimizer_stopped_for_longer_than_the_grace_period_keeps_its_files(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    """It holds the record of its job."""
    expected = shop.answers(db)
    before = set(db.path.glob("tables/**/*.lance"))
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
    staged = set(db.path.glob("tables/**/*.lance")) - before
    os.kill(optimize.held.pid, signal.SIGSTOP)
    optimize.held.go()
    try:
        db.vacuum(dry_run=False, grace_s=0)
    finally:
        os.kill(optimize.held.pid, signal.SIGCONT)
    optimize.running.result(60)
    assert staged
    assert all(path.exists() for path in staged)
    check(db, expected)


def test_an_optimizer_stopped_for_longer_than_the_grace_period_refuses_cleanly(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    """Its job's record was deleted, so vacuum takes its files: it finds out, and begins anew."""
    expected = shop.answers(db)
    before = set(db.path.glob("tables/**/*.lance"))
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
    staged = set(db.path.glob("tables/**/*.lance")) - before
    os.kill(optimize.held.pid, signal.SIGSTOP)
    optimize.held.go()
    try:
        for record in db.path.glob("jobs/*.json"):
            record.unlink()
        db.vacuum(dry_run=False, grace_s=0)
        assert staged
        assert not any(path.exists() for path in staged)
        assert shop.answers(db) == expected
    finally:
        os.kill(optimize.held.pid, signal.SIGCONT)
    optimize.running.result(60)
    assert parts(db, "wide") == 2
    check(db, expected)


def test_an_optimizer_that_a_vacuum_took_for_dead_starts_again(
    db: st.Store, optimizer: Process, meeting: Meeting
) -> None:
    """It had lost its record, slept longer than the grace period, and its files are gone."""
    manifests = ManifestStore(RealFiles(), db.path)
    before = set(db.path.glob("tables/**/*.lance"))
    optimize = Optimize(optimizer, meeting, db, Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
    newest = manifests.newest()
    condemned = msgspec.structs.replace(newest, gc_horizon_us=system_time_us())
    manifests.publish(lambda _: condemned, base=newest)
    for path in set(db.path.glob("tables/**/*.lance")) - before:
        path.unlink()
    expected = shop.answers(db)
    optimize.end()
    assert parts(db, "wide") == 2
    check(db, expected)


def test_a_compaction_whose_input_gained_deletions_after_the_plan_is_refused(
    tmp_path: Path,
) -> None:
    """Lance itself applies a hand-made Rewrite of it, and brings the deleted rows back."""
    rows = pa.table({"id": range(8)})
    dataset = lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=4)
    inputs, fragments = compactor.compact(dataset, dataset.get_fragments())
    compacted = Compacted(
        8, tuple(map(compactor.canonical, inputs)), tuple(map(json.dumps, fragments)), ()
    )
    unchecked = compactor.rewrite(dataset, [compacted], 99)
    dataset.delete("id = 1")
    with pytest.raises(InputsMovedError):
        compactor.rewrite(dataset, [compacted], 2)
    raised = lance.LanceDataset.commit(dataset, unchecked, read_version=dataset.version)
    assert raised.to_table()["id"].to_pylist() == list(range(8))
