"""Writers are slowed as far as the background is behind, and wait only where nothing else helps."""

from __future__ import annotations

import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

import siltstone as st
from siltstone.engine.commit.write_set import AdvancePart, WriteSet
from siltstone.maintenance.schedule import scheduler as schedulers
from siltstone.maintenance.schedule.pace import DELAY_S_MAX, Pace, Zone
from siltstone.maintenance.schedule.scheduler import Scheduler
from tests.maintenance.idle_work import IdleWork
from tests.maintenance.stores import open_store

MB = 1_000_000
FOLDING = Zone(125 * MB, 500 * MB)
FLUSHING = Zone(60 * MB, 120 * MB)
NOTHING = SimpleNamespace(sealed=())
GUESSED = (FOLDING.stop - FOLDING.slow) / 64 / 10  # rows a second, until a merge was measured


class Part(SimpleNamespace):
    """A part with so many rows."""


def write_of(rows: int, nbytes: int) -> WriteSet:
    return WriteSet(1, None, (Part(rows=rows),), rows=rows, nbytes=nbytes)  # type: ignore[arg-type]


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Merges:
    """Merges one after the other, each of all rows so far, beside a writer at full speed.

    A merge takes a start and a time for each of its rows, and frees memory at its end alone.
    """

    def __init__(self, *, rows_s: int, start_s: float) -> None:
        self.clock, self.rows_s, self.start_s = Time(), rows_s, start_s
        self.pace = Pace(flushing=FLUSHING, folding=FOLDING, clock=self.clock)
        self.unmerged = self.written = self.folding = 0
        self.ends_s = 0.0
        self.delays: list[float] = []

    def write(self, rows: int) -> None:
        """Commit a batch of rows in 10 ms, after the wait that the pace tells."""
        self._merge()
        self.pace.hears(64 * self.unmerged)
        delay = self.pace.delay_s(NOTHING, 0, write_of(rows, 0))
        if delay:
            self.pace.slowed(delay)
        self.delays.append(delay)
        self.clock.now += delay + 0.01
        self.unmerged, self.written = self.unmerged + rows, self.written + rows

    def _merge(self) -> None:
        if self.folding and self.clock.now >= self.ends_s:
            self.unmerged, self.folding = self.unmerged - self.folding, 0
        if not self.folding and self.unmerged >= 500_000:
            self.folding = self.unmerged
            self.ends_s = self.clock.now + self.start_s + self.unmerged / self.rows_s
            self.pace.fold_begins(self.folding)


def rate(pace: Pace, clock: Time, write: WriteSet, *, active_bytes: int = 0) -> float:
    """Return the rows a second of one writer that does nothing but wait."""
    pace.delay_s(NOTHING, active_bytes, write)  # the first one pays for nothing
    waited = 0.0
    for _ in range(50):
        delay = pace.delay_s(NOTHING, active_bytes, write)
        clock.now += delay
        waited += delay
    return 50 * write.rows / waited if waited else float("inf")


def paced(share: float, *, folding: Zone = FOLDING) -> tuple[Pace, Time]:
    clock = Time()
    pace = Pace(flushing=FLUSHING, folding=folding, clock=clock)
    pace.hears(int(folding.slow + share * (folding.stop - folding.slow)))
    return pace, clock


def test_the_middle_of_the_zone_is_as_fast_as_merges_and_its_end_is_slower_and_slower():
    found = [rate(*paced(share), write_of(5_000, 0)) / GUESSED for share in (0.0, 0.2, 0.5, 0.8)]
    assert found == pytest.approx([float("inf"), 4, 1, 0.25], rel=0.02)


def test_below_the_zone_no_commit_waits_however_many_there_are():
    pace, _ = paced(-0.5)
    assert not pace.is_slow(NOTHING, 0)
    assert rate(pace, Time(), write_of(1_000_000, 100 * MB)) == float("inf")


def flush(pace: Pace, clock: Time, *, took_s: float, is_done: bool = True) -> None:
    pace.flush_begins(NOTHING, 60 * MB)
    clock.now += took_s
    pace.flush_ends(is_done=is_done)


def test_a_flush_that_takes_longer_than_they_did_slows_writers_while_it_runs():
    pace, clock = paced(-1)
    flush(pace, clock, took_s=2.0)
    pace.flush_begins(NOTHING, 60 * MB)
    clock.now += 60
    found = rate(pace, clock, write_of(10, 10_000), active_bytes=90 * MB)
    assert found == pytest.approx(1_000, rel=0.05)  # of 1 kB: 60 MB in 60 s
    pace.flush_ends(is_done=False)
    found = rate(pace, clock, write_of(1_000, MB), active_bytes=90 * MB)
    assert found == pytest.approx(30_000, rel=0.02), "it failed, and tells nothing"


def test_full_memtables_slow_writers_by_the_speed_of_flushes():
    pace, clock = paced(-1)
    flush(pace, clock, took_s=2.0)
    half = 90 * MB
    assert pace.is_slow(NOTHING, half)
    found = rate(pace, clock, write_of(1_000, MB), active_bytes=half)
    assert found == pytest.approx(30_000, rel=0.02)  # of 1 kB: 30 MB/s
    flush(pace, clock, took_s=0.5)
    found = rate(pace, clock, write_of(1_000, MB), active_bytes=half)
    assert found == pytest.approx((30_000 + 120_000) / 2, rel=0.05)
    assert not pace.is_slow(NOTHING, 60 * MB)


@pytest.mark.parametrize("start_s", [1.0, 10.0])
@pytest.mark.parametrize("rows_s", [20_000, 100_000, 500_000])
def test_writers_at_full_speed_never_reach_the_stop_whatever_merges_take(rows_s, start_s):
    merges = Merges(rows_s=rows_s, start_s=start_s)
    most = 0
    while merges.clock.now < 4_600:
        merges.write(5_000)  # half a million rows a second, if nothing held them back
        most = max(most, 64 * merges.unmerged)
    assert most < FOLDING.stop
    assert max(merges.delays) < DELAY_S_MAX
    third = (FOLDING.stop - FOLDING.slow) // 64 // 3  # so many rows a merge can have then
    assert merges.written / 3_600 > 0.9 * third / (start_s + third / rows_s)
    assert statistics.median(merges.delays) < 0.5


def test_no_commit_waits_longer_than_the_bound_however_late_the_merge_is():
    pace, clock = paced(0.999)
    for _ in range(20):
        delay = pace.delay_s(NOTHING, 0, write_of(1_000_000, 100 * MB))
        assert 0 <= delay <= DELAY_S_MAX
        clock.now += delay / 2  # also if several writers come at once


def test_a_lone_commit_does_not_pay_for_itself():
    pace, clock = paced(0.9)
    assert pace.delay_s(NOTHING, 0, write_of(1_000_000, 0)) == 0
    clock.now += DELAY_S_MAX
    assert pace.delay_s(NOTHING, 0, write_of(1, 0)) == 0


def test_small_commits_pay_together():
    pace, clock = paced(0.5)
    delays = []
    for _ in range(10_000):
        delays.append(pace.delay_s(NOTHING, 0, write_of(10, 0)))
        clock.now += delays[-1]
    assert min(delays) == 0
    assert min(delay for delay in delays if delay) >= 0.001, "none is too short to be worth it"
    assert 100_000 / sum(delays) == pytest.approx(GUESSED, rel=0.05)


def test_rows_of_plain_tables_wait_for_no_merge():
    pace, _ = paced(0.9)
    part = AdvancePart(1, 1, 0, None, 1_000_000)  # type: ignore[arg-type]
    for _ in range(3):
        assert pace.delay_s(NOTHING, 0, WriteSet(1, None, (part,), rows=1_000_000)) == 0


def test_what_merges_do_is_measured_while_they_keep_writers_waiting():
    pace, clock = paced(0.5)
    guessed = rate(pace, clock, write_of(5_000, 0))
    pace.fold_begins(1_000_000)
    clock.now += 100
    pace.fold_begins(1_000_000)
    assert rate(pace, clock, write_of(5_000, 0)) == pytest.approx(guessed, rel=0.02), (
        "nobody waited, so the merge may have had nothing to do"
    )
    pace.fold_begins(1_000_000)
    pace.slowed(0.1)
    clock.now += 100
    pace.fold_begins(1_000_000)
    found = rate(pace, clock, write_of(5_000, 0))
    assert found == pytest.approx(10_000, rel=0.05), "no guess any more"
    pace.slowed(0.1)
    clock.now += 50 - (clock.now - pace._fold[0])
    pace.fold_begins(1_000_000)
    found = rate(pace, clock, write_of(50, 0))
    assert found == pytest.approx((10_000 + 20_000) / 2, rel=0.05)
    pace.slowed(0.1)
    pace.fold_failed()
    clock.now += 1
    pace.fold_begins(1_000_000)
    assert rate(pace, clock, write_of(50, 0)) == pytest.approx(found, rel=0.05), "it failed"


def test_a_merge_that_takes_longer_than_they_did_slows_writers_while_it_runs():
    pace, clock = paced(0.5)
    guessed = rate(pace, clock, write_of(5_000, 0))
    pace.fold_begins(1_000_000)
    clock.now += 1_000_000 / guessed
    assert rate(pace, clock, write_of(500, 0)) == pytest.approx(guessed, rel=0.05)
    clock.now += 40
    found = rate(pace, clock, write_of(500, 0))
    assert found == pytest.approx(1_000_000 / (1_000_000 / guessed + 40), rel=0.05)


def scheduler_of(db, history: list[int], **options) -> Scheduler:
    work = IdleWork(
        history_bytes=lambda: history[0],
    )
    return Scheduler(
        db._core.committer,
        work,
        memory_bytes_max=1_000 * MB,
        memtable_bytes_max=64 * MB,
        sealed_generations_max=4,
        **{"room_timeout_s": 3_600.0, "is_background": True, **options},
    )


def indebted(scheduler: Scheduler) -> None:
    """Have an earlier commit of more rows than a merge folds in the longest wait."""
    scheduler._hear_news()
    scheduler.room(write_of(10**9, 0))


def test_a_slowed_writer_goes_on_as_soon_as_a_merge_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "TICK_S", 3_600.0)  # it is woken, or waits
    monkeypatch.setattr("siltstone.maintenance.schedule.pace.DELAY_S_MAX", 3_600.0)
    history = [450 * MB]
    with open_store(tmp_path / "s") as db, ThreadPoolExecutor(1) as pool:
        scheduler = scheduler_of(db, history)
        indebted(scheduler)
        waiting = pool.submit(scheduler.room, write_of(1, 0))
        while not scheduler._waiting:
            assert not waiting.done()
        history[0] = 0
        scheduler._hear_news()
        waiting.result(60)
        found = scheduler.pace.backpressure(db._core.state().view, 0)
        assert (found.slowed_commits, found.stopped_commits) == (1, 0)
        assert found.unmerged_bytes == 0


def test_a_slowed_writer_goes_on_when_the_store_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "TICK_S", 3_600.0)
    monkeypatch.setattr("siltstone.maintenance.schedule.pace.DELAY_S_MAX", 3_600.0)
    with open_store(tmp_path / "s") as db, ThreadPoolExecutor(1) as pool:
        scheduler = scheduler_of(db, [450 * MB])
        indebted(scheduler)
        waiting = pool.submit(scheduler.room, write_of(1, 0))
        while not scheduler._waiting:
            assert not waiting.done()
        scheduler.stop()
        waiting.result(60)


def test_nobody_is_slowed_longer_than_a_writer_may_wait(tmp_path):
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, [450 * MB], room_timeout_s=0.0)
        indebted(scheduler)
        scheduler.room(write_of(1, 0))
        assert scheduler.pace.backpressure(db._core.state().view, 0).slowed_commits == 0


def test_without_a_background_no_writer_is_slowed(tmp_path):
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, [450 * MB], is_background=False)
        indebted(scheduler)
        scheduler.room(write_of(1, 0))
        assert scheduler.pace.backpressure(db._core.state().view, 0).slowed_commits == 0


def test_slowed_writers_hurry_the_merge(tmp_path):
    hurried: list[bool] = []
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, [450 * MB])
        scheduler._work = replace(scheduler._work, hurry=hurried.append)
        scheduler._hear_news()
        scheduler.pace.slowed(0.1)
        scheduler._hear_news()
        scheduler._hear_news()
        assert hurried == [False, True, False]


def test_writers_at_full_speed_hurry_a_merge_that_falls_behind_before_they_are_slowed(tmp_path):
    hurried: list[bool] = []
    history = [120 * MB]
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, history)
        scheduler._work = replace(scheduler._work, hurry=hurried.append)
        for size in (120, 130, 130):
            history[0] = size * MB
            db.create_table(f"t{size}{len(hurried)}", {"id": "int64"}, primary_key="id")
            scheduler._hear_news()
        scheduler._hear_news()
        assert hurried == [False, True, True, False], "the last time nobody wrote"


def test_the_status_shows_how_writers_were_held_back(tmp_path):
    with open_store(tmp_path / "s", memory_bytes_max=80 * MB) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert([{"id": n} for n in range(1_000)])
        pace = db._owner().scheduler.pace
        pace.slowed(1.5)
        pace.stopped(2.5)
        found = db.status()
        assert isinstance(found, st.Status)
        pressure = found.backpressure
        assert (pressure.slow_bytes, pressure.stop_bytes) == (10 * MB, 40 * MB)
        assert pressure.unmerged_bytes == found.memory.active > 1_000
        assert (pressure.slowed_commits, pressure.slowed_s) == (1, 1.5)
        assert (pressure.stopped_commits, pressure.stopped_s) == (1, 2.5)
        assert found.to_dict()["backpressure"]["stopped_s"] == 2.5
        assert "1 commits slowed for 1.5 s, 1 stopped for 2.5 s" in str(found)


def test_many_writers_are_slowed_together(tmp_path):
    pace, _ = paced(0.5)
    barrier = threading.Barrier(8)

    def write(_: int) -> float:
        barrier.wait()
        return pace.delay_s(NOTHING, 0, write_of(round(GUESSED / 10), 0))  # 0.1 s each

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(write, range(8)))
    assert found == pytest.approx([n / 10 for n in range(8)], abs=0.01)
