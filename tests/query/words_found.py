"""The rows with some words by brute force, for tests of searches for words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import lance

Texts = Mapping[Any, str | None]
Options = Mapping[str, Any]
K1, B = 1.2, 0.75


def tokens(text: str | None, options: Options) -> list[tuple[str, int]]:
    """Return the words of a text, each with its place."""
    taken = {name: value for name, value in options.items() if name != "with_position"}
    return [(t.text, t.position) for t in lance.tokenize(text, **taken)] if text is not None else []


def edits(one: str, other: str) -> int:
    """Return how many letters are more, less or changed."""
    row = [*range(len(other) + 1)]
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def has_phrase(text: Sequence[tuple[str, int]], phrase: Sequence[tuple[str, int]]) -> bool:
    """Say whether the words of a phrase are in a text with the same gaps between them."""
    there = set(text)
    return any(all((w, at + p - phrase[0][1]) in there for w, p in phrase) for _, at in text)


def scores(
    texts: Texts,
    words: str,
    options: Options,
    *,
    operator: str = "or",
    phrase: bool = False,
    fuzzy: int = 0,
) -> dict[Any, float]:
    """Return the BM25 scores of the rows that match, by the statistics of all rows."""
    asked = tokens(words, options)
    rows = {key: tokens(text, options) for key, text in texts.items()}
    rows = {key: row for key, row in rows.items() if row}
    df: dict[str, int] = {}
    for row in rows.values():
        for word in {word for word, _ in row}:
            df[word] = df.get(word, 0) + 1
    average = sum(map(len, rows.values())) / max(len(rows), 1)
    found: dict[Any, float] = {}
    for key, row in rows.items():
        named = [word for word, _ in row]
        parts = [
            [
                _part(named, word, df[word], len(rows), average)
                for word in set(named)
                if word == term or (fuzzy and edits(word, term) <= fuzzy)
            ]
            for term, _ in asked
        ]
        together = all if operator == "and" or phrase else any
        if asked and together(parts) and (not phrase or has_phrase(row, asked)):
            found[key] = sum(map(sum, parts))
    return found


def _part(row: Sequence[str], word: str, df: int, count: int, average: float) -> float:
    times = row.count(word)
    idf = math.log(1 + (count - df + 0.5) / (df + 0.5))
    return idf * times * (K1 + 1) / (times + K1 * (1 - B + B * len(row) / average))


def found(result: Any, key: str = "id") -> list[Any]:
    """Return the keys of the rows of a search, in their order."""
    return [row[key] for row in result]
