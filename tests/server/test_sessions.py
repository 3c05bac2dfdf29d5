"""What is open on a connection ends with it, or when it is idle for too long; all is bounded."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from siltstone.engine.write.transaction import Phase
from siltstone.errors import BusyError, ClosedError, RequestError
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.rpc.calls import Calls, RpcCall
from siltstone.server.rpc.server import rpc_policy
from siltstone.server.rpc.wire import RpcWire
from siltstone.server.served import Served
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
    left = sessions.hold(home, idle)
    used = sessions.hold(home, busy)
    clock.pass_s(59)
    with sessions.using(used):
        clock.pass_s(59)
        sessions.sweep()
    assert (idle.phase, busy.phase) == (Phase.ENDED, Phase.OPEN)
    with pytest.raises(ClosedError, match="idle for more than 60 s"), sessions.using(left):
        pass
    with sessions.using(used) as held:
        assert held.transaction is busy


def test_an_idle_transaction_cannot_be_committed_also_when_nobody_swept() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    tx = db.transaction()
    key = sessions.hold(sessions.open(), tx)
    clock.pass_s(61)
    with pytest.raises(ClosedError), sessions.ending(key):
        pass
    assert tx.phase is Phase.ENDED
    tx = db.transaction()
    key = sessions.hold(sessions.open(), tx)
    clock.pass_s(61)
    with pytest.raises(ClosedError), sessions.using(key):
        pass


def test_a_transaction_whose_rows_are_read_is_not_idle() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    home = sessions.open()
    tx = db.transaction()
    key = sessions.hold(home, tx)
    with ThreadPoolExecutor(1) as executor:
        wire = RpcWire(sessions)
        pipeline, calls = (
            Pipeline(wire, rpc_policy(), executor),
            Calls(Served(db, db._parts), sessions),
        )
        path = {"table": str(db["t"].id)}
        scan = RpcCall(home, "scan", [], {}, transaction=key, path=path)
        outcome = calls.of_table(scan)
        clock.pass_s(59)
        rows = pipeline.streamed(wire.pieces(outcome.value, outcome.turn), {})
        clock.pass_s(59)
        assert rows.read_next()
        sessions.sweep()
        assert tx.phase is Phase.OPEN
        clock.pass_s(61)
        sessions.sweep()
        assert tx.phase is Phase.ENDED


def test_a_transaction_whose_statement_runs_is_not_idle_and_its_end_stops_the_rows() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    home = sessions.open()
    tx = db.transaction()
    key = sessions.hold(home, tx)
    with ThreadPoolExecutor(1) as executor:
        wire = RpcWire(sessions)
        pipeline = Pipeline(wire, rpc_policy(), executor)
        calls = Calls(Served(db, db._parts), sessions)
        statement = "SELECT range AS n FROM range(10_000_000_000)"  # more than come until it hears
        outcome = calls.of_transaction(RpcCall(home, "sql", [statement], {}, path={"key": key}))
        clock.pass_s(59)
        rows = pipeline.streamed(wire.pieces(outcome.value, outcome.turn), {})
        clock.pass_s(59)
        assert rows.read_next()
        assert outcome.turn is not None
        with outcome.turn():  # as while DuckDB works on the next rows
            clock.pass_s(61)
            sessions.sweep()
            assert tx.phase is Phase.OPEN
        clock.pass_s(61)
        sessions.sweep()
        assert tx.phase is Phase.ENDED
        (last,) = deque((piece for piece in iter(rows.read_next, None) if piece), maxlen=1)
        assert b"the transaction is ended" in last
        rows.close()


def test_a_snapshot_is_kept_as_long_as_its_connection() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    home = sessions.open()
    key = sessions.hold(home, db.snapshot())
    clock.pass_s(10**6)
    with sessions.using(key) as held:
        assert held.snapshot.tables() == ["t"]
        with pytest.raises(RequestError):
            _ = held.transaction
    sessions.close(home)
    with pytest.raises(ClosedError), sessions.using(key):
        pass


def test_a_connection_takes_only_its_own_with_it() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock)
    first, second = sessions.open(), sessions.open()
    own, other = db.transaction(), db.transaction()
    sessions.hold(first, own)
    sessions.hold(second, other)
    sessions.close(first)
    assert (own.phase, other.phase) == (Phase.ENDED, Phase.OPEN)
    with pytest.raises(ClosedError):
        sessions.hold(first, db.transaction())
    sessions.close_all()
    assert other.phase is Phase.ENDED
    assert sessions.count == 0


def test_open_transactions_and_connections_are_bounded() -> None:
    db, clock = with_two_rows(), Clock()
    sessions = sessions_of(clock, held_max=2, connections_max=2)
    home = sessions.open()
    for _ in range(2):
        sessions.hold(home, db.transaction())
    with pytest.raises(BusyError, match="2 transactions"):
        sessions.hold(home, db.transaction())
    clock.pass_s(61)  # idle ones make room
    sessions.hold(home, db.transaction())
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
    with pytest.raises(ClosedError, match="was used before"), sessions.statement(session, first):
        pass
    assert sessions.spend(first)


def test_an_id_whose_outcome_was_asked_for_runs_no_more() -> None:
    sessions = sessions_of(Clock())
    session = sessions.open()
    lost = session.reserved
    assert sessions.spend(lost)
    with pytest.raises(ClosedError, match="nothing was changed"), sessions.statement(session, lost):
        pass


def test_an_id_whose_connection_ended_runs_no_more() -> None:
    """A request may still wait for a thread: its outcome is asked for, and must not change."""
    sessions = sessions_of(Clock())
    session = sessions.open()
    lost = session.reserved
    sessions.close(session)
    assert sessions.spend(lost)
    with pytest.raises(ClosedError, match="nothing was changed"), sessions.statement(session, lost):
        pass


def test_an_id_grows_old_and_runs_no_more() -> None:
    clock = Clock()
    sessions = sessions_of(clock)
    session = sessions.open()
    old = sessions.reserved(session)
    clock.pass_s(4)
    assert sessions.reserved(session) == old
    clock.pass_s(61)
    with pytest.raises(ClosedError, match="was used before"), sessions.statement(session, old):
        pass
    with sessions.statement(session, None) as running:  # a client that does not care
        assert running != old
    clock.pass_s(6)
    assert sessions.reserved(session) != running


def test_a_commit_that_runs_goes_on_when_its_connection_ends_and_is_in_doubt_meanwhile() -> None:
    db = with_two_rows()
    sessions = sessions_of(Clock())
    home = sessions.open()
    tx = db.transaction()
    key = sessions.hold(home, tx)
    with sessions.ending(key), sessions.statement(home, home.reserved) as running:
        assert not sessions.spend(running)
        sessions.close(home)
        tx.commit()
    assert tx.phase is Phase.COMMITTED
    assert sessions.spend(running)


def test_a_transaction_whose_commit_was_refused_before_it_began_is_ended() -> None:
    db = with_two_rows()
    sessions = sessions_of(Clock())
    home = sessions.open()
    tx = db.transaction()
    key = sessions.hold(home, tx)
    with pytest.raises(ClosedError), sessions.ending(key), sessions.statement(home, "1-9"):
        pass
    assert tx.phase is Phase.ENDED
    assert db.status().open_transactions == 0


def test_a_call_that_runs_is_waited_for_before_its_transaction_is_rolled_back() -> None:
    db = with_two_rows()
    sessions = sessions_of(Clock())
    home = sessions.open()
    tx = db.transaction()
    key = sessions.hold(home, tx)
    with sessions.using(key):
        closing = threading.Thread(target=sessions.close, args=(home,))
        closing.start()
        assert tx.phase is Phase.OPEN
    closing.join()
    assert tx.phase is Phase.ENDED
