"""Forwarding: what proxies of tests have in common: a request goes on to a port of this machine.

Each connection has a thread, and serves one request after the other, over HTTP/1.1.
"""

from __future__ import annotations

import http.client
from http.server import BaseHTTPRequestHandler


class Forwarding(BaseHTTPRequestHandler):
    """Classes below it say where to, and which headers, in small letters, are left out."""

    protocol_version = "HTTP/1.1"
    target = 0
    dropped: frozenset[str] = frozenset()

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {
            name: text for name, text in self.headers.items() if name.lower() not in self.dropped
        }
        server = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        server.request(self.command, self.path, body or None, headers)
        answer = server.getresponse()
        data = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, text in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, text)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        self.wfile.write(data)
        server.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 - as http.server wants

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server wants
        """Say nothing."""
