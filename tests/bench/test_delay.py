"""The proxy of the bench passes requests and answers on as they are, and counts the requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.reach.lake import Door, proxied
from tests.support.bucket_servers import RunningServer, free_ports


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server that answers with the body, the last byte first."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("added_ms", [0, 5])
def test_bodies_of_any_size_pass_and_each_request_counts_once(port: int, added_ms: int) -> None:
    (listen,) = free_ports(1)
    with proxied(listen, port, added_ms) as proxy:
        door = Door(added_ms, f"http://127.0.0.1:{listen}", RunningServer("echo", "", ""), proxy)
        client = http.client.HTTPConnection("127.0.0.1", listen, timeout=60)
        for count, size in enumerate((0, 1, 100_000, 3_000_000)):
            body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert door.requests() == count
            client.request("PUT", "/some/key", body)
            assert client.getresponse().read() == body[::-1]
        assert door.requests() == 4
        client.close()
