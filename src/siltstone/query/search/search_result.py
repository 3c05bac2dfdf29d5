"""Search result: the rows of a search, in memory, as Arrow, as frames and as rows of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from siltstone.query.held_rows import HeldRows


class SearchResult(HeldRows):
    """The rows of a search, the nearest first; those of many vectors one query behind the other.

    `_distance` (float32) says how far a row is. With a list of vectors `_query` (int32) says which
    of them found it, counted from 0. Iterating gives rows as dicts. Immutable.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())
