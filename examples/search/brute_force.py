"""Brute force: what each search must find, from all rows of its snapshot.

A ranking is a list of keys with their distances or scores, as float32, the best first; of equals
the lower key comes first. Nothing here asks siltstone or Lance: it is NumPy and Python alone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

K1, B = 1.2, 0.75  # of BM25
RANK, WINDOW = 60, 100  # of the fusion of two rankings, while k is 25 at most

# How an index of texts must be made, so that `words_of` takes texts apart as it does.
INDEX = {"stem": False, "remove_stop_words": False, "ascii_folding": False}

Ranking = list[tuple[int, np.float32]]


@cache
def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text: letters and digits between anything else."""
    return tuple("".join(c if c.isalnum() else " " for c in text.lower()).split())


@dataclass(frozen=True)
class Rows:
    """All rows of a snapshot, by their keys, ascending; `vectors` has a line for each, float64."""

    ids: Sequence[int]
    texts: Sequence[str]
    vectors: np.ndarray

    @cached_property
    def counts(self) -> list[Counter[str]]:
        """Return how often each row has each of its words."""
        return [Counter(words_of(text)) for text in self.texts]

    @cached_property
    def rows_with(self) -> Counter[str]:
        """Return how many rows have a word."""
        return Counter(word for counts in self.counts for word in counts)

    @cached_property
    def words(self) -> int:
        """Return how many words all rows have together."""
        return sum(counts.total() for counts in self.counts)


def nearest(rows: Rows, vector: np.ndarray, k: int) -> Ranking:
    """Return the k rows with the nearest vectors."""
    distances = distances_of(rows, vector)
    order = np.lexsort((rows.ids, distances))[:k]
    return [(rows.ids[at], distances[at]) for at in order]


def distances_of(rows: Rows, vector: np.ndarray) -> np.ndarray:
    """Return how far each row is: 1 - cosine."""
    squares = (rows.vectors**2).sum(axis=1) * (vector**2).sum()
    found = 1 - (rows.vectors * vector).sum(axis=1) / np.sqrt(squares)
    return found.astype(np.float32)


def with_words(rows: Rows, query: str) -> Ranking:
    """Return all rows that have a word of the query, by their BM25 scores."""
    asked = words_of(query)
    count = sum(bool(words) for words in rows.counts)
    average = rows.words / max(count, 1)
    found: Ranking = []
    for key, words in zip(rows.ids, rows.counts, strict=True):
        score = 0.0
        for word in asked:
            if times := words[word]:
                df = rows.rows_with[word]
                idf = math.log1p((count - df + 0.5) / (df + 0.5))
                norm = K1 * (1 - B + B * words.total() / average)
                score += idf * times * (K1 + 1) / (times + norm)
        if score:
            found.append((key, np.float32(score)))
    return best_first(found)


def fused(words: Ranking, near: Ranking, k: int) -> Ranking:
    """Return the k rows with the highest sums of 1 / (60 + rank), of the first 100 of both."""
    total: Counter[int] = Counter()
    for ranking in (words[:WINDOW], near[:WINDOW]):
        for rank, (key, _) in enumerate(ranking, 1):
            total[key] += 1 / (RANK + rank)
    return best_first((key, np.float32(score)) for key, score in total.items())[:k]


def best_first(scores: Iterable[tuple[int, np.float32]]) -> Ranking:
    """Return scores as a ranking."""
    return sorted(scores, key=lambda each: (-each[1], each[0]))


# What is wrong with an answer; "" if nothing is.


def wrong_ranking(found: Ranking, expected: Ranking) -> str:
    """Compare keys, their order and their numbers; these may differ by a rounding."""
    keys, wanted = [key for key, _ in found], [key for key, _ in expected]
    if keys != wanted:
        return f"found {keys}, by brute force {wanted}"
    numbers, right = ([float(number) for _, number in each] for each in (found, expected))
    if not np.allclose(numbers, right, rtol=1e-5, atol=1e-6):
        return f"of {keys} found {numbers}, by brute force {right}"
    return ""


def wrong_rows(found: Ranking, expected: Ranking) -> str:
    """Compare keys, each once, in any order."""
    extra, missing = (
        sorted((Counter(key for key, _ in one) - Counter(key for key, _ in other)).elements())
        for one, other in ((found, expected), (expected, found))
    )
    return f"too many: {extra}, missing: {missing}" if extra or missing else ""


def wrong_distances(found: Ranking, rows: Rows, vector: np.ndarray) -> str:
    """See that rows live, come once, are as far as it is said, and the nearest comes first.

    It does not ask whether they are the nearest: an index finds nearly those.
    """
    far = dict(zip(rows.ids, distances_of(rows, vector), strict=True))
    if dead := [key for key, _ in found if key not in far]:
        return f"found {dead}, which are no rows"
    right = sorted({key: far[key] for key, _ in found}.items(), key=lambda each: each[::-1])
    return wrong_ranking(found, right)


def ranking_of(answer: Iterable[Mapping[str, Any]], number: str) -> Ranking:
    """Return the rows of an answer as a ranking by one of its columns."""
    return [(row["id"], np.float32(row[number])) for row in answer]


def recall(found: Ranking, expected: Ranking) -> float:
    """Return which share of the expected rows was found."""
    return len({key for key, _ in found} & {key for key, _ in expected}) / len(expected)
