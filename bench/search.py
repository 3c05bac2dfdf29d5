"""Search: k-NN at one seq beside Lance's own over the same index, `python -m bench.search`.

A table of vectors is loaded, merged, and gets a vector index. Then a share of its rows is updated,
so that base hides them and the levels above it have them. Each query is asked in turns: of Lance
without a block list (whose answer has rows that were replaced), of Lance with the block list of the
seq, of siltstone, and of siltstone right after a commit of one row. All return the key and the
distance. CPU is that of the process, which Lance's own threads share.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import siltstone as st

K = 10
LANCE, BLOCKED, OURS, COMMITTED = "lance", "lance, blocked", "siltstone", "after a commit"
Call = Callable[[np.ndarray], object]


def table_of(ids: np.ndarray, vectors: np.ndarray) -> pa.Table:
    """Return rows of a key and a vector."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.table({"id": pa.array(ids, pa.int64()), "v": column})


def calls_of(db: Any) -> dict[str, Call]:
    """Return what is measured, over the present rows."""
    reader = db.snapshot().reader_of("t")
    pinned, visible = reader.base.table, reader.overlay().visibility.visible
    blocked = pinned.search._without(visible, True)  # noqa: SLF001 - what a search sends
    table = db["t"]

    def lance(query: np.ndarray, **options: object) -> object:
        nearest = {"column": "v", "q": query, "k": K, "metric": "l2"}
        options = {"disable_scoring_autoprojection": True, "nearest": nearest, **options}
        return pinned.dataset.scanner(columns=["id", "_distance"], **options).to_table()

    def ours(query: np.ndarray) -> object:
        return table.search(query, K, columns=["id"])

    return {
        LANCE: lance,
        BLOCKED: lambda query: lance(query, prefilter=True, row_addr_blocklist=blocked),
        OURS: ours,
        COMMITTED: ours,
    }


def measured(db: Any, queries: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the median wall time and the mean CPU of each call, in milliseconds."""
    calls = calls_of(db)
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for turn, query in enumerate(queries):
        for name, call in calls.items():
            if name == COMMITTED:
                db["t"].upsert({"id": turn, "v": query.tolist()})
            wall, cpu = time.perf_counter(), time.process_time()
            call(query)
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    warm = len(queries) // 5
    return {
        name: (
            1e3 * statistics.median(walls[name][warm:]),
            1e3 * statistics.mean(cpus[name][warm:]),
        )
        for name in calls
    }


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--size", type=int, default=128, help="of a vector")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--encoding", default="flat")
    parser.add_argument("--fresh", type=float, nargs="*", default=[0.001, 0.01, 0.1])
    asked = parser.parse_args()
    rows, rng = int(asked.rows), np.random.default_rng(1)
    vectors = rng.standard_normal((rows, asked.size)).astype(np.float32)
    queries = rng.standard_normal((asked.queries, asked.size)).astype(np.float32)
    with (
        tempfile.TemporaryDirectory(prefix="siltstone-search-") as folder,
        st.connect(Path(folder) / "s", background=False) as db,
    ):
        db.create_table("t", table_of(np.arange(0), vectors[:0]).schema, primary_key="id")
        db["t"].upsert(table_of(np.arange(rows), vectors))
        db.checkpoint()
        db.merge()
        begun = time.perf_counter()
        db["t"].create_index("v", kind="vector", encoding=asked.encoding)
        print(f"{rows:,} x {asked.size}, {asked.encoding}: {time.perf_counter() - begun:.1f} s")
        print("fresh    ms (CPU ms) of:", ", ".join(calls_of(db)))
        for share in [0.0, *asked.fresh]:
            some = rng.choice(rows, int(share * rows), replace=False)
            if len(some):
                moved = rng.standard_normal((len(some), asked.size)).astype(np.float32)
                db["t"].upsert(table_of(some, moved))
            found = measured(db, queries)
            lance, ours = found[LANCE], found[OURS]
            times = "  ".join(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in found.values())
            ratios = f"{ours[0] / lance[0]:.2f} ({ours[1] / lance[1]:.2f}) of Lance's"
            print(f"{share:<8.1%} {times}  {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
