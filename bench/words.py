"""Words: searches for words at one seq beside Lance's own by the same index.

`python -m bench.words`

A table of texts, whose words are as frequent as words are (Zipf), gets an index of texts. Then a
share of its rows is updated, so that base hides them and the levels above it have them. Each query
of two words is asked in turns: of Lance without and with the block list of the seq, of siltstone,
with `exact=True`, as a fuzzy search, and right after a commit of one row. CPU is that of the
process.

The error of the scores is that of siltstone's default against `exact=True`: how far the ten highest
scores are off, in the mean, and how many of those rows are the same.
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
from lance.query import MatchQuery

import siltstone as st

K, WORDS, VOCABULARY = 10, 12, 20_000
Call = Callable[[str], Any]


def texts_of(rng: np.random.Generator, count: int) -> list[str]:
    """Return texts of twelve words."""
    ranks = np.minimum(rng.zipf(1.3, (count, WORDS)), VOCABULARY)
    return [" ".join(f"w{rank}" for rank in row) for row in ranks.tolist()]


def table_of(ids: np.ndarray, texts: list[str]) -> pa.Table:
    """Return rows of a key and a text."""
    return pa.table({"id": pa.array(ids, pa.int64()), "s": pa.array(texts, pa.string())})


def calls_of(db: Any) -> dict[str, Call]:
    """Return what is measured, over the present rows."""
    reader = db.snapshot().reader_of("t")
    pinned, visible = reader.base.table, reader.overlay().visibility.visible
    blocked = pinned.search._without(visible, True)  # noqa: SLF001 - what a search sends
    table, asked = db["t"], {"columns": ["id"], "k": K}

    def lance(words: str, **options: object) -> object:
        query = MatchQuery(words, "s")
        options = {"disable_scoring_autoprojection": True, "limit": K, **options}
        scanner = pinned.dataset.scanner(columns=["id", "_score"], full_text_query=query, **options)
        return scanner.to_table()

    return {
        "lance": lance,
        "lance, blocked": lambda words: lance(words, row_addr_blocklist=blocked),
        "siltstone": lambda words: table.search(words, **asked),
        "exact": lambda words: table.search(words, exact=True, **asked),
        "fuzzy": lambda words: table.search(words, fuzzy=1, **asked),
        "after a commit": lambda words: table.search(words, **asked),
    }


def measured(db: Any, queries: list[str]) -> dict[str, tuple[float, float]]:
    """Return the median wall time and the mean CPU of each call, in milliseconds."""
    calls = calls_of(db)
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for turn, words in enumerate(queries):
        for name, call in calls.items():
            if name == "after a commit":
                db["t"].upsert({"id": turn, "s": words})
            wall, cpu = time.perf_counter(), time.process_time()
            call(words)
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


def errors(table: Any, queries: list[str]) -> tuple[float, float]:
    """Return how far scores are off, relatively, and the share of the ten rows that are right."""
    off, same = list[float](), list[float]()
    for words in queries:
        right = {row["id"]: row["_score"] for row in table.search(words, k=10_000, exact=True)}
        first = sorted(right, key=lambda key: (-right[key], key))[:K]
        found = {row["id"]: row["_score"] for row in table.search(words, k=K)}
        off += [abs(score / right[key] - 1) for key, score in found.items() if key in right]
        same.append(len({*first} & {*found}) / max(len(first), 1))
    return statistics.mean(off), statistics.mean(same)


def main() -> int:
    """Measure what the command line says, and print it."""
    parser = argparse.ArgumentParser("python -m bench.words", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e5, help="rows of base")
    parser.add_argument("--fresh", type=float, nargs="*", default=[0, 0.01, 0.1])
    parser.add_argument("--queries", type=int, default=60)
    given = parser.parse_args()
    rows, rng = int(given.rows), np.random.default_rng(9)
    ranks = rng.integers(2, 200, (given.queries, 2)).tolist()
    queries = [" ".join(f"w{rank}" for rank in row) for row in ranks]
    with (
        tempfile.TemporaryDirectory(prefix="siltstone-words-") as folder,
        st.connect(Path(folder) / "s", background=False) as db,
    ):
        db.create_table("t", table_of(np.arange(0), []).schema, primary_key="id")
        db["t"].upsert(table_of(np.arange(rows), texts_of(rng, rows)))
        db.checkpoint()
        db.merge()
        db["t"].create_index("s", kind="fts")
        for share in given.fresh:
            some = rng.choice(rows, int(share * rows), replace=False)
            db["t"].upsert(table_of(some, texts_of(rng, len(some))))
            off, same = errors(db["t"], queries)
            print(f"{share:.3f} fresh: scores off by {off:.4f}, {same:.3f} of ten rows")
            for name, (wall, cpu) in measured(db, queries).items():
                print(f"  {name:20} {wall:8.2f} ms, CPU {cpu:8.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
