"""Upkeep: what keeping an index of vectors up to date costs.

A table of vectors gets an index. Then folds of a share of its rows each: once without the index,
once with it, by the CPU of the process (a merge runs in it here) and the rows that segments were
built over. At last searches, with all of base covered by the index, and with a share that is not.
`--other` changes another column, not the vector: such a row leaves the index, too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import siltstone as st
from siltstone.maintenance.index import index_plan

K = 10


def table_of(ids: np.ndarray, vectors: np.ndarray, turn: int) -> pa.Table:
    """Return rows of a key, a number and a vector."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    numbers = pa.array(np.full(len(ids), turn), pa.int64())
    return pa.table({"id": pa.array(ids, pa.int64()), "n": numbers, "v": column})


def fold(db: Any, rows: pa.Table) -> float:
    """Write and fold rows; return the seconds of CPU."""
    db["t"].upsert(rows)
    db.checkpoint()
    begun = time.process_time()
    db.merge()
    return time.process_time() - begun


def segments_of(db: Any) -> dict[str, int]:
    """Return the rows that each segment of the newest base covers."""
    (storage,) = db._core.state().view.record.keyed  # noqa: SLF001 - no door tells it
    opened = db._parts.site.tables.reader.open(storage.base)  # noqa: SLF001
    return {one.id: sum(end - first for first, end in one.covered) for one in opened.segments}


def searched_ms(db: Any, queries: np.ndarray) -> float:
    """Return the mean CPU of a search in milliseconds."""
    for query in queries[:10]:
        db["t"].search(query, K, columns=["id"])
    begun = time.process_time()
    for query in queries:
        db["t"].search(query, K, columns=["id"])
    return 1e3 * (time.process_time() - begun) / len(queries)


def life(db: Any, asked: argparse.Namespace, *, indexed: bool) -> None:
    """Fold again and again; print what it took."""
    rows, rng = asked.rows, np.random.default_rng(1)
    vectors = rng.standard_normal((rows, asked.size)).astype(np.float32)
    fold(db, table_of(np.arange(rows), vectors, 0))
    if indexed:
        begun = time.process_time()
        made = db["t"].create_index("v", kind="vector")
        took = time.process_time() - begun
        print(f"built: {took:.2f} s of CPU, {made.encoding}, recall {made.recall}")
    known = set(segments_of(db)) if indexed else set()
    took, changed, built = 0.0, 0, 0
    for turn in range(asked.folds):
        some = rng.choice(rows, int(asked.share * rows), replace=False)
        if not asked.other:
            vectors[some] = rng.standard_normal((len(some), asked.size)).astype(np.float32)
        took += fold(db, table_of(some, vectors[some], turn + 1))
        changed += len(some)
        now = segments_of(db)
        built += sum(count for number, count in now.items() if number not in known)
        known |= now.keys()
    print(
        f"{'with' if indexed else 'without'} index: {took / asked.folds:.3f} s of CPU a fold of"
        f" {changed // asked.folds} rows; {built} rows indexed for {changed} changed,"
        f" {len(segments_of(db))} segments"
    )
    if indexed:
        queries = rng.standard_normal((asked.queries, asked.size)).astype(np.float32)
        covered = searched_ms(db, queries)
        index_plan.SEARCHED_LAG_SHARE = 1.0  # leave the next folds uncovered
        print(f"search, all covered: {covered:.2f} ms of CPU")
        for share in asked.uncovered:
            some = rng.choice(rows, int(share * rows), replace=False)
            fold(db, table_of(some, vectors[some], -1))
            lag = db["t"].indexes()[0].lagging_rows / rows
            print(f"search, {lag:.1%} of base uncovered: {searched_ms(db, queries):.2f} ms")


def main(db: Any, folder: Path, asked: argparse.Namespace) -> None:
    """Live without an index, and in another store with one."""
    with st.connect(folder / "indexed", background=False) as other:
        for store, indexed in ((db, False), (other, True)):
            empty = table_of(np.arange(0), np.zeros((0, asked.size), np.float32), 0)
            store.create_table("t", empty.schema, primary_key="id")
            life(store, asked, indexed=indexed)
