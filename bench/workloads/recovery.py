"""W8: 1 M upserts lie in the log, kill -9, then the time to reopen and read one row.

A child process writes them in transactions of 1,000 rows and is killed once all are acknowledged.
The keys come shuffled, as everywhere here; in ascending order SQLite would log few pages, and be
back in 0.02 s.
Each round recovers a copy of what it left behind, so that all rounds see the same log.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from bench.measure import sync_tree, timed
from bench.peer import find
from bench.workload import Metrics, Place

_ROWS = 1_000_000


class Recovery:
    name = "W8"
    title = "recovery of a full log, s"

    def prepare(self, peer: Place) -> None:
        rows = peer.sizes.rows(_ROWS)
        command = [
            sys.executable,
            "-m",
            "bench.child",
            "fill",
            peer.name,
            str(peer.path),
            str(rows),
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = child.stdout.readline() if child.stdout else ""
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()
        if line.strip() != "acknowledged":
            message = f"the child of {peer.name} ended before its last commit"
            raise RuntimeError(message)

    def measure(self, peer: Place, turn: int) -> Metrics:
        copy = peer.path.with_name(f"{peer.path.name}-copy-{turn}")
        shutil.copytree(peer.path, copy)
        sync_tree(copy)  # else its writing back would be timed
        store = None

        def reopen() -> None:
            nonlocal store
            store = find(peer.name)(copy, keep_log=True)
            if not store.get(peer.sizes.rows(_ROWS) - 1):
                message = f"{peer.name} lost an acknowledged row"
                raise LookupError(message)

        seconds = timed(reopen)
        if store is not None:
            store.close()
        shutil.rmtree(copy)
        return {"seconds": seconds}
