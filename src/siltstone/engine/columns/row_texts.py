"""Row texts: the words of row versions above base, for searches in memory.

    words    the distinct words of some rows, as a tokenizer made them of the texts
    numbers  the words of all these rows, one behind the other, by their places in `words`
    ends     by row: where its words end

A word is found by one comparison with all numbers, a hundred times faster than the texts are taken
apart. So there is no list of rows by word to keep in order. Blocks are kept like those of vectors,
see `row_vectors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class TextBlock:
    """The words of the rows from ordinal `start` of an origin on; a null has none."""

    start: int
    words: pa.LargeStringArray
    numbers: np.ndarray
    ends: np.ndarray

    @property
    def end(self) -> int:
        """One above the ordinal of the last row."""
        return self.start + len(self.ends)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.words.nbytes + self.numbers.nbytes + self.ends.nbytes

    @property
    def lengths(self) -> np.ndarray:
        """The number of words of each row."""
        return np.diff(self.ends, prepend=0)

    def upto(self, end: int) -> TextBlock:
        """Return the rows with an ordinal below `end`."""
        ends = self.ends[: end - self.start]
        if len(ends) == len(self.ends):
            return self
        return TextBlock(self.start, self.words, self.numbers[: ends[-1] if len(ends) else 0], ends)

    def followed_by(self, other: TextBlock) -> TextBlock:
        """Return both as one; `other` has the next rows."""
        pieces: Any = [
            pa.DictionaryArray.from_arrays(pa.array(block.numbers, pa.int32()), block.words)
            for block in (self, other)
        ]
        whole = pa.chunked_array(pieces).unify_dictionaries().combine_chunks()
        numbers = whole.indices.to_numpy()
        ends = np.concatenate((self.ends, other.ends + len(self.numbers)))
        return TextBlock(self.start, whole.dictionary, numbers, ends)

    def having(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that have a word, from 0, ascending, and how often each has it."""
        places = np.flatnonzero(self.numbers == number)
        return np.unique(np.searchsorted(self.ends, places, side="right"), return_counts=True)


def text_block(tokens: Callable[[str], Sequence[str]], array: pa.Array, start: int) -> TextBlock:
    """Return a column of texts as a block; `tokens` takes a text apart."""
    places = dict[str, int]()
    numbers, ends = list[int](), list[int]()
    for text in cast("list[str | None]", array.to_pylist()):
        if text is not None:  # an empty one is a word of `base_tokenizer="raw"`
            numbers += [places.setdefault(word, len(places)) for word in tokens(text)]
        ends.append(len(numbers))
    words = pa.array([*places], pa.large_string())
    return TextBlock(start, words, np.array(numbers, np.int32), np.array(ends, np.int64))
