"""Sockets that ask nothing keep nobody out, and the health of a full server can be asked for."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from pathlib import Path

from siltstone.server.rest.limits import Limits
from tests.server.rest import rest_of

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
COUNT = (
    b"POST /v1/table/t/count_rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\n\r\n{}"
)


def connected(stack: contextlib.ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


def test_idle_sockets_above_the_bound_keep_no_client_out(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, service, rest), contextlib.ExitStack() as stack:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        idle = [connected(stack, service.port) for _ in range(600)]
        for half in idle[::2]:
            with contextlib.suppress(ConnectionError):
                half.sendall(b"GET /healthz HT")
        for _ in range(3):
            client = connected(stack, service.port)
            client.sendall(HEALTH)
            assert client.recv(4_000).startswith(b"HTTP/1.1 200")
        assert rest.post("/v1/table/t/count_rows", {}).json == 0
        newest = idle[-1]  # the oldest ones are cut
        newest.sendall(HEALTH)
        assert newest.recv(4_000).startswith(b"HTTP/1.1 200")


def test_the_health_of_a_server_that_is_full_of_clients_can_be_asked_for(tmp_path: Path) -> None:
    limits = replace(Limits(), connections_max=4)
    with rest_of(tmp_path / "shop", limits=limits) as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        with contextlib.ExitStack() as stack:
            clients = [connected(stack, service.port) for _ in range(4)]
            for client in clients:
                client.sendall(COUNT)
                assert client.recv(4_000).startswith(b"HTTP/1.1 200")
            for _ in range(3):
                probe = connected(stack, service.port)
                probe.sendall(HEALTH)
                assert probe.recv(4_000).startswith(b"HTTP/1.1 200")
            other = connected(stack, service.port)
            other.sendall(COUNT)
            answer = other.recv(4_000)
            assert answer.startswith(b"HTTP/1.1 429")
            assert b"4 connections are open" in answer
            assert other.recv(4_000) == b""
            for client in clients:  # none of them was cut
                client.sendall(COUNT)
                assert client.recv(4_000).startswith(b"HTTP/1.1 200")
