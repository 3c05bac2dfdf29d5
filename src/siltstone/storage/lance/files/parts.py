"""Parts: the fragments of a pinned version, in the order of their rows; see `pinned`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from siltstone.storage.tables.values import Span


def data_files(metadata: Any) -> list[str]:
    """Return the names of a fragment's data files, below the folder for these.

    Lance makes a class for each answer of `path`, to warn of old calls: 20 us each, which every
    commit would pay for every part.
    """
    return [getattr(file, "_path", None) or str(file.path) for file in metadata.files]


@dataclass(frozen=True, slots=True)
class Part:
    """A fragment: `start` is the position of its first row, `paths` its data and deletion files.

    It has `rows` live rows of `stored` rows in its data files; the others are deleted. `index` is
    its position, and `lance_start` the offset of its first row, in Lance's own order.
    """

    number: int
    start: int
    rows: int
    paths: tuple[str, ...]
    index: int
    lance_start: int
    stored: int

    @property
    def span(self) -> Span:
        """The positions [first, end) of its rows."""
        return self.start, self.start + self.rows

    def is_within(self, span: Span) -> bool:
        return span[0] <= self.start and self.start + self.rows <= span[1]

    def is_around(self, span: Span) -> bool:
        """Return whether the part has the rows of the span, and others."""
        is_all = self.start <= span[0] < span[1] <= self.start + self.rows
        return is_all and not self.is_within(span)
