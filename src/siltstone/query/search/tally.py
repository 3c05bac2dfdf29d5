"""Tally: the rows that are taken apart here: which have the words of a query, and their statistics.

    term     a word of the query; a repeated one counts as often as it is there
    word     a word of a row that is a term, or in a fuzzy search is like one
    df       how many rows have a word

The score is BM25, exactly as Lance has it (`storage.lance.search.text_search`): the sum over the
terms, and over the words that each of them accepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.columns.row_texts import TextBlock
from siltstone.query.search.candidates import Candidates
from siltstone.query.search.text_query import TextQuery
from siltstone.storage.tables.tables import TextAnalyzer

K1, B = 1.2, 0.75

Hits = tuple[np.ndarray, np.ndarray]
"""Rows, and how often each has a word."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The words of a query, as an index of texts takes them apart."""

    query: TextQuery
    terms: tuple[str, ...]
    analyzer: TextAnalyzer

    def accepted(self, words: pa.LargeStringArray) -> list[list[int]]:
        """Return for each term the numbers of the words that it accepts."""
        known: dict[str, list[int]] = {}
        for term in self.terms:
            if term not in known:
                known[term] = self._accepted(words, term)
        return [known[term] for term in self.terms]

    def _accepted(self, words: pa.LargeStringArray, term: str) -> list[int]:
        if self.query.edits:
            return np.flatnonzero(self.analyzer.near(words, term, self.query.edits)).tolist()
        number = pc.index(words, pa.scalar(term, pa.large_string())).as_py()
        return [] if number < 0 else [number]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What scores are made of besides the rows themselves; `df` is asked for the words found."""

    texts: int
    words: int
    df: Callable[[str], int]


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Rows of one level that match: their numbers of words, and by word which of them have it.

    `terms` has for each term the words that it accepts.
    """

    level: int
    places: np.ndarray
    lengths: np.ndarray
    hits: Mapping[str, Hits]
    terms: tuple[tuple[str, ...], ...]

    def scores(self, idf: Callable[[str], float], average: float) -> np.ndarray:
        found = np.zeros(len(self.places))
        norms = K1 * (1 - B + B * self.lengths / average)
        for word, (rows, counts) in self.hits.items():
            times = sum(words.count(word) for words in self.terms)
            found[rows] += times * idf(word) * counts * (K1 + 1) / (counts + norms[rows])
        return found


@dataclass(slots=True)
class Tally:
    """The statistics of all rows that were added, and those that match. One thread.

    What it holds grows with the rows that match, not with those that were added.
    """

    wanted: Wanted
    texts: int = 0
    words: int = 0
    df: Counter[str] = field(default_factory=Counter[str])
    _matches: list[_Matches] = field(default_factory=list[_Matches])

    def add(
        self,
        block: TextBlock,
        level: int,
        places: np.ndarray,
        lives: np.ndarray,
        matching: np.ndarray,
        texts: Callable[[np.ndarray], pa.Array],
    ) -> None:
        """Add the rows of a block.

        Args:
            block: Their words.
            level: See `Candidates`.
            places: By row its place there.
            lives: Which rows count in the statistics.
            matching: Which of them may be in the answer.
            texts: Returns the texts of some of the rows, by their numbers, ascending.
        """
        lengths = block.lengths
        self.texts += int(np.count_nonzero(lives & (lengths > 0)))
        self.words += int(lengths[lives].sum())
        accepted = self.wanted.accepted(block.words)
        hits = dict[int, Hits]()
        for number in sorted({number for numbers in accepted for number in numbers}):
            rows, counts = block.having(number)
            kept = lives[rows]
            if kept.any():
                hits[number] = rows[kept], counts[kept]
                self.df[block.words[number].as_py()] += int(kept.sum())
        found = self._found(accepted, hits, matching, texts)
        if len(found):
            named = {block.words[number].as_py(): hits[number] for number in hits}
            terms = tuple(tuple(block.words[n].as_py() for n in numbers) for numbers in accepted)
            self._matches.append(
                _Matches(level, places[found], lengths[found], _among(named, found), terms)
            )

    def _found(
        self,
        accepted: list[list[int]],
        hits: Mapping[int, Hits],
        matching: np.ndarray,
        texts: Callable[[np.ndarray], pa.Array],
    ) -> np.ndarray:
        """Return the numbers of the rows that match, ascending."""
        masks: list[np.ndarray] = []
        for numbers in accepted:
            has = np.zeros(len(matching), bool)
            for number in numbers:
                if number in hits:
                    has[hits[number][0]] = True
            masks.append(has)
        query = self.wanted.query
        together = np.logical_and if query.has_all else np.logical_or
        found = np.flatnonzero(together.reduce(masks) & matching) if masks else np.zeros(0, int)
        if query.is_phrase and len(found):
            found = found[self.wanted.analyzer.with_phrase(texts(found), query.words)]
        return found

    def candidates(self, statistics: Statistics, weight: float) -> Iterator[Candidates]:
        """Yield the rows that match; the least distance is the highest score."""
        idfs: dict[str, float] = {}

        def idf(word: str) -> float:
            if word not in idfs:
                df = statistics.df(word)
                idfs[word] = float(np.log1p((statistics.texts - df + 0.5) / (df + 0.5)))
            return idfs[word]

        average = statistics.words / max(statistics.texts, 1)
        for each in self._matches:
            scores = (each.scores(idf, average) * weight).astype(np.float32)
            yield Candidates.of(0, each.level, each.places, -scores)


def _among(hits: Mapping[str, Hits], chosen: np.ndarray) -> dict[str, Hits]:
    """Return the hits in some rows, by their places among these."""
    found = dict[str, Hits]()
    for word, (rows, counts) in hits.items():
        kept = np.isin(rows, chosen, assume_unique=True)
        if kept.any():
            found[word] = np.searchsorted(chosen, rows[kept]), counts[kept]
    return found
