"""A proxy that drops the conditions of requests, as some servers ignore them.

    python -m tests.support.forgetful_proxy PORT TARGET_PORT

It serves one request after the other on each connection, over HTTP/1.1.
"""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer

from tests.support.forwarding import Forwarding


class _Handler(Forwarding):
    dropped = frozenset({"if-none-match", "if-match"})


def main() -> None:
    port, _Handler.target = map(int, sys.argv[1:3])
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
