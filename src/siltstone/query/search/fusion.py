"""Fusion: one ranking of the rows that a search for words and a search by a vector found.

    rrf      the sum of 1 / (60 + rank) over both rankings, ranks from 1 (Cormack, SIGIR 2009)
    weights  the weighted sum of scores from 0 to 1: in each ranking the best row has 1, the last 0

A row that is in one ranking alone gets nothing of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from siltstone.errors import RequestError, not_one_of
from siltstone.query.search.candidates import Candidates, concatenated
from siltstone.query.search.text_query import SCORE, WEIGHT_MAX, WEIGHT_MIN
from siltstone.query.search.vector_query import DISTANCE, float_of

RANK = 60
WINDOW_MIN, WINDOW_FACTOR = 100, 4
WORDS_SCORE = "_words_score"
Rerank: TypeAlias = Callable[[pa.Table], object]
_KINDS = ("words", "vector")


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two rankings become one. `weights` are of words and of the vector; None: by ranks."""

    k: int
    weights: tuple[float, float] | None
    rerank: Rerank | None


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """Rows of both rankings, each once: the least distance of `rows` is the highest score.

    `scores` are those of the words, `distances` those of the vector; NaN: not in that ranking.
    """

    rows: Candidates
    scores: np.ndarray
    distances: np.ndarray

    def at(self, chosen: np.ndarray) -> Fused:
        """Return some of them."""
        return Fused(self.rows.at(chosen), self.scores[chosen], self.distances[chosen])


def fusion_of(k: int, fusion: object, rerank: object) -> Fusion:
    """Return the fusion of a caller's arguments.

    Raises:
        RequestError: One of them is wrong.
    """
    if rerank is not None and not callable(rerank):
        raise RequestError(f"rerank must be a function of an Arrow table; got {rerank!r:.80}")
    weights = None
    if isinstance(fusion, Mapping):
        weights = _weights(cast("Mapping[object, object]", fusion))
    elif fusion is not None and not (isinstance(fusion, str) and fusion == "rrf"):
        raise RequestError(not_one_of("fusion", fusion, ("rrf", '{"words": w, "vector": w}')))
    return Fusion(k, weights, cast("Rerank | None", rerank))


def _weights(given: Mapping[object, object]) -> tuple[float, float]:
    if {*given} != {*_KINDS}:
        raise RequestError(f"fusion has a weight of {' and of '.join(_KINDS)}; got {given!r:.80}")
    found = [_weight(given[kind]) for kind in _KINDS]
    if max(found) < WEIGHT_MIN:
        raise RequestError(f"fusion has a weight above 0, of {WEIGHT_MIN} or more; got {given!r}")
    return found[0], found[1]


def _weight(given: object) -> float:
    found = float_of(given)
    if found is None or not 0 <= found <= WEIGHT_MAX:
        raise RequestError(
            f"a weight of fusion is a number from 0 to {WEIGHT_MAX:.0e}; got {given!r:.80}"
        )
    return found


def window(k: int, most: int) -> int:
    """Return how many rows of each ranking are fused."""
    return min(max(WINDOW_MIN, WINDOW_FACTOR * k), most)


def fused(words: Candidates, near: Candidates, fusion: Fusion) -> Fused:
    """Return both rankings, which are in order, as one that is not."""
    both = concatenated([words, near])
    pairs = np.stack((both.levels.astype(np.int64), both.places.astype(np.int64)), axis=1)
    unique, first, back = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    of_words, of_near = back.reshape(-1)[: len(words)], back.reshape(-1)[len(words) :]
    scores, distances = np.full((2, len(unique)), np.nan, np.float32)
    scores[of_words], distances[of_near] = -words.distances, near.distances
    total = np.zeros(len(unique))
    for index, (places, ranked) in enumerate(((of_words, words), (of_near, near))):
        if fusion.weights is None:
            total[places] += 1 / (RANK + 1 + np.arange(len(places)))
        else:
            total[places] += fusion.weights[index] * _scaled(ranked.distances)
    rows = both.at(first)
    kept = Candidates(rows.queries, rows.levels, rows.places, -total.astype(np.float32))
    return Fused(kept, scores, distances)


def _scaled(distances: np.ndarray) -> np.ndarray:
    """Return distances, the nearest first, as scores from 1 to 0."""
    if not len(distances):
        return distances
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.clip(distances.astype(np.float64), -1e300, 1e300)
        span = far[-1] - far[0]
        return np.ones(len(far)) if not span else (far[-1] - far) / span


def columns_of(found: Fused) -> list[tuple[pa.Field, pa.Array]]:
    """Return the columns that a fused ranking adds to rows, the score last."""
    arrays = (
        (DISTANCE, found.distances, True),
        (WORDS_SCORE, found.scores, True),
        (SCORE, (-found.rows.distances).astype(np.float32), False),
    )
    return [
        (pa.field(name, pa.float32(), nullable), pa.array(values, from_pandas=True))
        for name, values, nullable in arrays
    ]


def reranked(found: Fused, rerank: Rerank, rows: pa.Table) -> Fused:
    """Return the same rows with the scores that a function gives them.

    Raises:
        RequestError: It gives no number for each row.
    """
    given = rerank(rows)
    scores = _numbers(given)
    if scores.shape != (len(found.rows),) or np.isnan(scores).any():
        shape = "x".join(map(str, scores.shape)) or "no"
        raise RequestError(
            f"rerank must return a number, and no NaN, for each of {len(found.rows)} rows; got"
            f" {shape} of them"
        )
    rows_now = found.rows
    kept = Candidates(rows_now.queries, rows_now.levels, rows_now.places, -scores)
    return Fused(kept, found.scores, found.distances)


def _numbers(given: object) -> np.ndarray:
    """Return what a reranker returned as float64, which tells times apart.

    Raises:
        RequestError: It is something else.
    """
    try:
        plain: Any = given.to_pylist() if isinstance(given, pa.Array | pa.ChunkedArray) else given
        found = np.asarray(plain)
        if found.dtype.kind in "biuf" or not found.size:
            return found.astype(np.float64)
        if found.dtype.kind == "O":  # integers of any size, and None
            return np.asarray(plain, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"rerank must return numbers; got {given!r:.80}") from error
    raise RequestError(f"rerank must return numbers; got {given!r:.80}")
