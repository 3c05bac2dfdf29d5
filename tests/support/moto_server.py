"""A server of moto that answers one request after another.

python tests/support/moto_server.py <port>

Its own command has a thread for each request, and no lock: of puts that want to be the first at a
key, two may be told that they were.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(port: str) -> None:
    """Serve until it is killed."""
    app: Any = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with one_at_a_time:
            return app(environ, start)

    run_simple("127.0.0.1", int(port), serve, threaded=True)


if __name__ == "__main__":
    main(sys.argv[1])
