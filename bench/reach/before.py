"""Before: a store without a mirror, of this checkout and of an older commit, in turns.

    SILTSTONE_BENCH_BEFORE=<commit> python -m bench --workloads reach --peers siltstone
    python -m bench.reach.before COMMIT

Each is a process of its own, with the same Python and packages. The least CPU time of all turns is
compared, as what others do on a machine adds to it, too: that of the import, and that of upserts of
one row, one after the other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from bench.workload import Metrics

COMMIT = os.environ.get("SILTSTONE_BENCH_BEFORE", "")
"""The older commit; empty: nothing is compared."""
_HERE = Path(__file__).resolve().parents[2]
_TURNS, _ROWS = 15, 3_000
_CHILD = """
import json, sys, time
begin = time.process_time()
import siltstone as st
imported = time.process_time() - begin
with st.connect(sys.argv[1], background=False) as db:
    table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    for number in range(200):
        table.upsert({"id": number, "v": "some text of a row"})
    begin = time.process_time()
    for number in range(int(sys.argv[2])):
        table.upsert({"id": number, "v": "some text of a row"})
    written = time.process_time() - begin
print(json.dumps({"import": imported, "upserts": written}))
"""


@contextmanager
def checked_out(commit: str) -> Generator[tuple[Path, Path]]:
    """Return our sources and those of a commit, in folders for the block: on the same disk.

    Raises:
        CalledProcessError: Git has no such commit.
    """
    command = ["git", "archive", commit, "src"]
    found = subprocess.run(command, cwd=_HERE, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="siltstone-before-") as folder:
        with tarfile.open(fileobj=BytesIO(found)) as archive:
            archive.extractall(Path(folder) / "other", filter="data")
        here, unwanted = Path(folder) / "here", shutil.ignore_patterns("__pycache__")
        shutil.copytree(_HERE / "src", here / "src", ignore=unwanted)
        yield here / "src", Path(folder) / "other" / "src"


def compared(commit: str, turns: int = _TURNS, rows: int = _ROWS) -> Metrics:
    """Return the CPU time of this checkout as a share of that of a commit; none: nothing."""
    if not commit:
        return {}
    times: dict[tuple[Path, str], float] = {}
    with checked_out(commit) as (here, other):
        for turn in range(turns):
            for source in [here, other] if turn % 2 else [other, here]:
                for what, seconds in _measured(source, rows).items():
                    least = times.get((source, what), seconds)
                    times[source, what] = min(least, seconds)
    whats = ("import", "upserts")
    return {f"before: CPU of {what}, x": times[here, what] / times[other, what] for what in whats}


def _measured(source: Path, rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="siltstone-bench-") as folder:
        command = [sys.executable, "-c", _CHILD, f"{folder}/s", str(rows)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


if __name__ == "__main__":
    for name, value in compared(sys.argv[1]).items():
        print(f"{name} {value:.4f}")
