"""Load: searches of threads, next to a writer and after commits, and of peers.

Vectors get an index, then a hundredth of them is updated. Measured are

- searches of some threads, in turns with Lance's own over the same index (whose answer has rows
  that were replaced): how many a second, and what the process spends on each;
- searches of one thread alone, and beside a writer of a thousand rows a second;
- commits of one row, each followed by a search for it: how many find it;
- with `--peers`, the same vectors in LanceDB (its own index over the first load, what came later
  by its flat search) and in DuckDB (`array_distance` of all rows): the median time of a search.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import duckdb
import lancedb
import numpy as np

from bench.search.turns import LANCE, OURS
from bench.search.vectors import Call, K, calls_of, filled, table_of

WRITTEN_AT_ONCE, WRITTEN_A_SECOND = 100, 1_000


def rate(call: Call, queries: np.ndarray, threads: int, seconds: float) -> tuple[float, float]:
    """Return the calls a second of some threads, and the milliseconds of CPU of each."""
    counts, stop = [0] * threads, time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < stop:
            call(queries[(number + counts[number] * threads) % len(queries)])
            counts[number] += 1

    begun, cpu = time.perf_counter(), time.process_time()
    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    spent = time.process_time() - cpu
    return sum(counts) / (time.perf_counter() - begun), 1e3 * spent / sum(counts)


class Writer:
    """A thread that updates rows at a steady rate; a context manager."""

    def __init__(self, db: Any, vectors: np.ndarray) -> None:
        self._db, self._vectors, self.rows = db, vectors, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        rng = np.random.default_rng(5)
        begun = time.perf_counter()
        while not self._stop.wait(begun + self.rows / WRITTEN_A_SECOND - time.perf_counter()):
            ids = rng.choice(len(self._vectors), WRITTEN_AT_ONCE, replace=False)
            self._db["t"].upsert(table_of(ids, self._vectors[rng.permutation(ids)]))
            self.rows += WRITTEN_AT_ONCE


def found_at_once(db: Any, rng: np.random.Generator, size: int, rows: int, count: int) -> int:
    """Commit rows one by one; return how many of them the next search found, at distance 0."""
    found = 0
    for vector in rng.standard_normal((count, size)).astype(np.float32):
        key = int(rng.integers(rows))
        db["t"].upsert({"id": key, "v": vector.tolist()})
        (nearest,) = db["t"].search(vector, 1, columns=["id"])
        found += (nearest["id"], nearest["_distance"]) == (key, 0.0)
    return found


def peers(folder: Path, loaded: Any, fresh: Any) -> dict[str, Call]:
    """Return a search of each peer over the loaded rows, of which the fresh ones are updates."""
    table = lancedb.connect(folder / "lancedb").create_table("t", loaded)
    table.create_index(metric="l2", vector_column_name="v", index_type="IVF_FLAT")
    table.merge_insert("id").when_matched_update_all().execute(fresh)
    duck = duckdb.connect(str(folder / "duck.db"))
    size = loaded.schema.field("v").type.list_size
    duck.execute(f"create table t (id bigint primary key, v float[{size}])")
    duck.execute("insert into t select id, v from loaded")
    duck.execute("update t set v = fresh.v from fresh where t.id = fresh.id")
    nearest = f"select id, array_distance(v, ?::float[{size}]) d from t order by d limit {K}"

    def of_lancedb(query: np.ndarray) -> object:
        return table.search(query, vector_column_name="v").select(["id"]).limit(K).to_arrow()

    def of_duck(query: np.ndarray) -> object:
        return duck.execute(nearest, [query.tolist()]).fetchall()

    return {"LanceDB": of_lancedb, "DuckDB": of_duck}


def medians(calls: dict[str, Call], queries: np.ndarray) -> dict[str, float]:
    """Return the median time of each call in milliseconds, asked in turns; some warm it up."""
    walls: dict[str, list[float]] = {name: [] for name in calls}
    for query in queries:
        for name, call in calls.items():
            begun = time.perf_counter()
            call(query)
            walls[name].append(time.perf_counter() - begun)
    return {name: 1e3 * statistics.median(of[len(of) // 5 :]) for name, of in walls.items()}


def main(db: Any, folder: Path, asked: argparse.Namespace) -> None:
    """Print what the module says."""
    rows, rng = asked.rows, np.random.default_rng(2)
    vectors = rng.standard_normal((rows, asked.size)).astype(np.float32)
    filled(db, vectors, asked.encoding)
    queries = rng.standard_normal((256, asked.size)).astype(np.float32)
    some = rng.choice(rows, rows // 100, replace=False)
    moved = rng.standard_normal((len(some), asked.size)).astype(np.float32)
    db["t"].upsert(table_of(some, moved))
    calls: dict[str, Callable[[np.ndarray], object]] = calls_of(db)
    for turn in range(3):
        told = [
            f"{name} {found[0]:,.0f}/s ({found[1]:.2f} ms)"
            for name in (LANCE, OURS)
            if (found := rate(calls[name], queries, asked.threads, asked.seconds))
        ]
        print(f"{asked.threads} threads, round {turn}: {', '.join(told)}")
    for turn in range(3):
        alone, _ = rate(calls[OURS], queries, 1, asked.seconds)
        with Writer(db, vectors) as writer:
            beside, _ = rate(calls[OURS], queries, 1, asked.seconds)
        print(
            f"beside a writer, round {turn}: {beside:,.0f}/s of {alone:,.0f} alone,"
            f" {writer.rows / asked.seconds:,.0f} rows/s written"
        )
    found = found_at_once(db, rng, asked.size, rows, asked.commits)
    print(f"found at once after the commit: {found:,} of {asked.commits:,}")
    if asked.peers:
        loaded, fresh = table_of(np.arange(rows), vectors), table_of(some, moved)
        called = {OURS: calls[OURS], **peers(folder, loaded, fresh)}
        told = ", ".join(
            f"{name} {ms:.2f} ms" for name, ms in medians(called, queries[:60]).items()
        )
        print(f"median of a search: {told}")
