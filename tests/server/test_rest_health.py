"""Health and readiness are answered by the event loop, whatever all other requests wait for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of
from tests.server.stores import eventually


@contextlib.contextmanager
def all_threads_busy(service: RestServer) -> Iterator[None]:
    """Have every thread of the server wait, and more work behind that."""
    executor, is_over = service.pipeline.executor, threading.Event()
    begun = threading.Barrier(executor._max_workers + 1)

    def wait() -> None:
        begun.wait(30)
        is_over.wait(30)

    waits = [executor.submit(wait) for _ in range(executor._max_workers)]
    waits += [executor.submit(is_over.wait, 30) for _ in range(8)]
    try:
        begun.wait(30)
        yield
    finally:
        is_over.set()
        for each in waits:
            each.result()


@pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "ready")])
def test_health_is_answered_while_no_thread_is_free_and_no_request_fits(
    tmp_path: Path, path: str, status: str
) -> None:
    with rest_of(tmp_path / "shop", limits=replace(Limits(), threads=2)) as (_, service, rest):
        with all_threads_busy(service):
            assert rest.get(path).json == {"status": status}
            service.pipeline.counters.inside += service.pipeline.policy.requests_max
            assert rest.get(path).json == {"status": status}
            assert rest.get("/v1/status").code == (429, 21)
            service.pipeline.counters.inside -= service.pipeline.policy.requests_max
        assert rest.get("/v1/status").status == 200


def test_readiness_is_no_more_while_the_server_closes(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (_, service, rest):
        service.pipeline.is_closing = True
        assert rest.get("/healthz").status == 200
        assert rest.get("/readyz").code == (503, 17)
        service.pipeline.is_closing = False


def test_a_question_for_health_has_no_body(tmp_path: Path) -> None:
    """What follows one that was not read could not be told from the next request."""
    with rest_of(tmp_path / "shop") as (_, service, _):
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            answer = b""
            while piece := sock.recv(4_000):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200")
        eventually(lambda: not service.http.thread.server_state.tasks)
        client = Rest(service)
        assert client.get("/healthz").status == 200
        client.close()
