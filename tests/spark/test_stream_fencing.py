"""Of two drivers of one stream the later one goes on, the other is fenced; nothing comes twice."""

from __future__ import annotations

import contextlib
import json

import pytest

import siltstone as st
from tests.spark.followed_stores import (
    World,
    as_log,
    fed,
    in_order,
)
from tests.spark.micro_batches import Checkpoint, Run


def test_a_run_is_fenced_once_a_later_one_has_committed(world: World) -> None:
    checkpoint = Checkpoint()
    world.upsert()
    source, sink = world.source(maxRowsPerTrigger=1), world.sink()
    with (
        Run(checkpoint, source, sink, as_log) as older,
        Run(checkpoint, source, sink, as_log) as newer,
    ):
        older.drain()
        world.upsert()
        newer.drain()
        world.upsert()
        assert older.plan()
        with pytest.raises(st.FencedError, match="ended"):
            older.execute(len(checkpoint.offsets) - 1, None)
        newer.execute(len(checkpoint.offsets) - 1, None)
    assert in_order(world.log()) == in_order(fed(world.a, 1))


class Drivers:
    """Several drivers of one stream, which go on from one checkpoint as if they were alone."""

    def __init__(self, world: World, **sink: str) -> None:
        self.world, self.checkpoint = world, Checkpoint()
        self.sink = world.sink(**sink)
        self.stack = contextlib.ExitStack()

    def start(self, driver: str | None = None) -> Run:
        source = self.world.source(maxRowsPerTrigger=1)
        run = Run(self.checkpoint, source, self.sink, as_log, driver=driver)
        return self.stack.enter_context(run)

    def planned(self, run: Run) -> tuple[list, int]:
        """Plan and stage the next batch of a run; give what it will commit."""
        self.world.upsert()
        offsets = self.checkpoint.offsets
        if len(offsets) == len(self.checkpoint.commits):
            assert run.plan()
        number = len(offsets) - 1
        start = json.loads(offsets[number - 1]) if number else run.reader.initialOffset()
        return run.stage(list(run.rows(start, json.loads(offsets[number])))), number

    def commit(self, run: Run, planned: tuple[list, int]) -> None:
        run.commit(*planned)
        self.checkpoint.commits.add(planned[1])

    def step(self, run: Run) -> None:
        self.commit(run, self.planned(run))

    def check(self) -> None:
        self.stack.close()
        assert in_order(self.world.log()) == in_order(fed(self.world.a, 1))


@pytest.fixture
def drivers(world: World) -> Drivers:
    world.upsert()
    found = Drivers(world)
    first = found.start()
    first.drain()  # the stream has begun, long ago
    return found


def test_a_driver_that_never_committed_is_fenced_by_one_that_started_after_it(
    drivers: Drivers,
) -> None:
    older, newer = drivers.start(), drivers.start()
    late = drivers.planned(older)
    drivers.commit(newer, drivers.planned(newer))
    with pytest.raises(st.FencedError, match="claimed it; stop this process"):
        older.commit(*late)
    for _ in range(2):
        drivers.step(newer)
        with pytest.raises(st.FencedError):
            older.commit(*drivers.planned(older))
    newer.drain()
    drivers.check()


def test_a_driver_that_commits_first_is_fenced_by_one_that_had_started_after_it(
    drivers: Drivers,
) -> None:
    older, newer = drivers.start(), drivers.start()
    first, second = drivers.planned(older), drivers.planned(newer)
    drivers.commit(older, first)
    drivers.commit(newer, second)  # the same batch: nothing happens, but the app is taken
    with pytest.raises(st.FencedError):
        older.commit(*drivers.planned(older))
    newer.drain()
    drivers.check()


def test_a_driver_is_fenced_however_many_others_came_after_it(drivers: Drivers) -> None:
    older = drivers.start()
    drivers.step(older)
    for _ in range(12):
        drivers.step(drivers.start())
    newest = drivers.start()
    drivers.step(newest)
    for _ in range(2):
        with pytest.raises(st.FencedError):
            older.commit(*drivers.planned(older))
        drivers.step(newest)
    newest.drain()
    drivers.check()


def test_an_application_may_run_a_stream_again_after_another_one_did(drivers: Drivers) -> None:
    for driver in ("x", "y", "x", "x", "y", "x"):
        drivers.step(drivers.start(driver))
    assert drivers.world.b.claimed("none") == (0, "")
    drivers.start("x").drain()
    drivers.check()


def test_a_driver_claims_its_start_once(drivers: Drivers) -> None:
    run = drivers.start()
    drivers.step(run)
    before = drivers.world.b.seq
    for _ in range(3):
        drivers.step(run)
    assert drivers.world.b.seq == before + 3
    run.drain()
    drivers.check()


def test_a_driver_that_spark_does_not_name_is_refused(world: World) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        run.driver = ""
        with pytest.raises(st.UnavailableError, match="SPARK_LOCAL_DIRS"):
            run.finish()
    assert world.log() == []


def test_runs_of_different_apps_do_not_fence_each_other(world: World) -> None:
    world.upsert()
    source = world.source()
    runs = [Run(Checkpoint(), source, world.sink(app=app), as_log) for app in ("one", "two")]
    for run in (*runs, *runs):
        run.finish()
        world.upsert()
    assert {entry.token[0] for entry in world.b.log(100) if entry.token} == {"one", "two"}
    for run in runs:
        run.reader.stop()


def test_a_driver_whose_app_was_forgotten_is_fenced_and_the_next_one_goes_on(
    drivers: Drivers,
) -> None:
    """A claim of a forgotten app may be above every seq of the store."""
    older = drivers.start("older")
    drivers.step(older)
    with st.connect(drivers.world.b.path, join=True) as db:
        db.claim("huge", "nobody", 1 << 40)
        before = db.seq
        for app in db.token_apps():
            db.forget_token_app(app.name)
        assert db.seq > before
    with pytest.raises(st.FencedError, match="or it was forgotten"):
        drivers.commit(older, drivers.planned(older))
    newer = drivers.start("newer")
    newer.execute(len(drivers.checkpoint.offsets) - 1, None)
    drivers.step(newer)
    drivers.check()
