"""An optimize changes no answer and fails for nobody, whoever flushes or merges meanwhile."""

from __future__ import annotations

import os
import pickle
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.formats.manifest import Pin
from siltstone.local.store import LocalStore
from siltstone.maintenance.compaction.compaction import CompactTask, Optimized, Sizes
from siltstone.maintenance.merge.merge import Deferred
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.engine.seams import HookedTables, fake_env, jobs_of, open_store
from tests.maintenance.optimizers import optimizer_of
from tests.nightly import by_day

SCHEMA = {"id": "int64", "v": "int64"}


def rows(table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def history_parts(db) -> int:
    (storage,) = db._core.state().view.record.keyed
    return len(db._parts.site.tables.reader.open(storage.history).spans)


@pytest.fixture
def made(tmp_path: Path):
    """Six small files of history, three of them un-merged."""
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for turn in range(6):
            table.upsert([{"id": n, "v": turn} for n in range(turn, 10)])
            db.checkpoint()
            if turn == 2:
                db.merge()
        yield db, table, hooked[0]


def test_small_files_of_history_become_one_and_every_answer_stays(made) -> None:
    db, table, tables = made
    before = {seq: rows(db.snapshot(seq=seq)["t"]) for seq in range(1, db.seq + 1) if seq > 1}
    found = optimizer_of(db.path, tables).optimize()
    assert isinstance(found, Optimized)
    assert found.tables == ("t",)
    assert found.files_before == 6
    assert found.files_after == 1
    db._parts.owner.checkpointer.renew()
    assert history_parts(db) == 1
    assert {seq: rows(db.snapshot(seq=seq)["t"]) for seq in before} == before
    assert rows(table) == before[db.seq]
    with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
        assert {seq: rows(other.snapshot(seq=seq)["t"]) for seq in before} == before


def test_a_second_optimize_finds_nothing_to_do(made) -> None:
    db, _, tables = made
    optimizer = optimizer_of(db.path, tables)
    optimizer.optimize()
    records = ManifestStore(fake_env().files, db.path).newest().number
    assert optimizer.optimize() == Optimized((), 0, 0, 0)
    assert ManifestStore(fake_env().files, db.path).newest().number == records


def test_an_optimize_survives_a_checkpoint_a_merge_and_a_delete_behind_its_plan(made) -> None:
    db, table, tables = made

    def write() -> None:
        del tables.hooks["compact"]
        table.upsert({"id": 3, "v": 33})
        table.delete([1, 2])
        db.checkpoint()
        db.merge()

    expected = {**rows(table), 3: 33}
    del expected[1], expected[2]
    tables.hooks["compact"] = lambda *_: write()
    found = optimizer_of(db.path, tables).optimize()
    assert not isinstance(found, Deferred)
    assert rows(table) == expected
    table.upsert({"id": 4, "v": 44})
    db.checkpoint()
    db.merge()
    assert rows(table) == {**expected, 4: 44}
    with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
        assert rows(other["t"]) == {**expected, 4: 44}


def test_a_checkpoint_that_loses_to_an_optimize_puts_its_rows_on_top(made) -> None:
    db, table, tables = made
    table.upsert({"id": 3, "v": 33})
    expected = rows(table)

    def optimize(*_: object) -> None:
        del tables.hooks["stage"]
        assert optimizer_of(db.path, tables).optimize().files_after == 1

    tables.hooks["stage"] = optimize
    db.checkpoint()
    assert rows(table) == expected
    db.merge()
    assert rows(table) == expected


def test_an_optimize_of_history_while_a_merge_writes_changes_no_answer(made) -> None:
    db, table, tables = made
    expected = rows(table)
    table.upsert({"id": 100, "v": 1})
    db.checkpoint()

    def optimize(*_: object) -> None:
        del tables.hooks["fold"]
        optimizer_of(db.path, tables).optimize()

    tables.hooks["fold"] = optimize
    assert not isinstance(db.merge(), Deferred)
    assert rows(table) == {**expected, 100: 1}


def test_a_merge_beside_an_optimizer_that_never_rests_loses_once(made) -> None:
    db, table, tables = made
    expected = rows(table)
    plans: list[object] = []

    def optimize(*found: object) -> None:
        plans.append(found)
        optimizer_of(db.path, tables).optimize()

    tables.hooks["fold"] = optimize
    for turn in range(5):
        table.upsert({"id": 100 + turn, "v": 1})
        expected[100 + turn] = 1
        db.checkpoint()
        plans.clear()
        assert not isinstance(db.merge(), Deferred)
        assert len(plans) <= 2
    assert rows(table) == expected


@pytest.mark.parametrize("is_merged", [False, True])
def test_what_is_finished_is_published_as_it_goes_but_not_while_somebody_merges(
    made, is_merged: bool
) -> None:
    db, table, tables = made
    expected = rows(table)
    others = jobs_of(db.path).begin("merge", ("t",)) if is_merged else nullcontext()
    before = ManifestStore(fake_env().files, db.path).newest().number
    with others:
        assert optimizer_of(db.path, tables).optimize(target_rows=20, workers=1).files_before == 5
        published = ManifestStore(fake_env().files, db.path).newest().number - before
    assert published == (1 if is_merged else 2)
    db._parts.owner.checkpointer.renew()
    assert rows(table) == expected


def test_what_ran_elsewhere_together_is_published_once_and_not_held_against_itself(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, table, tables = made
    expected, compared = rows(table), list[Any]()
    monkeypatch.setattr(tables.compactor, "untouched", lambda *given: compared.append(given))
    before = ManifestStore(fake_env().files, db.path).newest().number

    def elsewhere(tasks):
        return [tables.compactor.compact(task.pin, task.within) for task in tasks]

    found = optimizer_of(db.path, tables).optimize(target_rows=20, execute=elsewhere)
    assert found.files_before > found.files_after > 1
    assert ManifestStore(fake_env().files, db.path).newest().number == before + 1
    assert compared == []
    db._parts.owner.checkpointer.renew()
    assert rows(table) == expected


def test_the_record_that_an_optimize_goes_on_with_is_leased_while_it_looks_at_it(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _, tables = made
    manifests = ManifestStore(fake_env().files, db.path)
    untouched, seen = tables.compactor.untouched, list[bool]()

    def leased(*given: Any) -> list[bool]:
        if manifests.newest().number > first:
            vacuumed = manifests.try_exclusive(manifests.newest().number)
            seen.append(vacuumed is None)
        return untouched(*given)

    first = manifests.newest().number
    monkeypatch.setattr(tables.compactor, "untouched", leased)
    assert optimizer_of(db.path, tables).optimize(target_rows=20, workers=1).files_before == 5
    assert seen
    assert all(seen)


def test_two_optimizers_of_one_plan_do_the_work_once(made) -> None:
    db, table, tables = made
    expected = rows(table)
    outcomes = []

    def overtake(*_: object) -> None:
        del tables.hooks["swap"]
        outcomes.append(optimizer_of(db.path, tables).optimize())

    tables.hooks["swap"] = overtake
    outcomes.append(optimizer_of(db.path, tables).optimize())
    assert sorted(outcome.files_before for outcome in outcomes) == [0, 6]
    db._parts.owner.checkpointer.renew()
    assert history_parts(db) == 1
    assert rows(table) == expected


def test_an_optimize_of_a_table_that_is_dropped_meanwhile_is_done(made) -> None:
    db, _, tables = made

    def drop(*_: object) -> None:
        del tables.hooks["compact"]
        db.drop_table("t")
        db.checkpoint()

    tables.hooks["compact"] = drop
    assert not isinstance(optimizer_of(db.path, tables).optimize(), Deferred)
    assert db.tables() == []


def test_an_optimize_that_lost_some_of_its_work_once_says_so(made) -> None:
    db, table, tables = made
    expected = {**rows(table), 1: 7}

    def move(pin: Pin, *_: object) -> None:
        if pin.folder.endswith("/.history"):
            del tables.hooks["compact"]
            optimizer_of(db.path, tables).optimize()
            table.upsert({"id": 1, "v": 7})
            db.checkpoint()

    tables.hooks["compact"] = move
    found = optimizer_of(db.path, tables).optimize()
    assert not isinstance(found, Deferred)
    assert found.replans == ("others changed 6 of 6 files that were read of t",)
    assert rows(table) == expected


def test_an_optimize_that_always_loses_is_deferred(made) -> None:
    db, table, tables = made

    def move(pin: Pin, *_: object) -> None:
        if not pin.folder.endswith("/.history"):
            return
        hook = tables.hooks.pop("compact")
        optimizer_of(db.path, tables).optimize()
        for turn in range(2):
            table.upsert({"id": 1, "v": turn})
            db.checkpoint()
        tables.hooks["compact"] = hook

    tables.hooks["compact"] = move
    found = optimizer_of(db.path, tables).optimize(attempts=2)
    assert isinstance(found, Deferred)
    assert found.attempts == 2
    assert found.reason.startswith("others changed ")


class _DiedError(BaseException):
    """The optimizer's process is gone."""


def dies_after_its_tasks(db, tables) -> None:
    def die(*_: object) -> None:
        del tables.hooks["swap"]
        raise _DiedError

    tables.hooks["swap"] = die
    with pytest.raises(_DiedError):
        optimizer_of(db.path, tables).optimize()
    (seen,) = jobs_of(db.path).list()
    assert not seen.is_running
    assert seen.finished


def refuse_to_compact(*_: object) -> None:
    pytest.fail("what was finished is done again")


def test_what_a_dead_optimize_finished_is_published_by_the_next(made) -> None:
    db, table, tables = made
    expected = rows(table)
    dies_after_its_tasks(db, tables)
    tables.hooks["compact"] = refuse_to_compact
    assert optimizer_of(db.path, tables).optimize().files_before == 6
    assert jobs_of(db.path).list() == []
    db._parts.owner.checkpointer.renew()
    assert history_parts(db) == 1
    assert rows(table) == expected


def test_what_a_dead_optimize_finished_is_left_when_its_inputs_moved(made) -> None:
    db, table, tables = made
    expected = rows(table)
    dies_after_its_tasks(db, tables)
    (dead,) = jobs_of(db.path).list()
    jobs_of(db.path).remove(dead.id)
    optimizer_of(db.path, tables).optimize()
    again = jobs_of(db.path).begin("optimize", ("t",))
    for line in dead.finished:
        again.append(line)
    again.abandon()
    optimizer_of(db.path, tables).optimize()
    assert jobs_of(db.path).list() == []
    db._parts.owner.checkpointer.renew()
    assert rows(table) == expected
    assert history_parts(db) == 1


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_what_a_dead_optimize_finished_is_left_when_its_files_are_not_whole(made, damage) -> None:
    """The record of a job is evidence; its files may have been put aside, or deleted by hand."""
    db, table, tables = made
    expected = rows(table)
    dies_after_its_tasks(db, tables)
    path = db.path / finished_files(db)[0]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
    compacted: list[object] = []
    tables.hooks["compact"] = lambda *found: compacted.append(found)
    assert optimizer_of(db.path, tables).optimize().files_before == 6
    assert compacted
    assert jobs_of(db.path).list() == []
    db._parts.owner.checkpointer.renew()
    assert rows(table) == expected
    assert db.verify(deep=True).is_sound


def test_what_a_dead_optimize_finished_by_a_clock_that_was_ahead_is_left_when_condemned(made):
    """Vacuum deletes by the times of files; the clock was set back after the job began."""
    db, _, tables = made
    dies_after_its_tasks(db, tables)
    for name in finished_files(db):
        os.utime(db.path / name, (1, 1))
    manifests = ManifestStore(fake_env().files, db.path)
    manifests.publish(
        lambda record: msgspec.structs.replace(record, gc_horizon_us=2_000_000),
        base=manifests.newest(),
    )
    compacted: list[object] = []
    tables.hooks["compact"] = lambda *found: compacted.append(found)
    assert optimizer_of(db.path, tables).optimize().files_before == 6
    assert compacted


def test_what_a_dead_optimize_finished_is_of_use_though_its_files_are_a_tick_older(made) -> None:
    """A file has the time of the last tick: one written at once is older than its job.

    So it was thrown away when a vacuum beside the job had condemned all that was older than it.
    """
    db, table, tables = made
    expected = rows(table)
    dies_after_its_tasks(db, tables)
    (dead,) = jobs_of(db.path).list()
    assert dead.job is not None
    begun_us = dead.job.started_us
    for name in finished_files(db):
        os.utime(db.path / name, (begun_us / 1e6 - 0.004,) * 2)
    manifests = ManifestStore(fake_env().files, db.path)
    manifests.publish(
        lambda record: msgspec.structs.replace(record, gc_horizon_us=begun_us),
        base=manifests.newest(),
    )
    tables.hooks["compact"] = refuse_to_compact
    assert optimizer_of(db.path, tables).optimize().files_before == 6
    assert rows(table) == expected


def finished_files(db) -> list[str]:
    (dead,) = jobs_of(db.path).list()
    lines = [msgspec.json.decode(line) for line in dead.finished]
    return [file["path"] for line in lines for file in line["result"]["files"]]


def test_a_running_job_is_not_robbed(made) -> None:
    db, table, tables = made
    expected = rows(table)
    dies_after_its_tasks(db, tables)
    (dead,) = jobs_of(db.path).list()
    alive = jobs_of(db.path).begin("optimize", ("t",))
    for line in dead.finished:
        alive.append(line)
    jobs_of(db.path).remove(dead.id)
    compacted: list[object] = []
    tables.hooks["compact"] = lambda *found: compacted.append(found)
    optimizer_of(db.path, tables).optimize()
    assert compacted
    assert [seen.id for seen in jobs_of(db.path).list()] == [alive.job.id]
    assert rows(table) == expected


def condemn(db) -> None:
    """Say what a vacuum says that takes everything unpublished for dead."""
    manifests = ManifestStore(fake_env().files, db.path)
    now = fake_env().now_us() + 1
    manifests.publish(
        lambda record: msgspec.structs.replace(record, gc_horizon_us=now),
        base=manifests.newest(),
    )


def test_an_optimize_that_is_condemned_begins_again(made) -> None:
    db, table, tables = made
    expected = rows(table)
    compacted: list[object] = []

    def condemned_once(*found: object) -> None:
        if not compacted:
            condemn(db)
        compacted.append(found)

    tables.hooks["compact"] = condemned_once
    found = optimizer_of(db.path, tables).optimize()
    assert found.files_before == 6
    assert [why for why in found.replans if "the gc horizon" not in why] == []
    assert len(found.replans) == 1
    assert len(compacted) == 2
    assert jobs_of(db.path).list() == []
    assert rows(table) == expected


def test_an_optimize_that_was_condemned_once_writes_files_as_large_as_before(tmp_path) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        log = db.create_table("log", {"n": "int64"})
        for _ in range(16):
            log.append(pa.table({"n": np.arange(100_000)}))
        db.checkpoint()
        compacted: list[object] = []

        def condemned_once(*found: object) -> None:
            if not compacted:
                condemn(db)
            compacted.append(found)

        hooked[0].hooks["compact"] = condemned_once
        found = db.optimize(attempts=2)
        assert (found.rows, found.files_after, len(found.replans)) == (1_600_000, 2, 1)


def test_what_a_condemned_dead_job_finished_is_not_used(made) -> None:
    db, _, tables = made
    dies_after_its_tasks(db, tables)
    condemn(db)
    compacted: list[object] = []
    tables.hooks["compact"] = lambda *found: compacted.append(found)
    assert optimizer_of(db.path, tables).optimize().files_before == 6
    assert compacted
    assert jobs_of(db.path).list() == []


def test_a_merge_and_a_checkpoint_that_are_condemned_begin_again(made) -> None:
    db, table, tables = made
    table.upsert({"id": 100, "v": 1})
    expected = rows(table)

    begun: list[str] = []

    def condemned_once(name: str):
        def call(*_: object) -> None:
            begun.append(name)
            if begun.count(name) == 1:
                condemn(db)

        return call

    for name in ("stage", "fold"):
        tables.hooks[name] = condemned_once(name)
    db.checkpoint()
    assert begun == ["stage"] * 4  # rows and commits, and both anew
    assert db.merge().tables == ("t",)
    assert begun == ["stage"] * 4 + ["fold"] * 2
    assert rows(table) == expected


def test_a_lost_publish_budget_is_deferred_and_no_error(made) -> None:
    db, _, tables = made

    def advance(*_: object) -> None:
        condemn_nothing(db)

    tables.hooks["swap"] = advance
    found = optimizer_of(db.path, tables).optimize(attempts=1)
    assert isinstance(found, Deferred)
    del tables.hooks["swap"]
    assert optimizer_of(db.path, tables).optimize().files_before == 6


def condemn_nothing(db) -> None:
    manifests = ManifestStore(fake_env().files, db.path)
    manifests.publish(
        lambda record: msgspec.structs.replace(record, last_time_us=record.last_time_us),
        base=manifests.newest(),
    )


def test_tasks_pickle_and_run_by_the_path_alone(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for turn in range(4):
            table.upsert([{"id": n, "v": turn} for n in range(5)])
            db.checkpoint()
        seen: list[CompactTask] = []

        def elsewhere(tasks):
            seen.extend(pickle.loads(pickle.dumps(tasks)))
            return [task.run(str(db.path)) for task in seen]

        optimizer = db._parts.owner.optimizer
        assert optimizer.optimize(execute=elsewhere).files_after == 1
        assert [task.rows for task in seen] == [20]
        db.merge()
        assert rows(table) == dict.fromkeys(range(5), 3)
        assert db.verify(deep=True).is_sound


def test_a_target_below_two_rows_is_refused(made) -> None:
    db, _, tables = made
    with pytest.raises(st.RequestError, match="target_rows"):
        optimizer_of(db.path, tables).optimize(target_rows=1)


@given(some.lists(some.integers(1, 40), max_size=30), some.integers(2, 50))
@settings(max_examples=by_day(40, 200))
def test_groups_are_adjacent_small_parts_and_nothing_small_is_left_beside_another(
    sizes: list[int], target: int
) -> None:
    spans, start = [], 0
    for size in sizes:
        spans.append((start, start + size))
        start += size
    found = list(Sizes(target).groups(spans))
    chosen = [span for group in found for span in group]
    assert chosen == [span for span in spans if span in chosen]
    for group in found:
        assert len(group) > 1
        assert all(a[1] == b[0] for a, b in pairwise(group))
        assert all(2 * (end - first) < target for first, end in group)
        assert group[-1][0] - group[0][0] < target
