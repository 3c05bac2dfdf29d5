"""A server begins in time or is given up, with its thread and its address; a fork has neither."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import uvicorn

import siltstone as st
from siltstone.joined.address import address_of
from siltstone.server.http import connections
from siltstone.server.http import server as http_server
from tests.server.stores import opened


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that begin only when they are given up."""
    begin = uvicorn.Server.startup

    async def late(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        while not server.should_exit:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.001)
        await begin(server, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", late)
    monkeypatch.setattr(http_server, "START_TIMEOUT_S", 0.05)


def serving_threads() -> set[threading.Thread]:
    """Return the threads that serve, also those of stores that other tests keep open."""
    names = {"siltstone-rest", "siltstone-endpoint"}
    return {thread for thread in threading.enumerate() if thread.name in names}


@pytest.mark.usefixtures("slow")
@pytest.mark.timeout(30)
def test_a_service_that_is_slow_to_begin_is_given_up(tmp_path: Path) -> None:
    before = serving_threads()
    with opened(tmp_path / "shop") as db:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(st.UnavailableError, match="did not begin to answer"):
            db.serve(port=port)
        assert serving_threads() <= before
        with socket.create_server(("127.0.0.1", port)):
            assert db.tables() == []


@pytest.mark.usefixtures("slow")
@pytest.mark.timeout(30)
def test_an_endpoint_that_is_slow_to_begin_is_given_up(tmp_path: Path) -> None:
    before = serving_threads()
    with opened(tmp_path / "shop") as db:
        with pytest.raises(st.UnavailableError, match="did not begin to answer"):
            db.serve_local()
        assert serving_threads() <= before
        assert not address_of(db._parts.site.files.identity(db.path)).exists()
        assert db.tables() == []


def test_an_answer_in_pieces_does_not_wait_for_the_clients_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second piece waits for up to 40 ms, the delay of an acknowledgement (RFC 896)."""
    accepted: list[socket.socket] = []
    monkeypatch.setattr(connections, "keep_alive", accepted.append)
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0)
        with socket.create_connection(("127.0.0.1", service.port)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            (sock,) = accepted
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_as_the_server_closes_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Else its client waits until the socket is collected; a loop makes it some turns later."""
    clients: list[socket.socket] = []
    wait = http_server.ServerThread.main_loop

    async def with_a_late_client(thread: http_server.ServerThread) -> None:
        await wait(thread)
        listening = [each for server in thread.servers for each in server.sockets]
        clients.extend(
            socket.create_connection(each.getsockname())
            for each in listening
            if each.family == socket.AF_INET
        )
        for _ in range(turns):
            await asyncio.sleep(0)

    monkeypatch.setattr(http_server.ServerThread, "main_loop", with_a_late_client)
    with opened(tmp_path / "shop") as db:
        db.serve(port=0).close()
        (client,) = clients
        with client:
            client.settimeout(0)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""


FORKED = """
import os, sys, siltstone as st
db = st.connect(sys.argv[1], background=False, segment_bytes=65536)
print(db.serve(port=0).port, flush=True)
sys.stdin.readline()
if not os.fork():
    os.close(1)
    sys.stdin.read()
    os._exit(0)
os._exit(0)
"""


def test_a_forked_child_of_a_server_does_not_hold_its_sockets(tmp_path: Path) -> None:
    """Else a client would wait on a connection that nobody serves any more."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "shop")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = ("127.0.0.1", int(process.stdout.readline()))
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(4_096).startswith(b"HTTP/1.1 200")
            print(file=process.stdin, flush=True)  # the child outlives its parent
            assert process.wait(60) == 0
            assert client.recv(4_096) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=10)
    finally:
        process.kill()
        process.stdin.close()  # the grandchild ends
        process.stdout.close()
