"""Writers wait for room at the bounds, keep no machine busy and wait no longer than they must."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from siltstone.engine.commit.write_set import WriteSet
from siltstone.errors import BusyError, FencedError, PoisonedError, UnavailableError
from siltstone.maintenance.schedule import scheduler as schedulers
from siltstone.maintenance.schedule.scheduler import Scheduler
from tests.engine import seams
from tests.maintenance.idle_work import IdleWork
from tests.maintenance.stores import open_store

TURNS_MAX = 300  # four in a second are due; writers that wake each other make thousands

MEMORY_BYTES_MAX = 1 << 24


def scheduler_of(db, *, is_overdue, refresh=lambda: None, prepare=lambda: None) -> Scheduler:
    work = IdleWork(
        refresh=refresh,
        prepare=prepare,
        history_bytes=lambda: MEMORY_BYTES_MAX * is_overdue(),
    )
    return Scheduler(
        db._core.committer,
        work,
        memory_bytes_max=MEMORY_BYTES_MAX,
        memtable_bytes_max=1 << 20,
        sealed_generations_max=1,
        room_timeout_s=2.0,
        is_background=True,
    )


def test_writers_that_wait_do_not_wake_each_other_for_ever(tmp_path):
    asked, turns = threading.Event(), []

    def is_overdue() -> bool:
        asked.set()
        return True

    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, is_overdue=is_overdue, prepare=lambda: turns.append(1))
        scheduler.start()
        assert asked.wait(30)
        with ThreadPoolExecutor(4) as pool:
            for waiting in [pool.submit(scheduler.room, WRITE_SET) for _ in range(4)]:
                with pytest.raises(BusyError, match="unmerged"):
                    waiting.result(60)
        scheduler.stop()
        assert len(turns) < TURNS_MAX


def test_writers_go_on_as_soon_as_the_news_of_a_merge_is_there(tmp_path):
    asked, merged, heard = threading.Event(), threading.Event(), []

    def is_overdue() -> bool:
        asked.set()
        return not heard

    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(
            db, is_overdue=is_overdue, refresh=lambda: merged.is_set() and heard.append(1)
        )
        scheduler.start()
        assert asked.wait(30)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scheduler.room, WRITE_SET)
            merged.set()
            waiting.result(60)
        scheduler.stop()
        assert heard


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error")])
def test_a_commit_does_not_fail_when_the_checkpoint_after_it_does(tmp_path, monkeypatch, error):
    def failing() -> None:
        raise error

    with open_store(tmp_path / "s", memtable_bytes_max=4096) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        scheduler = db._parts.owner.scheduler
        monkeypatch.setattr(scheduler, "_work", IdleWork(checkpoint=failing))
        receipt = db["t"].upsert([{"id": n} for n in range(1_000)])
        assert (receipt.seq, db["t"].count()) == (db.durable_seq, 1_000)
        assert scheduler.last_failure is error
        monkeypatch.undo()


EMPTY = SimpleNamespace(sources={})
WRITE_SET = WriteSet(1, None, (), nbytes=1)


@dataclass
class Waiting:
    """A committer with so much that waits to be flushed: what `room` asks it for."""

    generations: int
    active_bytes: int = 0
    poisoned: bool = False
    free: tuple[Sequence[object], int] = (), 0

    @property
    def state(self) -> SimpleNamespace:
        view = SimpleNamespace(sealed=[EMPTY] * self.generations)
        return SimpleNamespace(view=view, visible=0)


def lets_in(waiting: Waiting) -> bool:
    """Say whether a writer passes at once; without a background one that may not makes room."""
    asked = []
    scheduler = Scheduler(
        waiting,  # type: ignore[arg-type]
        IdleWork(checkpoint=lambda: asked.append(1)),
        memory_bytes_max=MEMORY_BYTES_MAX,
        memtable_bytes_max=1_000,
        sealed_generations_max=3,
        room_timeout_s=0.0,
        is_background=False,
    )
    scheduler.room(WRITE_SET)
    return not asked


def test_a_writer_passes_below_each_bound_and_not_at_it():
    assert [lets_in(Waiting(count)) for count in range(6)] == [True] * 3 + [False] * 3
    sizes = (0, 1_999, 2_000, 2_001)  # of active memtables: twice their bound
    assert [lets_in(Waiting(0, size)) for size in sizes] == [True, True, False, False]
    assert lets_in(Waiting(9, 9_999, poisoned=True))  # its commit says what is wrong


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_at_most_as_many_generations_wait_as_the_option_says(tmp_path, bound):
    def failing(*_arguments) -> None:
        raise UnavailableError("the disk is full")

    hooked = []
    options = {"memtable_bytes_max": 1 << 20, "memory_bytes_max": 16 << 20}
    options["sealed_generations_max"] = bound
    with seams.open_store(tmp_path, seams.fake_env(hooked=hooked), **options) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        hooked[0].hooks["stage"] = failing
        seen = set()

        def fill() -> None:
            for n in range(200):
                table.upsert({"id": n, "v": "x" * 100_000})
                seen.add(len(db._core.state().view.sealed))

        with pytest.raises(UnavailableError):
            fill()
        assert max(seen) == bound
        hooked[0].hooks.clear()
        table.upsert({"id": -1, "v": ""})
        assert table.count() == db.seq - 1


FOR_EVER_S = 3600.0


def waiting_writer(waiting: Waiting, monkeypatch, **work) -> BaseException | None:
    """Return what a writer hears that waits for room with an hour's patience."""
    monkeypatch.setattr(schedulers, "FAILING_WAIT_S", 0.0, raising=False)
    monkeypatch.setattr(schedulers, "PAUSE_S_MAX", 0.0)
    monkeypatch.setattr(schedulers, "TICK_S", 0.01)
    scheduler = Scheduler(
        waiting,  # type: ignore[arg-type]
        IdleWork(**work),
        memory_bytes_max=MEMORY_BYTES_MAX,
        memtable_bytes_max=1_000,
        sealed_generations_max=3,
        room_timeout_s=FOR_EVER_S,
        is_background=True,
    )
    scheduler.start()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(scheduler.room, WRITE_SET)
        try:
            return found.exception(20)
        finally:
            scheduler.stop()


def failing(error: Exception):
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("step", ["checkpoint", "prepare"])
def test_a_writer_hears_soon_that_nothing_can_be_flushed(monkeypatch, step):
    full = failing(UnavailableError("no space left on /data"))
    heard = waiting_writer(Waiting(3), monkeypatch, **{step: full})
    assert isinstance(heard, BusyError)
    assert "failed" in str(heard)
    assert "no space left on /data" in str(heard)
    assert "3600" not in str(heard), "it did not wait so long"


def test_a_writer_hears_soon_that_each_merge_fails(monkeypatch):
    calls = []

    def every_other_one() -> None:
        calls.append(1)
        if len(calls) % 2:
            raise UnavailableError("the merge child failed: killed")

    heard = waiting_writer(
        Waiting(3),
        monkeypatch,
        merge=every_other_one,
        history_bytes=lambda: MEMORY_BYTES_MAX,
    )
    assert isinstance(heard, BusyError)
    assert "the merge child failed: killed" in str(heard)


def test_what_fails_and_is_not_waited_for_turns_no_writer_away(monkeypatch):
    tries = []

    def optimize() -> None:
        tries.append(1)
        raise UnavailableError("the optimize child failed")

    waiting = Waiting(3)

    def checkpoint() -> None:
        if len(tries) > 20:
            object.__setattr__(waiting, "generations", 0)

    assert (
        waiting_writer(
            waiting,
            monkeypatch,
            checkpoint=checkpoint,
            optimize=optimize,
        )
        is None
    )
    assert len(tries) > 20


@pytest.mark.parametrize("error", [FencedError(1, 2), PoisonedError("the log failed")])
def test_a_writer_hears_at_once_that_no_background_is_left(monkeypatch, error):
    heard = waiting_writer(Waiting(3), monkeypatch, checkpoint=failing(error))
    assert type(heard) is type(error)
    assert str(heard) == str(error)


def test_an_owner_that_knows_that_it_is_fenced_takes_no_commit(tmp_path):
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        seq = db.seq
        db._owner().scheduler.failed(FencedError(1, 2))
        with pytest.raises(FencedError, match="epoch 2 owns the store"):
            db["t"].upsert({"id": 1})
        assert db.seq == seq
