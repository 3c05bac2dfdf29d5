"""Stores for the tests on Spark: rows in every level, and owners in other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import siltstone as st

SCHEMA = {"id": "int64", "name": "string", "v": "float64"}


def fill(db: st.Store) -> None:
    """Rows in base, in history above it, in sealed and in active memtables; some of them hidden."""
    t = db.create_table("t", SCHEMA, primary_key="id")
    events = db.create_table("events", {"n": "int64"})
    db.create_table("empty", SCHEMA, primary_key="id")
    t.upsert([{"id": n, "name": f"base {n}", "v": n / 4} for n in range(200)])
    events.append([{"n": 1}, {"n": 2}, {"n": 3}])
    db.checkpoint()
    db.merge()
    t.upsert([{"id": n, "name": f"history {n}", "v": None} for n in range(50, 90)])
    t.delete(list(range(10)))
    db.checkpoint()
    db.tag("audit")
    t.upsert([{"id": n, "name": f"log {n}", "v": float("nan")} for n in range(80, 220)])
    t.delete([5, 55, 105, 205])
    t.insert({"id": 5, "name": "again", "v": 0.5})
    events.append([{"n": 4}])


_OWNER = """
import sys
import siltstone as st
from tests.spark.stores import fill

with st.connect(sys.argv[1], background=False, segment_bytes=65536) as db:
    if "fill" in sys.argv:
        fill(db)
    if "serve" in sys.argv:
        db.serve_local()
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner(path: Path, *what: str) -> Iterator[subprocess.Popen[str]]:
    """Own the store in another process, for as long as the block lasts."""
    command = [sys.executable, "-c", _OWNER, str(path), *what]
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.communicate("", timeout=60)
