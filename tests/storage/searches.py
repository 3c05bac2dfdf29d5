"""Rows with vectors and words, and what a stock client finds of them in one Lance version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from siltstone.storage.tables.tables import IndexSpec

SIZE = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("words", pa.string()),
        ("place", pa.list_(pa.float32(), SIZE)),
    ]
)
BY_WORDS = IndexSpec("words.1", "words", "fts")
BY_PLACE = IndexSpec("place.1", "place", "vector")
WORDS = ("slate", "chalk", "flint")
ORIGIN = np.zeros(SIZE, np.float32)


def rows(first: int, count: int, *, seed: int = 0, near: int = 0) -> pa.RecordBatch:
    """Return rows with ids from `first` on; the places of the first `near` are at the origin."""
    ids = np.arange(first, first + count)
    places = np.random.default_rng([seed, first]).normal(size=(count, SIZE)).astype(np.float32)
    places[:near] *= 0.001
    words = [f"{WORDS[n % len(WORDS)]} stone" for n in ids.tolist()]
    flat = pa.FixedSizeListArray.from_arrays(pa.array(places.ravel()), SIZE)
    return pa.record_batch([pa.array(ids), pa.array(words), flat], schema=SCHEMA)


def nearest(dataset: Any, k: int, asked: np.ndarray = ORIGIN, **options: Any) -> list[int]:
    """Return the ids of the k nearest rows by the index, all of whose partitions are searched."""
    search = {"column": "place", "q": asked, "k": k, "nprobes": 1_000}
    scanner = dataset.scanner(
        columns=["id"], nearest=search, disable_scoring_autoprojection=True, **options
    )
    return scanner.to_table()["id"].to_pylist()


def truly_nearest(dataset: Any, k: int, asked: np.ndarray = ORIGIN) -> list[int]:
    """Return the same from all rows of the version."""
    found = dataset.to_table(columns=["id", "place"])
    places = np.array(found["place"].to_pylist(), np.float32).reshape(-1, SIZE)
    order = np.argsort(((places - asked) ** 2).sum(axis=1), kind="stable")
    return found["id"].to_numpy()[order[:k]].tolist()


def with_word(dataset: Any, word: str, limit: int | None = None) -> list[int]:
    """Return the ids of the rows that a full-text query finds, ascending."""
    scanner = dataset.scanner(
        columns=["id"],
        full_text_query=word,
        limit=limit,
        disable_scoring_autoprojection=True,
    )
    return sorted(scanner.to_table()["id"].to_pylist())


def truly_with_word(dataset: Any, word: str) -> list[int]:
    """Return the same from all rows of the version."""
    found = dataset.to_table(columns=["id", "words"]).to_pylist()
    return sorted(row["id"] for row in found if word in row["words"].split())


def check(dataset: Any, asked: np.ndarray = ORIGIN, k: int = 7) -> None:
    """Compare both kinds of searches with what all rows of the version say."""
    rows_there = dataset.count_rows()
    assert nearest(dataset, k, asked) == truly_nearest(dataset, k, asked)
    assert len(set(nearest(dataset, rows_there + 5, asked))) == rows_there
    filtered = nearest(dataset, k, asked, filter="id >= 0", prefilter=True)
    assert filtered == truly_nearest(dataset, k, asked)
    if not any(index.index_type == "Inverted" for index in dataset.describe_indices()):
        return
    for word in WORDS:
        found = truly_with_word(dataset, word)
        assert with_word(dataset, word) == found
        some = with_word(dataset, word, k)
        assert len(set(some)) == min(k, len(found)) == len(some)
        assert set(some) <= set(found)
