"""Whatever a client does, at whichever door: what it costs is bounded, and it gets an answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.server.doors import DOORS, HTTP_DOORS, Door, Wire, door_of
from tests.server.stores import eventually


@pytest.fixture(params=DOORS)
def door(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Door]:
    with door_of(request.param, tmp_path / "shop") as found:
        yield found


http_alone = pytest.mark.parametrize("door", HTTP_DOORS, indirect=True)
"""Of what only HTTP has; `test_frames` has the same of frames."""


def with_rows(door: Door) -> Door:
    for first in range(0, 40_000, 5_000):
        ids = range(first, first + 5_000)
        door.db["t"].upsert(pa.table({"id": ids, "v": ["x" * 500] * 5_000}))
    return door


# bodies


def test_a_client_that_sends_nothing_of_a_body_is_cut_off(door: Door) -> None:
    door.bound(body_timeout_s=0.2)
    wire = door.wire()
    wire.send("POST", door.reading[0], 9, b"{")
    told = wire.told()
    assert told.status == 400
    assert told.error == "nothing of the body came for 0.2 s"
    assert wire.is_ended
    eventually(door.is_idle)


@http_alone
def test_a_body_that_is_announced_and_does_not_come_takes_no_room(door: Door) -> None:
    door.bound(body_bytes_max=10_000, json_bytes_max=10_000, bodies_bytes_max=10_000)
    for _ in range(4):
        wire = door.wire()
        wire.send("POST", door.reading[0], 10_000, head="Expect: 100-continue\r\n")
        assert wire.sock.recv(4_096).startswith(b"HTTP/1.1 100")  # the server waits for the body
    assert door.pipeline.bodies.nbytes == 0
    assert door.asked().status == 200


def test_all_bodies_together_are_bounded(door: Door) -> None:
    door.bound(bodies_bytes_max=10_000)
    slow = door.wire()
    slow.send("POST", door.reading[0], 9_999, b" " * 9_990)
    eventually(lambda: door.pipeline.bodies.nbytes >= 9_990)
    held = door.pipeline.bodies.nbytes
    wire = door.wire()
    assert door.asked(wire).is_busy
    assert door.pipeline.bodies.nbytes == held
    # A connection that carries a transaction goes on: the body was read, and dropped.
    assert wire.is_ended if door.kind == "rest" else door.asked(wire).is_busy
    slow.sock.close()
    eventually(door.is_idle)
    assert door.asked().status == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(door: Door) -> None:
    door.bound(body_bytes_max=4_000, json_bytes_max=4_000)
    wire = door.wire()
    wire.send("POST", door.reading[0], 4_001)
    told = wire.told()
    assert told.status == (413 if door.kind == "rest" else 400)
    assert "at most 4000 bytes" in told.error
    assert wire.is_ended


@http_alone
def test_a_body_of_unknown_length_is_bounded_or_refused(door: Door) -> None:
    door.bound(body_bytes_max=4_000, json_bytes_max=4_000)
    wire = door.wire()
    head = f"POST {door.reading[0]} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"fff\r\n" + b" " * 0xFFF + b"\r\n"
    wire.sock.sendall(head.encode() + b"\r\n" + chunk)
    told = wire.told()
    expected = "at most 4000 bytes" if door.kind == "rest" else "content-length, not chunks"
    assert expected in told.error
    assert told.headers["connection"] == "close"
    eventually(door.is_idle)


def test_a_client_that_goes_away_in_its_body_leaves_nothing_behind(door: Door) -> None:
    wire = door.wire()
    wire.send("POST", door.reading[0], 100, b"{")
    eventually(lambda: door.pipeline.bodies.nbytes >= 1)
    wire.sock.close()
    eventually(door.is_idle)


# requests


def test_requests_at_once_are_bounded_and_may_be_sent_again(door: Door) -> None:
    usual = door.pipeline.policy.requests_max
    door.bound(requests_max=0)
    wire = door.wire()
    assert door.asked(wire).is_busy
    door.bound(requests_max=usual)
    again = door.wire() if door.kind == "rest" else wire
    assert door.asked(again).status == 200


def test_a_statement_that_takes_too_long_is_given_up(door: Door) -> None:
    door.bound(statement_timeout_s=0.0)
    wire = door.wire()
    told = door.asked(wire)
    assert told.status == 400
    assert "longer than 0 s" in told.error
    door.bound(statement_timeout_s=60.0)
    assert door.asked(wire).status == 200  # the body was read: the connection goes on


def test_an_error_that_nobody_foresaw_is_told_to_this_user_alone(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its words may hold what other users may not know."""

    def fail(*_: object) -> int:
        raise OSError("/home/ada/secret")

    with door.db.snapshot() as past:
        for table in (door.db["t"], past["t"]):
            monkeypatch.setattr(type(table), "count", fail)
    with caplog.at_level(logging.ERROR):
        told = door.asked()
    assert told.status == 500
    assert ("secret" in told.error) == (door.kind == "socket")
    assert "/home/ada/secret" in caplog.text


def test_a_server_that_closes_takes_no_more_requests(door: Door) -> None:
    door.pipeline.is_closing = True
    told = door.asked()
    assert (told.status, told.error) == (503, "the server closes")
    door.pipeline.is_closing = False


@http_alone
def test_an_answer_of_the_turn_in_which_a_server_stops_is_sent(door: Door) -> None:
    """Else a commit would be durable, and its client would not be told."""
    wire = door.wire()
    thread: Any = door.http.thread
    assert door.asked(wire).status == 200
    last = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast"

    async def stopped() -> None:
        connection: Any = next(iter(thread.server_state.connections))
        connection.transport.write(last)
        await thread.shutdown()

    asyncio.run_coroutine_threadsafe(stopped(), thread._loop).result(30)
    assert wire.told().body == b"last"
    assert wire.is_ended


@http_alone
def test_what_is_no_http_is_refused_as_json(door: Door) -> None:
    wire = door.wire()
    wire.sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    told = wire.told()
    assert (told.status, told.error) == (400, "this is no HTTP request: Invalid method encountered")
    assert wire.is_ended


@http_alone
@pytest.mark.parametrize("path", ["reading", "/nothing/at/all"])
def test_a_request_with_two_ways_to_end_is_refused_and_what_follows_it_is_not_read(
    door: Door, path: str
) -> None:
    """A proxy in front may go by the other one: what it takes for a body would be a request."""
    asked, body = door.reading if path == "reading" else (path, b"{}")
    wire = door.wire()
    hidden = f"POST {asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
    head = "Transfer-Encoding: chunked\r\n"
    wire.send("POST", asked, len(body), b"0\r\n\r\n" + hidden, head)
    told = wire.told()
    assert (told.status, told.headers["connection"]) == (400, "close")
    both = "Transfer-Encoding can't be present with Content-Length"
    assert told.error == f"this is no HTTP request: {both}"
    assert wire.is_ended
    assert door.asked().status == 200


@http_alone
def test_a_request_with_two_different_lengths_is_refused(door: Door) -> None:
    wire = door.wire()
    wire.send("POST", door.reading[0], 2, b"{}", "Content-Length: 3\r\n")
    assert wire.told().status == 400
    assert wire.is_ended


@http_alone
def test_a_head_that_never_ends_is_refused(door: Door) -> None:
    wire = door.wire()
    wire.sock.sendall(b"GET /v1/hello HTTP/1.1\r\nX-Long: " + b"x" * 100_000)
    assert wire.told().status == 400
    assert wire.is_ended


@http_alone
@pytest.mark.parametrize(
    "endless", [b"X-Trailer: x\r\n", b"2;note=" + b"x" * 9_000 + b"\r\n{}\r\n"]
)
def test_what_is_no_body_and_never_ends_is_refused(door: Door, endless: bytes) -> None:
    """Trailers, and what may stand beside the length of a chunk: no body, but memory, too."""
    wire = door.wire()
    head = (
        f"POST {door.reading[0]} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    start = b"2\r\n{}\r\n0\r\n" if endless.startswith(b"X") else b""
    wire.sock.sendall(head.encode() + start)
    with suppress(ConnectionError):
        wire.sock.sendall(endless * (400_000 // len(endless)))
    assert wire.told().status == 400
    assert wire.is_ended


@http_alone
def test_a_body_in_chunks_of_one_byte_is_read(door: Door) -> None:
    asked, body = door.reading
    body += b" " * 60_000
    wire = door.wire()
    head = f"POST {asked} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    wire.sock.sendall(head.encode() + chunks + b"0\r\n\r\n")
    told = wire.told()
    if door.kind == "rest":
        assert told.status == 200
    else:  # which take no chunks, and do not take them for a long head
        assert (told.status, "not chunks" in told.error) == (400, True)


@http_alone
def test_many_requests_in_one_write_are_all_answered(door: Door) -> None:
    wire = door.wire()
    asked, body = door.reading
    head = f"POST {asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    many = 300
    request = head.encode() + b"X-Pad: " + b"x" * 1_000 + b"\r\n\r\n" + body
    sender = threading.Thread(target=wire.sock.sendall, args=[request * many])
    sender.start()
    answers = b""
    while answers.count(b"HTTP/1.1 200") < many:
        answers += wire.sock.recv(1 << 20)
    assert answers.count(b"HTTP/1.1 ") == many
    sender.join()


@http_alone
@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing/at/all", 404), ("PUT", "/changes", 405)]
)
def test_what_has_no_route_is_refused_in_words_with_and_without_a_slash(
    door: Door, method: str, path: str, status: int
) -> None:
    for end in ("", "/"):
        wire = door.wire()
        wire.send(method, f"{door.prefix}{path}{end}", 0)
        told = wire.told()
        assert told.status == status
        assert "the routes are those of" in told.error


# answers


def test_a_client_that_vanishes_or_stops_reading_leaves_nothing_behind(door: Door) -> None:
    with_rows(door).bound(send_timeout_s=0.3)
    path, body = door.scanning
    gone, stuck = door.wire(), door.wire()
    for wire in (gone, stuck):
        wire.send("POST", path, len(body), body)
        assert is_begun(wire)
    gone.sock.close()
    eventually(door.is_idle)  # also of the one that is stuck
    assert door.asked().status == 200


def test_clients_that_read_slowly_leave_room_for_others(door: Door) -> None:
    path, body = with_rows(door).scanning
    for _ in range(40):  # more than there are threads; each reads 100 bytes of 20 MB
        wire = door.wire()
        wire.send("POST", path, len(body), body)
        assert is_begun(wire)
    assert door.asked().status == 200
    for sock in door.made:
        sock.close()
    eventually(door.is_idle)


def test_a_stream_that_fails_before_its_first_rows_is_an_answer(door: Door) -> None:
    with_rows(door).bound(statement_timeout_s=0.0)
    path, body = door.scanning
    wire = door.wire()
    wire.send("POST", path, len(body), body)
    told = wire.told()
    assert told.status == 400
    assert "longer than 0 s" in told.error


def test_a_closing_server_ends_the_streams_that_run(door: Door) -> None:
    """REST cuts them off; the words of a joined process have an end that says why."""
    path, body = with_rows(door).scanning
    wire = door.wire()
    wire.send("POST", path, len(body), body)
    assert is_begun(wire)
    door.pipeline.is_closing = True
    rest = bytearray()
    while b"siltstone.error" not in rest and (piece := _received(wire)):
        rest += piece
    assert (b"siltstone.error" in rest) == (door.kind != "rest")
    door.pipeline.is_closing = False


def is_begun(wire: Wire) -> bool:
    """Say whether the first bytes of an answer of rows came."""
    first = wire.sock.recv(100)
    return first.startswith(b"HTTP/1.1 200") or first[4:6] == (200).to_bytes(2, "little")


def _received(wire: Wire) -> bytes:
    try:
        return wire.sock.recv(1 << 16)
    except ConnectionError:
        return b""
