"""Whatever interrupts `close`, the store is given up, whole, and the next owner finds all of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.formats.manifest import Record
from siltstone.local.store import LocalStore
from siltstone.options import Options
from tests.engine.seams import HookedTables, Threads, fake_env, open_store
from tests.support.traced import signalled

SCHEMA = {"id": "int64", "v": "int64"}
ROUNDS = 20
WHERE = ("open/parts.py", "ownership.py", "scheduler.py", "syncer.py", "storage/wal/wal.py")


def filled(root: Path, *, background: bool = False) -> st.Store:
    db = open_store(root, fake_env(), background=background, sync_interval_ms=3_600_000)
    if "t" not in db.tables():
        db.create_table("t", SCHEMA, primary_key="id")
    with db.transaction(durability="async") as tx:
        tx["t"].upsert({"id": db.seq, "v": 0})
    return db


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("where", [WHERE, ("siltstone/local/store.py",)], ids=["parts", "door"])
def test_ctrl_c_at_any_line_of_close_gives_the_store_up_with_all_commits(
    tmp_path: Path, where: tuple[str, ...], background: bool
) -> None:
    nth = 1 - (step := 4 if background else 1)
    while True:
        nth += step
        db = filled(tmp_path / "db", background=background)
        rows = db["t"].count()
        with signalled(nth, where=where) as interrupter:
            try:
                db.close()
            except KeyboardInterrupt:
                assert interrupter.has_acted
        if nth > 1 or where is WHERE:  # at its first line `close` has not begun
            assert not db._parts.owner.ownership.is_held, f"at line {nth}"
        db.close()  # a second time, also for who was stopped there
        with pytest.raises(st.RequestError):
            db.tables()
        with open_store(tmp_path / "db", fake_env()) as again:
            assert again["t"].count() == rows
        if not interrupter.has_acted:
            break
    assert nth > (4 if "store.py" in where[0] else 20)


@pytest.mark.parametrize("part", ["syncer", "scheduler", "merge_child", "wal"])
def test_a_part_that_fails_to_end_keeps_no_store_owned(tmp_path: Path, part: str) -> None:
    db = filled(tmp_path / "db")
    owner = db._parts.owner

    class Failing:
        """Ends as it should, and then says that it did not."""

        def __init__(self, whole: object) -> None:
            self._whole = whole

        def __getattr__(self, name: str) -> object:
            return getattr(self._whole, name)

        def stop(self) -> None:
            self._whole.stop()
            raise KeyboardInterrupt

        def close(self) -> None:
            self._whole.close()
            raise KeyboardInterrupt

    setattr(owner, part, Failing(getattr(owner, part)))
    with pytest.raises((KeyboardInterrupt, st.PoisonedError)):
        db.close()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == 1


def test_a_handler_that_raises_while_close_waits_for_the_log_is_heard_at_its_end(
    tmp_path: Path,
) -> None:
    class StopError(Exception):
        pass

    def handler(_number: int, _frame: object) -> None:
        raise StopError

    db = filled(tmp_path / "db")
    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with (
            signalled(3, signal.SIGUSR1, where="storage/wal/wal.py") as interrupter,
            pytest.raises(StopError),
        ):
            db.close()
        assert interrupter.has_acted
    finally:
        signal.signal(signal.SIGUSR1, old)
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == 1


@pytest.mark.usefixtures("hasty")
def test_a_store_that_several_threads_close_at_once_is_closed_whole(tmp_path: Path) -> None:
    for _ in range(ROUNDS):
        db = filled(tmp_path / "db", background=True)
        rows, threads = db["t"].count(), Threads()
        for _ in range(4):
            threads.start(db.close)
        threads.join()
        with open_store(tmp_path / "db", fake_env()) as again:
            assert again["t"].count() == rows


def test_a_read_that_begins_while_another_thread_closes_is_refused(tmp_path: Path) -> None:
    db = filled(tmp_path / "db")
    table, look = db["t"], db._core.state

    def closed_before_it_looks() -> object:
        db.close()
        return look()

    db._core.state = closed_before_it_looks
    with pytest.raises(st.ClosedError):
        table.count()


def test_a_checkpoint_that_another_thread_closes_is_refused(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    db = open_store(tmp_path / "db", fake_env(hooked=hooked))
    db.create_table("t", SCHEMA, primary_key="id")
    db["t"].upsert({"id": 1, "v": 1})
    hooked[0].hooks["stage"] = lambda *_: db.close()
    with pytest.raises(st.ClosedError):
        db.checkpoint()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == 1


def test_a_handler_may_close_a_reader_that_is_just_looking_for_news(tmp_path: Path) -> None:
    threads, env = Threads(), fake_env()
    with filled(tmp_path / "db") as owner:
        owner.checkpoint()
        reader = LocalStore.open(tmp_path / "db", Options(), read_only=True, env=env)
        table, newer_record = reader["t"], reader._parts.site.manifests.newer_record

        def handled(after: Record) -> object:
            reader.close()
            return newer_record(after)

        reader._parts.site.manifests.newer_record = handled
        threads.start(table.count)
        threads.join()
        assert reader._parts.follower._state is None, "it keeps a record from vacuum"


def test_a_handler_may_close_a_store_in_the_middle_of_a_checkpoint(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    db = open_store(tmp_path / "db", fake_env(hooked=hooked))
    db.create_table("t", SCHEMA, primary_key="id")
    db["t"].upsert({"id": 1, "v": 1})
    owner, threads = db._parts.owner, Threads()

    def handled(*_: object) -> None:
        hooked[0].hooks.clear()
        behind = threading.Thread(target=refused, args=(owner.checkpointer.refresh,))
        behind.start()
        owner.scheduler._aside["vacuum"] = behind  # what background work does meanwhile
        db.close()

    hooked[0].hooks["stage"] = handled
    threads.start(refused, db.checkpoint)
    threads.join()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == 1


def test_a_handler_may_close_a_store_that_makes_a_version_for_a_reader(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    db, threads = open_store(tmp_path / "db", fake_env(hooked=hooked)), Threads()
    db.create_table("t", SCHEMA, primary_key="id")
    db["t"].upsert({"id": 1, "v": 1})
    hooked[0].hooks["overlaid"] = lambda *_: db.close()
    threads.start(db.fresh_versions().live, db.snapshot(), "t")
    threads.join()
    assert not db._parts.owner.ownership.is_held


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(st.ClosedError):
        call()
