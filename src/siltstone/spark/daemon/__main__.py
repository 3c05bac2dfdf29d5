"""`python -m siltstone.spark.daemon SOCKET JSON`: one line on stdout, then it serves.

JSON        {"jar": identity, "roots": [..], "memory": bytes}
the line    {"identity": identity}; or {"error": .., "kind": ..}, and it ends
stdin       nothing; at its end, that of the JVM, this process ends, and the socket's folder
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from siltstone.errors import SiltstoneError
from siltstone.local.store import warm_up
from siltstone.spark.catalog.identity import Identity, here
from siltstone.spark.daemon.regions import MEMORY_BYTES, MemoryBudget
from siltstone.spark.daemon.roots import Roots
from siltstone.spark.daemon.serving import CatalogServer


class DaemonSettings(msgspec.Struct):
    """What the JVM says when it starts this process."""

    jar: Identity
    roots: list[str] = []
    memory: int = MEMORY_BYTES


def main(arguments: Sequence[str]) -> int:
    """Serve a JVM until it ends."""
    path, given = arguments
    # Ctrl-C in a notebook goes to all processes of the terminal, and ends a query, not this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        settings = msgspec.json.decode(given, type=DaemonSettings)
        here().require(settings.jar)
        server = CatalogServer(Roots(settings.roots), MemoryBudget(settings.memory))
        listening = server.listen(path)
    except SiltstoneError as error:
        _say({"error": str(error), "kind": type(error).__name__})
        return 1
    threading.Thread(target=_end_with_stdin, args=(path,), daemon=True).start()
    # Else the first plan takes so much longer.
    threading.Thread(target=warm_up, daemon=True).start()
    _say({"identity": here()})
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads what else is printed
    server.serve(listening)
    return 0


def _say(line: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _end_with_stdin(path: str) -> None:
    while sys.stdin.buffer.read(1):
        pass
    shutil.rmtree(Path(path).parent, ignore_errors=True)
    os._exit(0)  # threads serve until then


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
