"""Table indexes: what the owner of a store does when an index of a table is asked for or given up.

    checkpoint, so that the newest record knows the table ─▶ declare or drop ─▶ build ─▶ adopt

A declaration in a record names a table that only the log knows by nothing: after a power loss in
async mode its id might be given again. A checkpoint takes seconds, in which the table may be
renamed and another one take its name, so all goes by its id.
"""

from __future__ import annotations

from collections.abc import Mapping

from siltstone.engine.catalog import catalog as catalogs
from siltstone.formats.manifest import Index
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.index.indexer import Indexer


class TableIndexes:
    """See the module. Any thread; holds no lock and no state."""

    def __init__(self, indexer: Indexer, checkpointer: Checkpointer) -> None:
        self._indexer, self._checkpointer = indexer, checkpointer

    def find(self, table: str) -> int:
        """Return the id of a table by its name, as of the newest record, after a checkpoint.

        Raises:
            TableNotFoundError: There is none.
        """
        return catalogs.find(self._checkpointer.checkpoint().catalog, table).id

    def create(
        self,
        table: int,
        column: str,
        kind: str,
        *,
        name: str | None,
        options: Mapping[str, object],
        is_built: bool,
    ) -> Index:
        """Declare an index and, with `is_built`, build it over the base that there is.

        Raises:
            As `Indexer.declare`; a TableNotFoundError also if the table is dropped meanwhile.
        """
        self._checkpointer.checkpoint()
        index = self._indexer.declare(table, column, kind, name=name, options=options)
        if is_built:
            self._indexer.catch_up(table)
        self._checkpointer.adopt_news()
        return index

    def drop(self, table: int, name: str) -> None:
        """Give an index up, and take it out of base.

        Raises:
            As `Indexer.drop`; a TableNotFoundError also if the table is dropped meanwhile.
        """
        self._checkpointer.checkpoint()
        self._indexer.drop(table, name)
        self._indexer.catch_up(table)
        self._checkpointer.adopt_news()
