"""Writers that wait for room neither keep the machine busy nor wait longer than they must."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from siltstone.errors import BusyError
from siltstone.maintenance.scheduler import Scheduler, Work
from tests.maintenance.stores import open_store

TURNS_MAX = 300  # four in a second are due; writers that wake each other make thousands


def scheduler_of(db, *, is_overdue, adopt_news=lambda: None, prepare=lambda: None) -> Scheduler:
    work = Work(
        checkpoint=lambda: None,
        adopt_news=adopt_news,
        prepare=prepare,
        climb=lambda: False,
        wants_merge=lambda: False,
        merge=lambda: None,
        vacuum=lambda: None,
        is_overdue=is_overdue,
    )
    return Scheduler(
        db._core.committer,
        work,
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
            for waiting in [pool.submit(scheduler.room) for _ in range(4)]:
                with pytest.raises(BusyError, match="not merged"):
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
            db, is_overdue=is_overdue, adopt_news=lambda: merged.is_set() and heard.append(1)
        )
        scheduler.start()
        assert asked.wait(30)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scheduler.room)
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
        monkeypatch.setattr(scheduler, "_work", replace(scheduler._work, checkpoint=failing))
        receipt = db["t"].upsert([{"id": n} for n in range(1_000)])
        assert (receipt.seq, db["t"].count()) == (db.durable_seq, 1_000)
        assert scheduler.last_failure is error
        monkeypatch.undo()
