"""Read levels: what the reads of one keyed table have in common, at whatever seq they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.columns.images import Images
from siltstone.engine.columns.row_vectors import FreshVectors
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.sources import Source
from siltstone.engine.levels.visibility import VisibilityCache
from siltstone.formats.manifest import Index
from siltstone.storage.tables.tables import TextAnalyzer
from siltstone.storage.tables.values import IndexOption


class TextSearch(msgspec.Struct, frozen=True):
    """The declared indexes of texts of one table, and what takes texts apart as an index does."""

    declared: tuple[Index, ...]
    analyzer: Callable[[Mapping[str, IndexOption | None]], TextAnalyzer]

    def on(self, column: int) -> list[Index]:
        """Return the indexes of texts on a column, by its id."""
        return [index for index in self.declared if index.column == column]


class ReadLevels(msgspec.Struct, frozen=True, eq=False):
    """The levels of a table as `table_schema` shows it: `sources`, oldest first, over `base`.

    `lease` keeps the files of all that is read for as long as a reader, or a scan of one, lives.
    `kept` has what readers before found out, and takes what the next one does if `bytes_left`.
    `images`, if there are some, are of the table at several seqs: `sources` have all row versions
    above `merged_seq`. `vectors` has those of `sources` that searches asked for, and `texts` how
    texts are searched. `valued` are the columns, by id, that have a declared btree.
    """

    table_schema: TableSchema
    sources: tuple[Source, ...]
    base: Base | None
    lease: object = None
    kept: VisibilityCache = msgspec.field(default_factory=VisibilityCache)
    bytes_left: Callable[[], int] = lambda: 0
    images: Images | None = None
    merged_seq: int = 0
    vectors: FreshVectors = msgspec.field(default_factory=FreshVectors)
    texts: TextSearch | None = None
    valued: frozenset[int] = frozenset()
