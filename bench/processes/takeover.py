"""Take-over: the owner is killed; how long until a worker, which has read, has committed a row.

python -m bench.processes.takeover own PATH BATCHES ROWS    writes so many commits, of so many rows
python -m bench.processes.takeover follow PATH COPY         takes the store over, prints seconds

Nothing is flushed. The worker connects again, commits a row, and then does the same with a copy of
the directory, which it has not followed: an ordinary open, in the same process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

import siltstone as st
from bench.workload import Metrics, Place

_MODULE = "bench.processes.takeover"
_ROWS, _BATCH_ROWS, _COMMITS = 1_000_000, 10_000, 100_000
_SETTLED_S = 3.0
"""After that a worker has imported what it serves with."""


def measure(place: Place, turn: int) -> Metrics:
    """Return the seconds after a million rows in batches, and after 100,000 commits of one."""
    rows, commits = place.sizes.rows(_ROWS, _BATCH_ROWS), place.sizes.rows(_COMMITS)
    batches = _taken(place.another(f"batches-{turn}"), rows // _BATCH_ROWS, _BATCH_ROWS)
    single = _taken(place.another(f"rows-{turn}"), commits, 1)
    return {
        "take-over s": max(batches["warm"], single["warm"]),
        "take-over s, batches": batches["warm"],
        "take-over s, rows": single["warm"],
        "ordinary open s, batches": batches["cold"],
        "ordinary open s, rows": single["cold"],
    }


def _taken(place: Place, batches: int, rows: int) -> dict[str, float]:
    copy = place.another("copy")
    owner = _started(["own", str(place.path), str(batches), str(rows)])
    worker = _started(["follow", str(place.path), str(copy.path)])
    try:
        owner.kill()
        owner.wait()
        shutil.copytree(place.path, copy.path, symlinks=True)
        found: dict[str, float] = json.loads(worker.communicate("\n")[0])
    finally:
        for process in (owner, worker):
            process.kill()
            process.communicate()
        copy.remove()
        place.remove()
    return found


def _started(given: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", _MODULE, *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", given
    return process


def _own(path: Path, batches: int, rows: int) -> None:
    """Write, synced at the end; nothing of it is flushed."""
    db = st.connect(path, background=False)
    table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    for first in range(0, batches * rows, rows):
        with db.transaction(durability="async") as tx:
            if rows == 1:
                tx["t"].upsert({"id": first, "v": 1})
            else:
                columns = pa.array(range(first, first + rows)), pa.repeat(1, rows)
                tx["t"].upsert(pa.table(columns, ["id", "v"]))
    table.upsert({"id": 0, "v": 0})
    assert not db.status().tables[0].history_parts
    db.serve_local()
    print("ready", flush=True)
    sys.stdin.read()


def _follow(path: Path, copy: Path) -> None:
    """Read as a worker does, then own the store, and its copy."""
    joined = st.connect(path, join=True)
    assert isinstance(joined, st.JoinedStore)
    assert joined.can_read_alone()
    end = time.monotonic() + _SETTLED_S
    while time.monotonic() < end:
        joined["t"].get(0)
        time.sleep(0.01)
    rows = joined["t"].count()
    print("ready", flush=True)
    sys.stdin.readline()
    found: dict[str, float] = {}
    for name, root in (("warm", path), ("cold", copy)):
        begin = time.perf_counter()
        db = st.connect(root, join=True, background=False)
        db["t"].upsert({"id": 0, "v": 1})
        found[name] = time.perf_counter() - begin
        assert db["t"].count() == rows
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    kind, *given = sys.argv[1:]
    if kind == "own":
        _own(Path(given[0]), int(given[1]), int(given[2]))
    else:
        _follow(Path(given[0]), Path(given[1]))
