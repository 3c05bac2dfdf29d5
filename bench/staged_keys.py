"""What keys that are sorted where rows are staged save a commit: `python -m bench.staged_keys`.

    python -m bench.staged_keys --rows 2e6     a table with rows, and so many more, staged as four
                                               pieces with their keys sorted, and without

Processor seconds, the least of `--times`: of the four pieces together, which in Spark are four
tasks, and of attach and commit, for which all wait. One process does both, one after the other.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st
from siltstone.api.tasks import Staged, StageTask
from siltstone.storage.site import site_of

PIECES = 4
KINDS = {"numbers in order": (False, False), "numbers": (False, True), "texts": (True, True)}


def rows(first: int, count: int, kind: str) -> pa.Table:
    """Return `count` rows with keys from `first` on, in an order of their kind."""
    is_text, is_mixed = KINDS[kind]
    keys = np.arange(first, first + count)
    if is_mixed:
        keys = np.random.default_rng(first).permutation(keys)
    column = pa.array(keys)
    if is_text:
        column = pa.array([f"customer-{key:09}" for key in keys.tolist()])
    return pa.table({"id": column, "balance": keys * 3, "score": keys * 0.5})


def cpu_of(work: Callable[[], object]) -> float:
    """Return the processor seconds of a step."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def without(stage: StageTask, piece: pa.Table) -> Staged:
    """Stage a piece, and leave its keys to the commit."""
    return stage.run_through(site_of(stage.root, stage.verify).tables.writer, piece)


def once(root: Path, table: pa.Table, first: pa.Table, run: Callable[..., Staged]) -> list[float]:
    """Return what stages a write, and what attaches and commits it."""
    with st.connect(root, background=False, memory_bytes_max=4 << 30) as db:
        db.create_table("t", table.schema, primary_key="id").upsert(first)
        stage, size = db.stage("t"), -(-table.num_rows // PIECES)
        staged: list[Staged] = []
        pieces = [table.slice(at * size, size) for at in range(PIECES)]
        before = cpu_of(lambda: staged.extend(run(stage, piece) for piece in pieces))

        def commit() -> None:
            with db.transaction() as tx:
                tx.attach(stage, staged)

        after = cpu_of(commit)
        stage.discard(staged)
        if db["t"].count() != table.num_rows + first.num_rows:
            raise SystemExit(f"there are {db['t'].count()} rows")
        return [before, after]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.staged_keys", description=__doc__)
    parser.add_argument("--rows", type=float, default=2e6, help="of the write")
    parser.add_argument("--times", type=int, default=5, help="of which the least is shown")
    given = parser.parse_args()
    for kind in KINDS:
        table, first = rows(0, int(given.rows), kind), rows(10**8, 100_000, kind)
        for name, run in (("keys staged", StageTask.run), ("without", without)):
            found: list[list[float]] = []
            for _ in range(given.times):
                folder = Path(tempfile.mkdtemp(prefix="siltstone-staged-"))
                try:
                    found.append(once(folder / "s", table, first, run))
                finally:
                    shutil.rmtree(folder)
            before, after = map(min, zip(*found, strict=True))
            print(f"{kind:16} {name:12} stage {before:5.2f} s, commit {after:5.2f} s", flush=True)


if __name__ == "__main__":
    main()
