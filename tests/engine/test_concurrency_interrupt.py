"""Ctrl-C, or any signal whose handler raises, never hangs, poisons or loses a commit of others."""

from __future__ import annotations

import itertools
import linecache
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.local.group_upserts import GroupUpserts
from tests.engine.seams import GatedFiles, Threads, fake_env, open_store, until
from tests.support.traced import signalled

SCHEMA = {"id": "int64", "v": "int64"}
WRITERS = 3
WAY = (
    "siltstone/process/retry.py",
    "siltstone/process/context_exits.py",
    "local/group_upserts.py",
    "local/tables.py",
    "local/transaction.py",
    "engine/commit/committer.py",
    "engine/commit/core.py",
    "engine/commit/recent_writes.py",
    "engine/commit/waiters.py",
    "engine/levels/own_rows.py",
    "engine/write/keyed_writes.py",
    "engine/write/row_plan.py",
    "engine/write/submission.py",
    "engine/write/transaction.py",
    "engine/write/transaction_rows.py",
    "local/transaction_table.py",
)
"""Where an upsert, a transaction or a group of upserts passes."""


class StopError(Exception):
    """What a handler of one's own raises."""


@pytest.fixture
def raising():
    """Have three signals beside SIGINT raise; the handlers that were there come back."""

    def handler(number: int, _frame: object) -> None:
        raise StopError(number)

    numbers = (signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN)
    old = {number: signal.signal(number, handler) for number in numbers}
    yield handler
    for number, before in old.items():
        signal.signal(number, before)


def test_ctrl_c_at_any_line_of_a_commit_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        nth = 0
        while True:
            nth += 1
            with signalled(nth, passed=is_passed) as interrupter:
                try:
                    table.upsert({"id": nth, "v": nth})
                except KeyboardInterrupt:
                    assert interrupter.has_acted
            threads = Threads()
            threads.start(table.upsert, {"id": -nth, "v": nth})
            threads.join()
            assert table.get(-nth) == {"id": -nth, "v": nth}, f"at line {nth}"
            if not interrupter.has_acted:
                break
        assert nth > 50, "too few lines were interrupted for the claim"
        assert db.durable_seq == db.seq


def is_passed(frame: FrameType) -> bool:
    """Whether a line is in a finalizer, or a `with` of a lock, visited again when its block ends.

    The lock would not be released then: a tracer can raise between the block and the release. No
    signal can: Python looks for one after a call, and there is none between the two. What is raised
    in a finalizer reaches nobody: Python prints it.
    """
    if frame.f_code.co_name == "__del__":
        return True
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return line.startswith("with ") and line.endswith("lock:")


def upsert(db: Store, number: int) -> None:
    db["t"].upsert({"id": number, "v": number})


def transact(db: Store, number: int) -> None:
    with db.transaction() as tx:
        table = tx["t"]
        table.get(number)
        table.upsert({"id": number, "v": 0})
        table.update(number, v=number)
        table.delete(number + 1)


def upsert_a_group(db: Store, number: int) -> None:
    group = GroupUpserts(db._core)
    table = group.table("t")
    assert table is not None
    group.commit([table.upsert({"id": number, "v": v}) for v in (0, number)])


@pytest.mark.parametrize("act", [upsert, transact, upsert_a_group])
@pytest.mark.parametrize("where", WAY)
def test_ctrl_c_at_any_line_on_the_way_of_a_write_leaves_all_of_it_or_nothing(
    tmp_path: Path, act: Callable[[Store, int], None], where: str
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 0, "v": 0})
        nths, is_over = itertools.count(1), False
        while not is_over:
            nth = next(nths)
            number = 10 * nth
            with signalled(nth, where=where, passed=is_passed) as interrupter:
                try:
                    act(db, number)
                except KeyboardInterrupt:
                    assert interrupter.has_acted
            is_over = not interrupter.has_acted
            threads = Threads()
            threads.start(upsert, db, -number)
            threads.join()
            assert table.get(-number) == {"id": -number, "v": -number}, interrupter.at
            found = table.get(number)
            assert found in (None, {"id": number, "v": number}), interrupter.at
            assert db._core.transactions.count == 0, interrupter.at
            assert db._core.under_way == {}, interrupter.at
        assert found is not None


def test_ctrl_c_at_any_line_of_a_checkpoint_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        nth = 0
        while True:
            nth += 1
            table.upsert({"id": nth, "v": nth})
            with signalled(nth) as interrupter:
                try:
                    db.checkpoint()
                except KeyboardInterrupt:
                    assert interrupter.has_acted
            assert table.get(nth) == {"id": nth, "v": nth}, f"at line {nth}"
            if not interrupter.has_acted:
                break
        db.checkpoint()
        assert db.merge().rows > 0
        assert table.count() == nth


def test_ctrl_c_in_the_leader_keeps_the_others_and_tells_them_the_truth(tmp_path: Path) -> None:
    """The main thread leads while others follow; the signal comes while it syncs."""
    gate = GatedFiles()
    db = open_store(tmp_path / "db", fake_env(gate))
    table = db.create_table("t", SCHEMA, primary_key="id")
    threads, acknowledged = Threads(), []

    def write(number: int) -> None:
        acknowledged.append((number, table.upsert({"id": number, "v": number}).seq))

    def interrupt_the_leader() -> None:
        gate.wait()  # the main thread stands in its sync
        for number in range(1, WRITERS + 1):
            threads.start(write, number)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        gate.release()

    gate.hold()
    other = Threads()
    other.start(interrupt_the_leader)
    with pytest.raises(KeyboardInterrupt):
        table.upsert({"id": 0, "v": 0})
    other.join()
    threads.join()
    assert table.get(0) == {"id": 0, "v": 0}
    assert len({seq for _, seq in acknowledged}) == WRITERS
    assert table.count() == WRITERS + 1
    db.close()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == WRITERS + 1


def test_ctrl_c_in_a_follower_comes_when_its_commit_is_through(tmp_path: Path) -> None:
    gate = GatedFiles()
    with open_store(tmp_path / "db", fake_env(gate)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        gate.hold()
        threads = Threads()
        threads.start(table.upsert, {"id": 1, "v": 1})
        gate.wait()

        def interrupt_the_follower() -> None:
            until(lambda: db._core.committer._queue)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            gate.release()

        threads.start(interrupt_the_follower)
        with pytest.raises(KeyboardInterrupt):
            table.upsert({"id": 2, "v": 2})
        threads.join()
        assert table.get(1) == {"id": 1, "v": 1}
        table.upsert({"id": 3, "v": 3})
        assert db.seq == db.durable_seq


def test_a_handler_of_ones_own_is_called_once_and_stays(tmp_path: Path) -> None:
    heard: list[int] = []

    def handler(number: int, _frame: object) -> None:
        heard.append(number)

    old = signal.signal(signal.SIGINT, handler)
    try:
        with open_store(tmp_path / "db", fake_env()) as db:
            table = db.create_table("t", SCHEMA, primary_key="id")
            with signalled(20):
                table.upsert({"id": 1, "v": 1})
            assert signal.getsignal(signal.SIGINT) is handler
            assert isinstance(table.upsert({"id": 2, "v": 2}), st.Receipt)
    finally:
        signal.signal(signal.SIGINT, old)
    assert heard == [signal.SIGINT]


@pytest.mark.parametrize("where", ["engine/commit/committer.py", "engine/commit/interrupts.py"])
@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGUSR1,),
        (signal.SIGALRM,),
        (signal.SIGRTMIN,),
        (signal.SIGUSR1, signal.SIGALRM, signal.SIGINT),
    ],
    ids=["SIGUSR1", "SIGALRM", "SIGRTMIN", "three at once"],
)
def test_a_handler_that_raises_at_any_line_of_a_commit_leaves_a_store_that_goes_on(
    tmp_path: Path, raising: object, signals: tuple[int, ...], where: str
) -> None:
    interrupted = signal.getsignal(signal.SIGINT)
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        nth = 0
        while True:
            nth += 1
            with signalled(nth, *signals, where=where, passed=is_passed) as interrupter:
                try:
                    table.upsert({"id": nth, "v": nth})
                except (KeyboardInterrupt, StopError):
                    assert interrupter.has_acted
            for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN):
                assert signal.getsignal(number) is raising, f"at line {nth}"
            assert signal.getsignal(signal.SIGINT) is interrupted, f"at line {nth}"
            threads = Threads()
            threads.start(table.upsert, {"id": -nth, "v": nth})
            threads.join()
            assert table.get(-nth) == {"id": -nth, "v": nth}, f"at line {nth}"
            if not interrupter.has_acted:
                break
        assert nth > 8, "too few lines were interrupted for the claim"
        assert db.durable_seq == db.seq


def test_each_of_two_handlers_is_called_though_the_first_raises(
    tmp_path: Path, raising: object
) -> None:
    heard: list[int] = []
    old = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    try:
        with open_store(tmp_path / "db", fake_env()) as db:
            table = db.create_table("t", SCHEMA, primary_key="id")
            signals = (signal.SIGUSR1, signal.SIGUSR2)
            with signalled(20, *signals), pytest.raises(StopError):
                table.upsert({"id": 1, "v": 1})
            assert table.get(1) == {"id": 1, "v": 1}
    finally:
        signal.signal(signal.SIGUSR2, old)
    assert heard == [signal.SIGUSR2]


def test_a_handler_that_raises_in_the_leader_is_heard_when_its_followers_are_through(
    tmp_path: Path, raising: object
) -> None:
    """The main thread leads while others follow; the signal comes while it syncs."""
    gate = GatedFiles()
    with open_store(tmp_path / "db", fake_env(gate)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        threads, other = Threads(), Threads()

        def interrupt_the_leader() -> None:
            gate.wait()
            for number in range(1, WRITERS + 1):
                threads.start(table.upsert, {"id": number, "v": number})
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            gate.release()

        gate.hold()
        other.start(interrupt_the_leader)
        with pytest.raises(StopError):
            table.upsert({"id": 0, "v": 0})
        other.join()
        threads.join()
        assert table.count() == WRITERS + 1
        assert db.durable_seq == db.seq
