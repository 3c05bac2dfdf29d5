"""Encodings: what an index of vectors costs and finds by its encoding: `python -m bench.encodings`.

    python -m bench.encodings --rows 1e5 --size 384 [--queries 100] [--like-real] [ENCODING ...]

A table of generated vectors is loaded and merged: of length 1, in 200 clusters, with a falling
spectrum; or, of 384 floats, with the shape of real embeddings (`bench.embeddings`). Each encoding
gets an index by `create_index`, which also measures its recall. Printed are the processor seconds
of that, the bytes of the index, the share of the ten nearest rows that searches find for other
vectors (recall@10), and the processor time of a search that returns keys, all of this process.
"default" is what siltstone chooses; "no index" compares all rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

import numpy as np

import siltstone as st
from bench.embeddings import like_real
from bench.vector_upkeep import fold, searched_ms, table_of
from siltstone.choices import Encoding

K, CLUSTERS = 10, 200


def generated(count: int, size: int, seed: int) -> np.ndarray:
    """Return vectors of length 1 around the centers of clusters."""
    spectrum = 1 / np.sqrt(np.arange(1, size + 1))
    centers = np.random.default_rng(0).standard_normal((CLUSTERS, size)) * spectrum
    random = np.random.default_rng(seed)
    chosen = centers[random.integers(0, CLUSTERS, count)]
    found = chosen + 0.5 * random.standard_normal((count, size)) * spectrum
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def nearest(table: st.Table, queries: np.ndarray, *, exact: bool = False) -> list[set[int]]:
    """Return the keys of the rows that each search finds."""
    return [
        {row["id"] for row in table.search(query, K, columns=["id"], exact=exact)}
        for query in queries
    ]


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.encodings", description=__doc__)
    parser.add_argument("--rows", type=float, default=2e4)
    parser.add_argument("--size", type=int, default=384, help="of a vector")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument(
        "--like-real", action="store_true", help="like the texts of examples/search"
    )
    parser.add_argument("encodings", nargs="*", metavar="ENCODING")
    asked = parser.parse_args()
    rows = int(asked.rows)

    def vectors(count: int, seed: int) -> np.ndarray:
        return like_real(count, seed) if asked.like_real else generated(count, asked.size, seed)

    queries = vectors(asked.queries, 2)
    some = ["default", *(each for each in get_args(Encoding) if each != "pq"), "pq"]
    with (
        tempfile.TemporaryDirectory(prefix="siltstone-encodings-") as folder,
        st.connect(Path(folder) / "s", background=False) as db,
    ):
        size = queries.shape[1]
        empty = table_of(np.arange(0), np.zeros((0, size), np.float32), 0)
        table = db.create_table("t", empty.schema, primary_key="id")
        fold(db, table_of(np.arange(rows), vectors(rows, 1), 0))
        wanted = nearest(table, queries, exact=True)
        print(f"{rows:,} x {size}; no index: {searched_ms(db, queries):.1f} ms a search")
        for name in asked.encodings or some:
            begun = time.process_time()
            options = {} if name == "default" else {"encoding": name}
            made = table.create_index("v", kind="vector", **options)
            took = time.process_time() - begun
            found = nearest(table, queries)
            share = np.mean([len(a & b) / K for a, b in zip(found, wanted, strict=True)])
            shown = f"default, {made.encoding}" if name == "default" else name
            print(
                f"{shown}: built in {took:.1f} s, {made.nbytes / 1e6:.1f} MB, recall@10 {share:.3f}"
                f" (of its own rows {made.recall}), {searched_ms(db, queries):.1f} ms a search",
                flush=True,
            )
            table.drop_index("v")
    return 0


if __name__ == "__main__":
    sys.exit(main())
