"""The background vacuums beside its other work, and keeps the failure for status."""

from __future__ import annotations

import threading

import pytest

from siltstone.errors import UnavailableError
from siltstone.maintenance.schedule.scheduler import SETTLED_S, Scheduler
from tests.maintenance.idle_work import IdleWork
from tests.maintenance.stores import open_store


def scheduler_of(db, vacuum, prepare=lambda: None, **options) -> Scheduler:
    work = IdleWork(
        prepare=prepare,
        vacuum=vacuum,
    )
    return Scheduler(
        db._core.committer,
        work,
        memory_bytes_max=1 << 30,
        memtable_bytes_max=1 << 20,
        sealed_generations_max=1,
        room_timeout_s=1.0,
        is_background=True,
        **{"vacuum_interval_s": 0.0, **options},
    )


def test_a_vacuum_that_is_due_runs_and_its_failure_is_kept_and_logged_with_its_kind(
    tmp_path, caplog
):
    ran = threading.Event()

    def vacuum() -> None:
        ran.set()
        raise UnavailableError("no disk")

    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, vacuum)
        scheduler.start()
        assert ran.wait(30)
        scheduler.stop()
        assert str(scheduler.last_failure) == "no disk"
        assert "vacuum failed and will be retried later: UnavailableError: no disk" in caplog.text


def test_a_vacuum_that_takes_long_holds_up_no_other_work(tmp_path):
    begun, goes_on, turned = threading.Event(), threading.Event(), threading.Event()

    def vacuum() -> None:
        begun.set()
        goes_on.wait(30)

    with open_store(tmp_path / "s") as db:
        prepared = []

        def prepare() -> None:
            prepared.append(begun.is_set())
            if prepared.count(True) > 1:
                turned.set()

        scheduler = scheduler_of(db, vacuum, prepare)
        scheduler.start()
        assert begun.wait(30)
        assert turned.wait(30)
        goes_on.set()
        scheduler.stop()


@pytest.mark.parametrize(("ago_s", "due_s"), [(0, 3600), (3000, 600), (9000, SETTLED_S)])
def test_a_vacuum_is_due_an_hour_after_the_last_one_of_any_process_once_the_owner_stays(
    tmp_path, ago_s, due_s
):
    ran, now = [], 1e6
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(
            db,
            lambda: ran.append(1),
            vacuum_interval_s=3600.0,
            vacuumed_s_ago=ago_s,
            clock=lambda: now,
        )
        scheduler._vacuum_if_due(now + due_s - 1)
        scheduler.stop()
        assert ran == []
        scheduler._vacuum_if_due(now + due_s)
        scheduler.stop()
        assert ran == [1]
