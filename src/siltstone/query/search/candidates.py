"""Candidates: rows that a search found, where they are, and how far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from siltstone.query.search.vector_query import VectorQuery

BASE = -1
"""The number of base, or of the one version of a plain table, among the levels."""

_TIED_MAX = 200_000
_WAITING_MAX = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """By row: the number of its query, its level, its place there, and its measured distance.

    The place is the position in base, or the ordinal in an overlay's level.
    """

    queries: np.ndarray
    levels: np.ndarray
    places: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(
        cls, query: int | np.ndarray, level: int, places: np.ndarray, distances: np.ndarray
    ) -> Candidates:
        """Return the candidates of one level, all of one query or each of another."""
        count = len(places)
        queries = np.full(count, query, np.int32) if isinstance(query, int) else query
        return cls(queries, np.full(count, level, np.int32), places, distances)

    def __len__(self) -> int:
        return len(self.places)

    def at(self, chosen: np.ndarray) -> Candidates:
        """Return some of them, by index or by mask."""
        return Candidates(
            self.queries[chosen], self.levels[chosen], self.places[chosen], self.distances[chosen]
        )

    def nearest(self, k: int) -> Candidates:
        """Return the k nearest of each query, and those that are as near as the last of them."""
        order = np.lexsort((self.distances, self.queries))
        queries, distances = self.queries[order], self.distances[order]
        first = np.searchsorted(queries, queries)
        rank = np.arange(len(order)) - first
        last = np.minimum(first + k, np.searchsorted(queries, queries, side="right")) - 1
        return self.at(order[(rank < k) | (distances == distances[last])])


NONE = Candidates.of(0, BASE, np.zeros(0, np.int64), np.zeros(0, np.float32))


def joined(
    found: Iterable[Candidates], k: int, fewer: Callable[[Candidates], Candidates]
) -> Candidates:
    """Return the k nearest of several levels, with ties; never many more than that are held.

    `fewer` returns k of each query, of ties by key: it is asked for if there are very many.
    """
    best, waiting, count = NONE, list[Candidates](), 0
    for each in found:
        waiting.append(each)
        count += len(each)
        if count > max(len(best), min(16 * k, _WAITING_MAX)):
            best, waiting, count = concatenated([best, *waiting]).nearest(k), [], 0
            best = fewer(best) if len(best) > _TIED_MAX else best
    return concatenated([best, *waiting]).nearest(k)


def concatenated(parts: list[Candidates]) -> Candidates:
    """Return all of several candidates."""
    return Candidates(
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.levels for part in parts]),
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.distances for part in parts]),
    )


def within(query: VectorQuery, distances: np.ndarray) -> np.ndarray:
    """Return which rows have a distance, and one within the bounds: [lower, upper)."""
    lower, upper = query.within
    kept = ~np.isnan(distances)
    with np.errstate(over="ignore"):  # beyond float32 is infinity
        if lower is not None:
            kept &= distances >= np.float32(lower)
        if upper is not None:
            kept &= distances < np.float32(upper)
    return kept
