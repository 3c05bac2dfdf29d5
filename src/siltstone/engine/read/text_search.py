"""Text search: what a reader of a table knows of its indexes of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from siltstone.formats.manifest import Index
from siltstone.storage.tables.tables import TextAnalyzer
from siltstone.storage.tables.values import IndexOption

Analyzers = Callable[[Mapping[str, IndexOption | None]], TextAnalyzer]


class TextSearch(msgspec.Struct, frozen=True):
    """The declared indexes of texts of one table, and what takes texts apart as an index does."""

    declared: tuple[Index, ...]
    analyzer: Analyzers

    def on(self, column: int) -> list[Index]:
        """Return the indexes of texts on a column, by its id."""
        return [index for index in self.declared if index.column == column]
