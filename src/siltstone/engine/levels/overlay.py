"""Overlay: the rows of a read, as bits: which of base are visible, and which of the levels above.

Made once for a reader, and asked by scans, by ranges and by what plans both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from siltstone.engine.levels.load_keys import Part
from siltstone.engine.levels.sources import Source
from siltstone.engine.levels.visibility import Visibility


class Lives(NamedTuple):
    """A source with its rows of a read, and for each row whether it is visible.

    `first` is the place of its first row (see `visibility`).
    """

    source: Source
    parts: tuple[Part, ...]
    kept: pa.BooleanArray
    first: int

    @property
    def ordinals(self) -> np.ndarray:
        """The ordinals of the visible rows, ascending."""
        return np.flatnonzero(self.kept.to_numpy(zero_copy_only=False))

    def ordinals_of(self, places: np.ndarray) -> np.ndarray:
        """Return the ordinals of those of some places that are of its rows."""
        return places[(places >= self.first) & (places < self.first + len(self.kept))] - self.first


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """The rows of a read: sources with live rows, oldest first, and the visible rows of base.

    `parts`: the row versions of all sources, in the order of their places.
    """

    levels: tuple[Lives, ...]
    parts: tuple[Part, ...]
    visibility: Visibility
    rows: int
    visible: pa.BooleanArray

    @property
    def shadowed(self) -> np.ndarray:
        """The positions of the hidden rows of base, ascending."""
        return np.flatnonzero(~self.visibility.visible.bools())


Level = tuple[Source, tuple[Part, ...]]
"""A source and its rows of a read."""


def parts_with_rows(found: Sequence[Level]) -> list[Part]:
    """Return the rows of some levels, in their order."""
    return [part for _, parts in found for part in parts if part.rows]


def overlay_of(found: Sequence[Level], visibility: Visibility) -> Overlay:
    """Return the overlay of levels whose `parts_with_rows` are those of `visibility`."""
    live = visibility.live.mask()
    levels: list[Lives] = []
    start = 0
    for source, parts in found:
        rows = sum(part.rows for part in parts)
        kept = live.slice(start, rows)
        start += rows
        if kept.true_count:
            levels.append(Lives(source, parts, kept, start - rows))
    return Overlay(
        tuple(levels),
        tuple(parts_with_rows(found)),
        visibility,
        visibility.live.count,
        visibility.visible.mask(),
    )
