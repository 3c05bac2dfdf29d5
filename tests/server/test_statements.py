"""SQL statements wait for their turn: they leave threads to all others, and shares to each client.

Each statement here runs until its client goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import BusyError, ClosedError
from siltstone.joined.store import JoinedStore
from siltstone.joined.targets import server_at
from siltstone.joined.transactions.transaction import JoinedTransaction
from siltstone.joined.values import encode
from siltstone.process import deadline
from siltstone.server.http.lane import Lane
from siltstone.server.http.policy import LanePolicy
from siltstone.server.http.replies import Pieces
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.tokens import tokens_of
from siltstone.server.rpc.calls import Turn
from siltstone.server.rpc.wire import RpcWire
from tests.server.doors import Door, Told, Wire, door_of
from tests.server.rest import rest_of
from tests.server.stores import eventually

CROSS = "SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b WHERE a.range * b.range = -7"
LONG = "SELECT sum((a.range * b.range) % 7) FROM range(100_000) a, range(1_500) b"
"""Takes about ten seconds."""
READ, OTHER, ADMIN = (f"{name}-{'x' * 30}" for name in ("read", "other", "admin"))
TOKENS = tokens_of(f"r read {READ}; o read {OTHER}; a admin {ADMIN}", "test")


def send_sql(wire: Wire, path: str, statement: str, token: str = "") -> None:
    body = encode([[statement], {}])
    head = f"Authorization: Bearer {token}\r\n" if token else ""
    wire.send("POST", path, len(body), body, head)


@dataclass
class Crowd:
    """Clients that each send a statement, and what they are told."""

    wires: list[Wire] = field(default_factory=list[Wire])
    told: list[Told] = field(default_factory=list[Told])

    def hear(self, wire: Wire) -> None:
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            self.told.append(wire.told())

    @contextlib.contextmanager
    def hearing(self) -> Iterator[None]:
        """Hear all of them; they go away at the end."""
        threads = [threading.Thread(target=self.hear, args=(wire,)) for wire in self.wires]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for wire in self.wires:
                with contextlib.suppress(OSError):
                    wire.sock.shutdown(2)
            for thread in threads:
                thread.join()


def test_health_and_an_admins_count_answer_while_forty_statements_of_one_token_run(
    tmp_path: Path,
) -> None:
    limits = replace(Limits(), threads=2)
    with rest_of(tmp_path / "shop", tokens=TOKENS, limits=limits) as (db, service, rest):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert([{"id": n} for n in range(10)])
        crowd, lane = Crowd(), service.joined.lane
        assert lane is not None
        with contextlib.ExitStack() as sockets:
            for _ in range(40):
                made = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
                sockets.callback(made.close)
                made.connect()
                crowd.wires.append(Wire(made.sock))
                send_sql(crowd.wires[-1], "/v1/joined/sql", CROSS, READ)
            with crowd.hearing():
                eventually(lambda: len(crowd.told) == 40 - 2 - 16)
                assert (lane.running, lane.waiting) == (2, 16)
                assert {(told.status, told.headers["retry-after"]) for told in crowd.told} == {
                    (429, "1")
                }
                assert crowd.told[0].error == ("16 statements wait for their turn; try again later")
                for path in ("/healthz", "/readyz"):
                    assert rest.get(path).status == 200
                admin = {"authorization": f"Bearer {ADMIN}"}
                assert rest.post("/v1/table/t/count_rows", {}, **admin).json == 10
                with JoinedStore(None, server_at(service.url, token=READ)) as refused:
                    with pytest.raises(BusyError, match="wait for their turn"):
                        refused.sql("SELECT 1")
                    assert refused["t"].count() == 10
                with JoinedStore(None, server_at(service.url, token=OTHER)) as other:
                    assert other.sql("SELECT 1 AS n").fetchall() == [(1,)]
        eventually(lambda: (lane.running, lane.waiting) == (0, 0))
        assert service.joined.counters.inside == 0


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_a_count_is_answered_while_forty_statements_run_or_wait(tmp_path: Path, kind: str) -> None:
    """Without tokens there is one bound for all; the store goes on, and so does a snapshot."""
    with door_of(kind, tmp_path / "shop") as door:
        lane = door.pipeline.lane
        assert lane is not None
        crowd = Crowd([door.wire() for _ in range(40)])
        for wire in crowd.wires:
            send_sql(wire, f"{door.prefix}/sql", CROSS)
        with crowd.hearing():
            eventually(lambda: (lane.running, lane.waiting) == (4, 36))
            assert door.asked().status == 200
            for wire in crowd.wires[:2]:  # whose turn comes next does not matter
                wire.sock.shutdown(2)
            eventually(lambda: lane.waiting < 36)
        eventually(lambda: (lane.running, lane.waiting) == (0, 0))


def test_a_snapshot_answers_while_a_statement_reads_it(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        with JoinedStore(None, server_at(service.url)) as joined, joined.snapshot() as past:
            key = past._id  # pyright: ignore[reportPrivateUsage]
            made = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            made.connect()
            crowd, lane = Crowd([Wire(made.sock)]), service.joined.lane
            assert lane is not None
            send_sql(crowd.wires[0], f"/v1/joined/snapshot/{key}/sql", CROSS)
            with crowd.hearing():
                eventually(lambda: lane.running == 1)
                assert past["t"].count() == 0
            made.close()
            eventually(lambda: lane.running == 0)


def test_the_rows_of_a_large_result_hold_a_turn_until_they_are_read(tmp_path: Path) -> None:
    limits = replace(
        Limits(),
        statements_max=1,
        token_statements_max=1,
        waiting_statements_max=1,
        token_waiting_statements_max=1,
    )
    with rest_of(tmp_path / "shop", limits=limits) as (_, service, _):
        lane = service.joined.lane
        assert lane is not None
        with JoinedStore(None, server_at(service.url)) as joined:
            reader = joined.sql_reader("SELECT range AS n FROM range(1_000_000_000)")
            first = reader.read_next_batch()
            assert first.schema.field("n").type == pa.int64()
            assert lane.running == 1
            del reader, first  # its connection ends with it
            eventually(lambda: lane.running == 0)
            assert joined.sql("SELECT sum(range)::BIGINT AS s FROM range(100)").fetchall() == [
                (4_950,)
            ]
            eventually(lambda: lane.running == 0)


def joined_at(door: Door) -> JoinedStore:
    if door.kind == "socket":
        return JoinedStore(door.db.path, str(door.address))
    return JoinedStore(None, server_at(f"http://127.0.0.1:{door.address}"))


@contextlib.contextmanager
def running_in(door: Door, tx: JoinedTransaction) -> Iterator[tuple[Crowd, ThreadPoolExecutor]]:
    """Run a statement of a transaction, and have threads for what is done beside it."""
    lane, key = door.pipeline.lane, tx._key  # pyright: ignore[reportPrivateUsage]
    assert lane is not None
    with ThreadPoolExecutor(36) as beside:
        crowd = Crowd([door.wire()])
        send_sql(crowd.wires[0], f"{door.prefix}/transaction/{key}/sql", CROSS)
        with crowd.hearing():
            eventually(lambda: lane.running == 1)
            yield crowd, beside
    eventually(lambda: lane.running == 0)


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_calls_of_a_transaction_do_not_wait_for_its_statement(tmp_path: Path, kind: str) -> None:
    """Else they would wait in the threads that all share, and nobody would be answered."""
    with door_of(kind, tmp_path / "shop") as door, joined_at(door) as joined:
        tx = joined.transaction()
        tx["t"].insert({"id": 1, "v": "a"})
        with running_in(door, tx) as (crowd, beside):
            counts = [beside.submit(tx["t"].count) for _ in range(36)]
            assert {count.result(30) for count in counts} == {1}
            beside.submit(tx["t"].insert, {"id": 2, "v": "b"}).result(30)
            assert joined["t"].count() == 0
            assert not crowd.told
        tx.commit()
        assert joined["t"].count() == 2


@pytest.mark.parametrize("kind", ["socket", "joined"])
@pytest.mark.parametrize(
    ("end", "rows", "reason"),
    [
        (JoinedTransaction.rollback, 0, "the transaction is ended"),
        (JoinedTransaction.commit, 1, "the transaction is "),
        (lambda tx: tx._home.close(), 0, "the transaction is ended"),
    ],
    ids=["rollback", "commit", "its connection ends"],
)
def test_the_end_of_a_transaction_stops_its_statement(
    tmp_path: Path, kind: str, end: Callable[[JoinedTransaction], object], rows: int, reason: str
) -> None:
    with door_of(kind, tmp_path / "shop") as door, joined_at(door) as joined:
        tx = joined.transaction()
        tx["t"].insert({"id": 1, "v": "a"})
        with running_in(door, tx) as (crowd, beside):
            beside.submit(end, tx).result(30)
            eventually(lambda: len(crowd.told) == 1)
            assert crowd.told[0].error.startswith(reason)
        assert joined["t"].count() == rows
        assert door.db.status().open_transactions == 0


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_a_statement_that_its_transaction_does_not_wait_for_raises_closed_error(
    tmp_path: Path, kind: str
) -> None:
    with door_of(kind, tmp_path / "shop") as door, joined_at(door) as joined:
        lane, tx = door.pipeline.lane, joined.transaction()
        assert lane is not None
        with ThreadPoolExecutor(1) as beside:
            found = beside.submit(tx.sql, LONG)
            eventually(lambda: lane.running == 1)
            tx.rollback()
            with pytest.raises(ClosedError, match="the transaction is ended"):
                found.result(30)


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_what_is_written_beside_statements_is_committed(tmp_path: Path, kind: str) -> None:
    """A statement looks at own rows in threads of its own; they must not lose one."""
    with door_of(kind, tmp_path / "shop") as door, joined_at(door) as joined:
        tx, count = joined.transaction(), "SELECT count(*) FROM t"
        with ThreadPoolExecutor(1) as beside:
            for n in range(30):
                if n == 15:
                    tx["t"].add_column("w", "int64")
                more = {} if n < 15 else {"w": n}
                found = beside.submit(tx.sql, count)
                tx["t"].insert({"id": n, "v": "x", **more})
                assert found.result(30).fetchall() in ([(n,)], [(n + 1,)])
        tx.commit()
        assert joined["t"].count("w is null") == 15
        assert joined["t"].count("w = id") == 15


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_unread_rows_end_when_another_statement_needs_the_turn(tmp_path: Path, kind: str) -> None:
    with door_of(kind, tmp_path / "shop") as door:
        lane = door.pipeline.lane
        assert lane is not None
        lane.policy = replace(lane.policy, unread_s=0.05)
        with joined_at(door) as joined:
            statement = "SELECT range AS n FROM range(2_000_000)"
            readers = [joined.sql_reader(statement) for _ in range(4)]
            assert joined.sql("SELECT 1 AS n").fetchall() == [(1,)]
            told: list[str] = []
            for reader in readers:
                try:
                    assert sum(batch.num_rows for batch in reader) == 2_000_000
                except BusyError as error:
                    told.append(str(error))
            (words,) = told
            assert words == (
                "these rows were left unread for 0.05 s while other statements waited for a turn;"
                " read them as they come, or take them all at once"
            )
        eventually(lambda: (lane.running, lane.waiting) == (0, 0))


def test_a_server_says_how_long_rows_may_stay_unread(tmp_path: Path) -> None:
    limits = replace(Limits(), statements_max=1, token_statements_max=1, unread_rows_s=0.05)
    with (
        rest_of(tmp_path / "shop", limits=limits) as (_, service, _),
        JoinedStore(None, server_at(service.url)) as joined,
    ):
        reader = joined.sql_reader("SELECT range AS n FROM range(2_000_000)")
        assert joined.sql("SELECT 1 AS n").fetchall() == [(1,)]
        with pytest.raises(BusyError, match="left unread"):
            reader.read_all()


@pytest.mark.parametrize("kind", ["socket", "joined"])
def test_an_answer_that_gets_no_headers_leaves_its_turn_and_closes_its_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, str]:
        raise OSError("no headers")

    with door_of(kind, tmp_path / "shop") as door:
        lane = door.pipeline.lane
        assert lane is not None
        with monkeypatch.context() as patched:
            patched.setattr(door.pipeline.wire, "headers", fails)
            wire = door.wire()
            send_sql(wire, f"{door.prefix}/sql", "SELECT range AS n FROM range(10_000_000)")
            assert wire.told().status == 500
        eventually(lambda: (lane.running, lane.waiting) == (0, 0))
        assert door.asked().status == 200


def test_what_reads_ahead_keeps_the_deadline_of_the_first_rows_until_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As DuckDB's threads do: they scan a table on while the first rows are sent."""
    made = RpcWire.pieces

    def pieces(wire: RpcWire, found: pa.RecordBatchReader | pa.Table, turn: Turn | None) -> Pieces:
        whole = made(wire, found, turn)

        def chunks() -> Iterator[bytes]:
            end = deadline.current()
            assert end is not None
            for chunk in whole.chunks:
                end.check()
                yield chunk

        return replace(whole, chunks=chunks())

    monkeypatch.setattr(RpcWire, "pieces", pieces)
    with (
        rest_of(tmp_path / "shop") as (_, service, _),
        JoinedStore(None, server_at(service.url)) as joined,
    ):
        assert len(joined.sql("SELECT range AS n FROM range(200_000)")) == 200_000


def test_a_statement_that_needs_too_much_is_the_same_error_at_every_door(tmp_path: Path) -> None:
    small = {"sql_memory_bytes_max": 16 << 20, "sql_temp_bytes_max": 0, "sql_threads_max": 1}
    large = "SELECT list(range) FROM range(20_000_000)"
    with st.connect(tmp_path / "shop", background=False, **small) as db:
        service = db.serve(port=0)
        address = str(db.serve_local())
        for joined in (
            JoinedStore(None, server_at(service.url)),
            JoinedStore(db.path, address),
        ):
            with joined, pytest.raises(st.LimitError, match="sql_memory_bytes_max") as caught:
                joined.sql(large)
            assert caught.value.bytes_max == 16 << 20
        with pytest.raises(st.LimitError, match="sql_memory_bytes_max"):
            db.sql(large)


# turns


def lane_of(**bounds: int) -> Lane:
    lane = Lane(LanePolicy(**bounds))
    lane.executor.shutdown()
    return lane


def test_turns_come_in_order_but_for_clients_that_have_their_share() -> None:
    async def work() -> None:
        lane = lane_of()
        turns = [lane.ask(client) for client in "aaabbb"]
        assert [turn.may_run.done() for turn in turns] == [True, True, False, True, True, False]
        last = lane.ask("c")
        lane.leave(turns[3])  # the next is of `a`, which has two
        assert [turn.may_run.done() for turn in (turns[2], turns[5])] == [False, True]
        lane.leave(turns[0])
        assert turns[2].may_run.done()
        assert not last.may_run.done()
        lane.leave(last)
        for turn in (turns[1], turns[2], turns[4], turns[5]):
            lane.leave(turn)
        assert (lane.running, lane.waiting) == (0, 0)

    asyncio.run(work())


def test_what_waits_is_bounded_for_each_client_and_in_all() -> None:
    async def work() -> None:
        lane = lane_of()
        for _ in range(2 + 16):
            lane.ask("a")
        with pytest.raises(BusyError, match="16 statements wait"):
            lane.ask("a")
        for client in "bcd":
            for _ in range(16):
                with contextlib.suppress(BusyError):
                    lane.ask(client)
        while lane.waiting < 64:
            lane.ask(None)
        with pytest.raises(BusyError, match="64 statements wait"):
            lane.ask("e")

    asyncio.run(work())


def test_unread_turns_end_for_those_that_wait_and_can_use_them() -> None:
    async def work() -> None:
        lane = lane_of()
        running = [lane.ask(client) for client in "aabb"]
        for turn in running:
            lane.note_unread(turn)
        lane.note_read(running[0])
        assert not any(turn.must_end.done() for turn in running)
        mine = lane.ask("b")  # who has two: the turn of another client is of no use
        assert [turn.must_end.done() for turn in running] == [False, False, True, False]
        other = lane.ask("c")
        assert [turn.must_end.done() for turn in running] == [False, True, True, False]
        assert [mine.may_run.done(), other.may_run.done()] == [False, False]
        lane.leave(running[2])
        assert [mine.may_run.done(), other.may_run.done()] == [True, False]
        lane.leave(running[1])
        assert other.may_run.done()
        assert (lane.running, lane.waiting) == (4, 0)
        assert not running[3].must_end.done()

    asyncio.run(work())
