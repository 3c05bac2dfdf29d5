"""Gate: a proxy that lets no large range of a data file through before so many are under way."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from tests.support.forwarding import Forwarding

LARGE = 256 << 10
GIVEN_UP_S = 30.0
"""A gate that never opens is opened, so that a test that fails ends."""
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Gate:
    """Counts the large ranges that are under way, and opens for good when `wanted` are.

    `_changed` guards what it has.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted, self._changed = wanted, threading.Condition()
        self._under_way = self.most = 0
        self._is_open = False

    @contextmanager
    def passed(self) -> Generator[None]:
        """Count one request, and wait for the others."""
        with self._changed:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self._changed.notify_all()
            self._changed.wait_for(self._opens, GIVEN_UP_S)
            self._is_open = True
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1

    def _opens(self) -> bool:
        return self._is_open or self.most >= self._wanted


@contextmanager
def gated(endpoint: str, gate: Gate) -> Generator[str]:
    """Serve a server of this machine behind a gate until the block ends; return the endpoint."""
    port = re.search(r":(\d+)", endpoint.removeprefix("http:"))
    assert port is not None

    class Handler(Forwarding):
        target = int(port[1])

        def forward(self) -> None:
            asked = _RANGE.match(self.headers.get("x-ms-range") or self.headers.get("Range", ""))
            size = 1 + int(asked[2]) - int(asked[1]) if asked else 0
            if size < LARGE or ".lance" not in self.path:
                super().forward()
                return
            with gate.passed():
                super().forward()

        do_GET = forward  # noqa: N815 - as http.server wants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield endpoint.replace(port[0], f":{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
