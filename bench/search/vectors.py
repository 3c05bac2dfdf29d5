"""Vectors: searches for the nearest, beside Lance's own over the same index.

A table of vectors is loaded, merged, and gets a vector index. Then a share of its rows is updated,
so that base hides them and the levels above it have them. Each query is asked in turns: of Lance
without a block list (whose answer has rows that were replaced), of Lance with the block list of the
seq, of siltstone, and of siltstone right after a commit of one row. All return the key and the
distance.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.search.turns import BLOCKED, COMMITTED, LANCE, OURS, measured

K = 10
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


def filled(db: Any, vectors: np.ndarray, encoding: str) -> None:
    """Load vectors, merge them and build their index."""
    db.create_table("t", table_of(np.arange(0), vectors[:0]).schema, primary_key="id")
    db["t"].upsert(table_of(np.arange(len(vectors)), vectors))
    db.checkpoint()
    db.merge()
    begun = time.perf_counter()
    db["t"].create_index("v", kind="vector", encoding=encoding)
    took = time.perf_counter() - begun
    print(f"{len(vectors):,} x {vectors.shape[1]}, {encoding}: built in {took:.1f} s")


def main(db: Any, folder: Path, asked: argparse.Namespace) -> None:
    """Measure searches with more and more rows above base."""
    del folder
    rng = np.random.default_rng(1)
    filled(db, rng.standard_normal((asked.rows, asked.size)).astype(np.float32), asked.encoding)
    queries = rng.standard_normal((asked.queries, asked.size)).astype(np.float32)
    print("fresh    ms (CPU ms) of:", ", ".join(calls_of(db)))
    for share in [0.0, *asked.fresh]:
        some = rng.choice(asked.rows, int(share * asked.rows), replace=False)
        if len(some):
            moved = rng.standard_normal((len(some), asked.size)).astype(np.float32)
            db["t"].upsert(table_of(some, moved))
        found = measured(
            calls_of(db),
            queries,
            lambda turn, query: db["t"].upsert({"id": turn, "v": query.tolist()}),
        )
        lance, ours = found[LANCE], found[OURS]
        times = "  ".join(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in found.values())
        ratios = f"{ours[0] / lance[0]:.2f} ({ours[1] / lance[1]:.2f}) of Lance's"
        print(f"{share:<8.1%} {times}  {ratios}")
