"""Words: searches for words of texts, beside Lance's own by the same index.

A table of texts, whose words are as frequent as words are (Zipf), gets an index of texts. Then a
share of its rows is updated, so that base hides them and the levels above it have them. Each query
of two words is asked in turns: of Lance without and with the block list of the seq, of siltstone,
with `exact=True`, as a fuzzy search, and right after a commit of one row.

The error of the scores is that of siltstone's default against `exact=True`: how far the ten highest
scores are off, in the mean, and how many of those rows are the same.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lance.query import MatchQuery

from bench.search.turns import BLOCKED, COMMITTED, LANCE, OURS, measured

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
        LANCE: lance,
        BLOCKED: lambda words: lance(words, row_addr_blocklist=blocked),
        OURS: lambda words: table.search(words, **asked),
        "exact": lambda words: table.search(words, exact=True, **asked),
        "fuzzy": lambda words: table.search(words, fuzzy=1, **asked),
        COMMITTED: lambda words: table.search(words, **asked),
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


def main(db: Any, folder: Path, asked: argparse.Namespace) -> None:
    """Measure searches with more and more rows above base."""
    del folder
    rows, rng = asked.rows, np.random.default_rng(9)
    ranks = rng.integers(2, 200, (asked.queries, 2)).tolist()
    queries = [" ".join(f"w{rank}" for rank in row) for row in ranks]
    db.create_table("t", table_of(np.arange(0), []).schema, primary_key="id")
    db["t"].upsert(table_of(np.arange(rows), texts_of(rng, rows)))
    db.checkpoint()
    db.merge()
    db["t"].create_index("s", kind="fts")
    for share in [0.0, *asked.fresh]:
        some = rng.choice(rows, int(share * rows), replace=False)
        db["t"].upsert(table_of(some, texts_of(rng, len(some))))
        off, same = errors(db["t"], queries)
        print(f"{share:.3f} fresh: scores off by {off:.4f}, {same:.3f} of ten rows")
        found = measured(
            calls_of(db), queries, lambda turn, words: db["t"].upsert({"id": turn, "s": words})
        )
        for name, (wall, cpu) in found.items():
            print(f"  {name:20} {wall:8.2f} ms, CPU {cpu:8.2f} ms")
