"""A client of /v1/joined costs the server no more than `Limits` says, however slow it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from tests.query.test_sql import LONG
from tests.server.rest import rest_of
from tests.server.stores import asking, eventually, joined_to, opened

BODY_BYTES_MAX = 10_000
ALMOST_ALL = b" " * (BODY_BYTES_MAX - 1)


@contextmanager
def begun(service: RestServer, size: int, body: bytes = b"") -> Iterator[socket.socket]:
    """Have a request inside of whose body no more than `body` comes."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/joined/tables HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n" % size
        )
        assert sock.recv(4_096).startswith(b"HTTP/1.1 100")  # the server waits for the body
        sock.sendall(body)
        yield sock


def test_bodies_that_are_announced_and_do_not_come_take_no_room(tmp_path: Path) -> None:
    limits = replace(Limits(), body_bytes_max=BODY_BYTES_MAX)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, _), ExitStack() as inside:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        remote = inside.enter_context(st.connect(service.url))
        for _ in range(4):
            inside.enter_context(begun(service, BODY_BYTES_MAX))
        remote["t"].upsert({"id": 1})
        assert remote["t"].count() == 1


def test_a_client_that_sends_nothing_of_a_body_is_cut_off(tmp_path: Path) -> None:
    limits = replace(Limits(), body_timeout_s=0.2)
    with rest_of(tmp_path / "shop", limits=limits) as (_, service, _):
        with begun(service, 9, b"{") as sock:
            answer = b""
            while piece := sock.recv(4_096):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"nothing of the body came for 0.2 s" in answer
        assert service.joined.bodies.nbytes == 0


def test_a_transaction_goes_on_after_there_was_no_room_for_a_body(tmp_path: Path) -> None:
    limits = replace(Limits(), body_bytes_max=BODY_BYTES_MAX)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        with st.connect(service.url) as remote, remote.transaction() as tx:
            table = tx["t"]
            with ExitStack() as inside:
                for _ in range(4):
                    inside.enter_context(begun(service, BODY_BYTES_MAX, ALMOST_ALL))
                eventually(lambda: service.joined.bodies.nbytes >= 4 * len(ALMOST_ALL))
                with pytest.raises(st.BusyError, match="try again later"):
                    table.upsert({"id": 1})
            eventually(lambda: service.joined.bodies.nbytes == 0)
            table.upsert({"id": 1})
        assert db["t"].count() == 1


# time


def test_a_read_that_takes_too_long_is_given_up_and_what_writes_is_not(tmp_path: Path) -> None:
    limits = replace(Limits(), statement_timeout_s=0.0)
    with (
        rest_of(tmp_path / "shop", limits=limits) as (db, service, _),
        st.connect(service.url) as remote,
    ):
        remote.create_table("t", {"id": "int64", "v": "int64"}, "id")
        remote["t"].upsert(pa.table({"id": range(100), "v": range(100)}))
        remote.checkpoint()
        remote.merge()
        for read in (
            lambda: remote["t"].count("v = 7"),
            lambda: remote["t"].scan(filter="v = 7").read_all(),
            lambda: remote.sql("SELECT sum(v) FROM t"),
        ):
            with pytest.raises(st.RequestError, match="longer than 0 s"):
                read()
        with remote.transaction() as tx:
            assert tx["t"].delete_where("v = 7") == 1
            with pytest.raises(st.RequestError, match="longer than 0 s"):
                tx["t"].count("v = 8")
        remote.optimize()
        assert db["t"].count() == 99


def test_a_statement_that_does_not_end_is_ended(tmp_path: Path) -> None:
    limits = replace(Limits(), statement_timeout_s=0.2)
    with (
        rest_of(tmp_path / "shop", limits=limits) as (_, service, _),
        st.connect(service.url) as remote,
    ):
        with pytest.raises(st.RequestError, match=r"longer than 0\.2 s"):
            remote.sql(LONG)
        assert service.joined.counters.inside == 0


@asking
@pytest.mark.parametrize("kind", ["service", "endpoint"])
def test_closing_the_store_ends_the_statements_that_run(tmp_path: Path, kind: str) -> None:
    ended: list[type[BaseException]] = []

    def ask(joined: st.Store) -> None:
        with pytest.raises(st.SiltstoneError) as caught:
            joined.sql(LONG)
        ended.append(caught.type)

    with opened(tmp_path / "shop") as db:
        if kind == "service":
            joining = st.connect(db.serve(port=0).url)
            pipeline = db._parts.service.joined
        else:
            joining = joined_to(db)
            pipeline = db._parts.endpoint.pipeline
        with joining as joined:
            joined.sql("SELECT 1")  # DuckDB is imported
            asking = threading.Thread(target=ask, args=(joined,))
            asking.start()
            eventually(lambda: pipeline.counters.inside == 1)
            db.close()
            asking.join()
    assert ended == [st.UnavailableError]  # the one who asked has not closed its handle
