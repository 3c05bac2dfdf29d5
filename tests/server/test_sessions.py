"""What is open on a connection ends with it, or when it is idle for too long; all is bounded."""

from __future__ import annotations

import itertools
import threading

import pytest

from siltstone.engine.transaction import Phase
from siltstone.errors import BusyError, ClosedError, RequestError
from siltstone.server.sessions import Sessions
from tests.isolation.stores import with_two_rows


class Clock:
    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)


def sessions_of(clock: Clock, **bounds: int) -> Sessions:
    ids = (f"1-{number}" for number in itertools.count(100))
    return Sessions(lambda: next(ids), idle_s=60.0, now_us=clock, **bounds)


def test_an_idle_transaction_is_rolled_back_and_one_in_use_is_not() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    home = sessions.open()
    idle, busy = db.transaction(), db.transaction()
    sessions.hold(home, "1-1", idle)
    sessions.hold(home, "1-2", busy)
    clock.pass_s(59)
    with sessions.using("1-2"):
        clock.pass_s(59)
        sessions.sweep()
    assert (idle.phase, busy.phase) == (Phase.ENDED, Phase.OPEN)
    with pytest.raises(ClosedError, match="idle for more than 60 s"), sessions.using("1-1"):
        pass
    with sessions.using("1-2") as held:
        assert held.transaction is busy


def test_an_idle_transaction_cannot_be_committed_also_when_nobody_swept() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    tx = db.transaction()
    sessions.hold(sessions.open(), "1-1", tx)
    clock.pass_s(61)
    with pytest.raises(ClosedError), sessions.ending("1-1"):
        pass
    assert tx.phase is Phase.ENDED
    tx = db.transaction()
    sessions.hold(sessions.open(), "1-2", tx)
    clock.pass_s(61)
    with pytest.raises(ClosedError), sessions.using("1-2"):
        pass


def test_a_snapshot_is_kept_as_long_as_its_connection() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    home = sessions.open()
    sessions.hold(home, "s1", db.snapshot())
    clock.pass_s(10**6)
    with sessions.using("s1") as held:
        assert held.snapshot.tables() == ["t"]
        with pytest.raises(RequestError):
            _ = held.transaction
    sessions.close(home)
    with pytest.raises(ClosedError), sessions.using("s1"):
        pass


def test_a_connection_takes_only_its_own_with_it() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    first, second = sessions.open(), sessions.open()
    own, other = db.transaction(), db.transaction()
    sessions.hold(first, "1-1", own)
    sessions.hold(second, "1-2", other)
    sessions.close(first)
    assert (own.phase, other.phase) == (Phase.ENDED, Phase.OPEN)
    with pytest.raises(ClosedError):
        sessions.hold(first, "1-3", db.transaction())
    sessions.close_all()
    assert other.phase is Phase.ENDED
    assert sessions.count == 0


def test_open_transactions_and_connections_are_bounded() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock, held_max=2, connections_max=2)
    home = sessions.open()
    for key in ("1-1", "1-2"):
        sessions.hold(home, key, db.transaction())
    with pytest.raises(BusyError, match="2 transactions"):
        sessions.hold(home, "1-3", db.transaction())
    clock.pass_s(61)  # idle ones make room
    sessions.hold(home, "1-4", db.transaction())
    assert sessions.open().refusal is None
    assert isinstance(sessions.open().refusal, BusyError)


def test_an_id_runs_once() -> None:
    sessions = sessions_of(Clock())
    session = sessions.open()
    first = session.reserved
    with sessions.statement(session, first) as running:
        assert running == first
        assert not sessions.spend(first)  # nobody knows yet
    assert session.reserved != first
    with pytest.raises(ClosedError, match="spent"), sessions.statement(session, first):
        pass
    assert sessions.spend(first)


def test_an_id_whose_outcome_was_asked_for_runs_no_more() -> None:
    sessions = sessions_of(Clock())
    session = sessions.open()
    lost = session.reserved
    assert sessions.spend(lost)
    with pytest.raises(ClosedError, match="nothing was changed"), sessions.statement(session, lost):
        pass


def test_a_transaction_that_commits_is_in_doubt_until_it_is_done() -> None:
    db = with_two_rows()
    sessions = sessions_of(Clock())
    home = sessions.open()
    sessions.hold(home, "1-1", db.transaction())
    with sessions.ending("1-1") as held:
        assert not sessions.spend("1-1")
        sessions.close(home)  # its connection goes away meanwhile: the commit goes on
        assert held.transaction.phase is Phase.OPEN
    assert sessions.spend("1-1")


def test_a_call_that_runs_is_waited_for_before_its_transaction_is_rolled_back() -> None:
    db = with_two_rows()
    sessions = sessions_of(Clock())
    home = sessions.open()
    tx = db.transaction()
    sessions.hold(home, "1-1", tx)
    with sessions.using("1-1"):
        closing = threading.Thread(target=sessions.close, args=(home,))
        closing.start()
        assert tx.phase is Phase.OPEN
    closing.join()
    assert tx.phase is Phase.ENDED
