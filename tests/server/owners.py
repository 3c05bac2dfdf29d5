"""An owner in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_OWNER = """
import sys
import siltstone as st

with st.connect(sys.argv[1], segment_bytes=65536, background=False) as db:
    if "t" not in db.tables():
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
    print(db.serve_local(), flush=True)
    sys.stdin.read()
"""


@dataclass
class Owner:
    process: subprocess.Popen[str]
    address: Path

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0


@contextmanager
def owner_of(path: Path) -> Iterator[Owner]:
    """Yield a process that owns and serves the store; killed at the end if it still lives."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Owner(process, Path(process.stdout.readline().strip()))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
