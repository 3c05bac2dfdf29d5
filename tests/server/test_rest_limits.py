"""Whatever a client sends, and however slowly, costs the server no more than `Limits` says."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import math
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.http.connections import HttpConnection
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of, stream_of
from tests.server.stores import eventually

Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    limits = replace(
        Limits(),
        body_bytes_max=64 << 10,
        json_bytes_max=4 << 10,
        decompressed_bytes_max=1 << 20,
        rows_max=1_000,
        columns_max=8,
        operations_max=3,
        transactions_max=2,
        header_timeout_s=0.2,
        idle_timeout_s=0.2,
        body_timeout_s=0.2,
        connections_max=4,
        collected_rows_max=10,
    )
    with rest_of(tmp_path / "shop", limits=limits) as found:
        found[0].create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        yield found


def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    small: Served,
) -> None:
    db, service, rest = small
    assert rest.post("/v1/table/t/delete", b" " * 5_000).code == (413, 13)
    assert rest.post("/v1/table/t/insert", b" " * (65 << 10)).code == (413, 13)
    chunked = Rest(service)
    chunks = iter([b"x" * 40_000, b"x" * 40_000])
    with contextlib.suppress(ConnectionError):  # refused while we still sent
        assert chunked.post("/v1/table/t/insert", chunks).code == (413, 13)
    assert db["t"].count() == 0


def test_a_body_that_grows_a_thousandfold_is_refused_before_it_is_decompressed(
    small: Served,
) -> None:
    db, _, rest = small
    rows = pa.table({"id": [1], "v": ["x" * (8 << 20)]})
    for codec in ("lz4", "zstd"):
        body = stream_of(rows, options=pa.ipc.IpcWriteOptions(compression=codec))
        assert len(body) < 64 << 10
        refused = rest.post("/v1/table/t/insert", body)
        assert refused.code == (400, 13)
        assert "decompressed" in refused.json["error"]
    assert db["t"].count() == 0


@pytest.mark.parametrize(
    ("codec", "magic"), [("zstd", b"\x28\xb5\x2f\xfd"), ("lz4", b"\x04\x22\x4d\x18")]
)
@pytest.mark.parametrize("claim", [0, 8, 1 << 40, (1 << 63) - 1, -2])
def test_a_compressed_body_that_lies_about_its_size_is_refused(
    small: Served, codec: str, magic: bytes, claim: int
) -> None:
    db, _, rest = small
    rows = pa.table({"id": [1], "v": ["x" * (512 << 10)]})
    body = bytearray(stream_of(rows, options=pa.ipc.IpcWriteOptions(compression=codec)))
    at = body.rindex(magic) - 8
    assert int.from_bytes(body[at : at + 8], "little") == 512 << 10
    body[at : at + 8] = claim.to_bytes(8, "little", signed=True)
    assert rest.post("/v1/table/t/insert", bytes(body)).code == (400, 13)
    assert db["t"].count() == 0


def test_rows_columns_operations_and_transactions_are_bounded(
    small: Served,
) -> None:
    db, _, rest = small
    many = pa.table({"id": range(2_000)})
    assert rest.post("/v1/table/t/insert", many).code == (400, 13)
    nulls = pa.table({"n": pa.nulls(5_000)})
    assert rest.post("/v1/table/n/create", nulls).code == (400, 13)
    wide = pa.table({f"c{n}": [1] for n in range(9)})
    assert rest.post("/v1/table/w/create", wide).code == (400, 13)
    ops = [{"table": "t", "op": "upsert", "rows": [{"id": n}]} for n in range(4)]
    assert rest.post("/v1/transaction/apply", {"ops": ops}).code == (400, 13)
    keys = [rest.post("/v1/transaction/begin").json["id"] for _ in range(2)]
    assert rest.post("/v1/transaction/begin").code == (429, 21)
    assert rest.post(f"/v1/transaction/{keys[0]}/rollback").status == 200
    assert rest.post("/v1/transaction/begin").status == 200
    db["t"].upsert([{"id": n, "v": None} for n in range(20)])
    grown = {"updates": [["v", "'x'"]]}
    assert rest.post("/v1/table/t/update", grown).code == (400, 13)
    assert db["t"].count("v is not null") == 0


def test_a_slow_client_is_cut_off(small: Served) -> None:
    _, service, rest = small
    silent = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    assert silent.recv(1) == b""  # closed: it never sent a request
    dripping = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    dripping.sendall(
        b"POST /v1/table/t/delete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    )
    answer = b""
    while piece := dripping.recv(4_000):
        answer += piece
    assert b'"code":13' in answer
    for sock in (silent, dripping):
        sock.close()
    eventually(lambda: service.pipeline.bodies.nbytes == 0)
    assert service.pipeline.counters.inside == 0
    rest.close()


class LoopClock:
    """The clock of a server's event loop; the test moves it on."""

    def __init__(self, service: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._thread = service.http.thread
        self._loop = self._thread._loop
        self._ahead, real = 0.0, self._loop.time
        monkeypatch.setattr(self._loop, "time", lambda: real() + self._ahead)
        self._came = list[bytes]()
        parse = HttpConnection.data_received

        def received(connection: HttpConnection, data: bytes) -> None:
            parse(connection, data)
            self._came.append(data)

        monkeypatch.setattr(HttpConnection, "data_received", received)

    def move(self, seconds: float) -> None:
        """Move on, and have everything done that is due then."""
        for _ in range(math.ceil(seconds / 0.5)):
            self._ahead += 0.5
            for _ in range(2):  # a timer that is due runs behind what was there already
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()

    def has_come(self, tail: bytes) -> bool:
        """Whether the server has got the begin of a head that ends with `tail`, once more."""
        found = [data for data in self._came if data.endswith(tail)]
        if found:
            self._came.remove(found[0])
        return bool(found)


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        sock.setblocking(True)


def test_a_head_that_comes_too_slowly_is_cut_off_after_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rest_of(tmp_path / "shop") as (_, service, _):
        clock = LoopClock(service, monkeypatch)
        fresh, kept, idle = (
            socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in range(3)
        )
        for sock in (kept, idle):
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(4_000).startswith(b"HTTP/1.1 200")
        clock.move(30)
        assert not is_open(fresh)  # it never sent a head, and was asked to for 10 s
        assert is_open(kept)
        kept.sendall(b"GET /healthz HTTP/1.1\r\nX-A: b\r\n")
        eventually(lambda: clock.has_come(b"X-A: b\r\n"))
        clock.move(9)
        kept.sendall(b"X-C: d\r\n")  # more of it, now and then: it is not whole all the same
        eventually(lambda: clock.has_come(b"X-C: d\r\n"))
        assert is_open(kept)
        clock.move(3)
        assert not is_open(kept)
        assert is_open(idle)  # it sends nothing, for less than 75 s
        clock.move(60)
        assert not is_open(idle)
        for sock in (fresh, kept, idle):
            sock.close()


def test_a_head_that_comes_in_pieces_within_its_time_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rest_of(tmp_path / "shop") as (_, service, _):
        clock = LoopClock(service, monkeypatch)
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
            for _ in range(4):
                sock.sendall(b"GET /healthz HTTP/1.1\r\n")
                eventually(lambda: clock.has_come(b"HTTP/1.1\r\n"))
                clock.move(6)
                sock.sendall(b"Host: localhost\r\n\r\n")
                assert sock.recv(4_000).startswith(b"HTTP/1.1 200")


def test_connections_are_bounded(small: Served) -> None:
    service = small[1]
    made = [socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in range(9)]
    ends = 0
    for sock in made:
        try:
            ends += sock.recv(1) == b""
        except ConnectionError:
            ends += 1
        sock.close()
    assert ends == 9


def test_a_client_that_vanishes_in_a_scan_leaves_nothing_behind(tmp_path: Path) -> None:
    limits = replace(Limits(), body_timeout_s=0.3)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, _):
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db["t"].upsert(pa.table({"id": range(40_000), "v": ["x" * 500] * 40_000}))
        request = b"POST /v1/table/t/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        gone, stuck = (socket.create_connection(("127.0.0.1", service.port)) for _ in range(2))
        for sock in (gone, stuck):
            sock.sendall(request)
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        gone.close()
        eventually(
            lambda: not service.http.thread.server_state.tasks
        )  # also of the one that is stuck
        stuck.close()
        rest = Rest(service)
        assert rest.post("/v1/table/t/count_rows", {}).json == 40_000
        rest.close()


@contextlib.contextmanager
def half_sent(service: RestServer, path: str, size: int, sent: int) -> Iterator[socket.socket]:
    """Have a request inside of which the rest never comes."""
    before = service.pipeline.bodies.nbytes
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        sock.sendall(head.encode() + b" " * sent)
        eventually(lambda: service.pipeline.bodies.nbytes == before + sent)
        yield sock


def test_all_bodies_together_are_bounded(tmp_path: Path) -> None:
    limits = replace(Limits(), bodies_bytes_max=10_000)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, rest):
        db.create_table("t", {"id": "int64"})
        rows = pa.table({"id": range(500)})
        with half_sent(service, "/v1/table/t/insert", 9_000, 8_000):
            assert rest.post("/v1/table/t/insert", rows).code == (429, 21)
            assert rest.post("/v1/table/t/count_rows", {}).json == 0
        eventually(lambda: service.pipeline.bodies.nbytes == 0)
        assert rest.post("/v1/table/t/insert", rows).status == 200


def test_requests_at_once_are_bounded_but_for_commits_of_versions(tmp_path: Path) -> None:
    limits = replace(Limits(), requests_max=2)
    with rest_of(tmp_path / "shop", limits=limits) as (_, service, rest):
        with contextlib.ExitStack() as inside:
            for _ in range(2):
                inside.enter_context(half_sent(service, "/v1/table/t/insert", 9, 1))
            assert rest.get("/v1/status").code == (429, 21)
            # Its clients would take a refusal for a lost commit: it is answered.
            assert rest.post("/v1/table/t/version/create", {}).status in {400, 404}
        eventually(lambda: service.pipeline.counters.inside == 0)
        assert rest.get("/v1/status").status == 200


def test_jobs_are_bounded_and_so_is_what_is_remembered_of_them(tmp_path: Path) -> None:
    with rest_of(tmp_path / "none", limits=replace(Limits(), jobs_max=0)) as (_, _, rest):
        assert rest.post("/v1/checkpoint", {}).code == (429, 21)
    with rest_of(tmp_path / "few", limits=replace(Limits(), finished_jobs_max=2)) as found:
        _, service, rest = found
        for _ in range(5):
            assert rest.post("/v1/checkpoint", {}).status == 202
            eventually(lambda: service.jobs.open == 0)
        assert len(rest.get("/v1/jobs").json["jobs"]) == 3  # two that ended before the last began


def test_ended_transactions_are_forgotten_the_oldest_first(tmp_path: Path) -> None:
    limits = replace(Limits(), ended_transactions_max=2)
    with rest_of(tmp_path / "shop", limits=limits) as (_, _, rest):
        keys = [rest.post("/v1/transaction/begin").json["id"] for _ in range(3)]
        for key in keys:
            assert rest.post(f"/v1/transaction/{key}/rollback").status == 200
        told = [rest.post(f"/v1/transaction/{key}/describe").status for key in keys]
        assert told == [404, 200, 200]


def test_a_head_that_never_ends_is_refused(tmp_path: Path) -> None:
    limits = replace(Limits(), header_bytes_max=4_000)
    with rest_of(tmp_path / "shop", limits=limits) as (_, service, rest):
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * 5_000)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while piece := sock.recv(4_000):
                    answer += piece
            assert answer.startswith(b"HTTP/1.1 400")
        assert rest.get("/healthz").status == 200


def test_what_a_statement_holds_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    limits = replace(Limits(), collected_bytes_max=10_000)
    with rest_of(tmp_path / "shop", limits=limits) as (db, _, rest):
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db["t"].upsert([{"id": n, "v": "x" * 1_000} for n in range(20)])
        grown = {"updates": [["v", "upper(v)"]]}
        assert rest.post("/v1/table/t/update", grown).code == (400, 13)
        assert rest.post("/v1/table/t/update", {**grown, "predicate": "id < 5"}).status == 200


# time


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[Served]:
    """A server that gives no statement any time."""
    limits = replace(Limits(), statement_timeout_s=0.0)
    with rest_of(tmp_path / "shop", limits=limits) as found:
        db = found[0]
        for name, key in (("keyed", "id"), ("plain", None)):
            db.create_table(name, {"id": "int64", "v": "string"}, primary_key=key)
        rows = pa.table({"id": range(100), "v": ["x"] * 100})
        db["keyed"].upsert(rows)
        db["plain"].append(rows)
        db.checkpoint()
        db.merge()
        yield found


def test_a_statement_that_takes_too_long_is_given_up_and_changes_nothing(hurried: Served) -> None:
    db, _, rest = hurried
    seq = db.seq
    for name in ("keyed", "plain"):
        at = f"/v1/table/{name}"
        for verb, body in (
            ("query", {"filter": "v = 'y'"}),
            ("count_rows", {"predicate": "v = 'y'"}),
            ("update", {"updates": [["v", "'z'"]]}),
            ("delete", {"predicate": "v = 'x'"}),
            ("insert", pa.table({"id": [1_000], "v": ["new"]})),
        ):
            refused = rest.post(f"{at}/{verb}", body)
            assert refused.code == (400, 13), (name, verb)
            assert "longer than 0 s" in refused.json["error"]
    assert db.seq == seq
    assert db["keyed"].count() == db["plain"].count() == 100  # not by a request: it has the time


def test_a_commit_and_maintenance_are_never_given_up(hurried: Served) -> None:
    db, service, rest = hurried
    key = rest.post("/v1/transaction/begin").json["id"]
    row = pa.table({"id": [1_000], "v": ["new"]})
    inside = rest.post("/v1/table/plain/insert", row, x_siltstone_txn=key)
    assert inside.status == 200, inside.body
    assert rest.post(f"/v1/transaction/{key}/commit").status == 200
    assert db["plain"].count() == 101
    job = rest.post("/v1/optimize", {}).json["id"]
    eventually(lambda: service.jobs.open == 0)
    assert rest.get(f"/v1/jobs/{job}").json["status"] == "succeeded"


def test_an_answer_that_takes_too_long_is_cut_off_not_shortened(tmp_path: Path) -> None:
    limits = replace(Limits(), answer_timeout_s=0.0)
    with rest_of(tmp_path / "shop", limits=limits) as (db, _, rest):
        db.create_table("t", {"id": "int64", "v": "string"})
        db["t"].append(pa.table({"id": range(20_000), "v": ["x" * 200] * 20_000}))
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            rest.post("/v1/table/t/scan", {})
        assert rest.post("/v1/table/t/count_rows", {}).json == 20_000


def test_many_slow_clients_leave_room_for_a_fast_one(tmp_path: Path) -> None:
    limits = replace(Limits(), threads=4)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, rest):
        db.create_table("t", {"id": "int64", "v": "string"})
        db["t"].append(pa.table({"id": range(40_000), "v": ["x" * 500] * 40_000}))
        request = b"POST /v1/table/t/scan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        with contextlib.ExitStack() as slow:
            for _ in range(12):  # more than there are threads; each reads 100 bytes of 20 MB
                sock = socket.create_connection(("127.0.0.1", service.port), timeout=30)
                slow.enter_context(sock).sendall(request)
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
            assert rest.post("/v1/table/t/count_rows", {}).json == 40_000
        eventually(lambda: not service.http.thread.server_state.tasks)


def test_every_limit_is_named_by_a_test() -> None:
    here = Path(__file__)
    text = here.read_text() + here.with_name("test_rest_transactions.py").read_text()
    text += here.with_name("test_statements.py").read_text()
    text += here.with_name("test_shipped_commits.py").read_text()
    unnamed = [field.name for field in fields(Limits) if f"{field.name}=" not in text]
    assert unnamed == ["graceful_s"]  # of a stop, not of a request: see test_rest_house
