"""A finalizer that reads may run wherever something is allocated, also amid a commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DELETED = """
import faulthandler, gc, sys
faulthandler.dump_traceback_later(20, exit=True)
import siltstone as st
from siltstone.storage.wal.wal import Wal

with st.connect(sys.argv[1], background=False) as db:
    t = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")

    class Cached:
        def __init__(self):
            self.itself = self

        def __del__(self):
            t.get(1)

    tell = Wal.tell

    def told(self):
        gc.collect()  # as any allocation may
        tell(self)

    Wal.tell = told
    Cached()
    t.upsert({"id": 1, "v": 1})
"""


def test_a_finalizer_that_reads_may_run_while_mark_is_written(tmp_path: Path) -> None:
    """It waits for the lock that its own thread holds, and with it all reads and commits."""
    command = [sys.executable, "-c", _DELETED, str(tmp_path / "shop")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-1500:]
