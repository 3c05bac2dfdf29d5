"""Table indexes: the owner creates and drops indexes of a table.

    checkpoint, so that the newest record has the table ─▶ declare or drop ─▶ build ─▶ refresh

A record cannot declare an index of a table that only the log has: after a power loss in async mode
the id of the table might be used again. A checkpoint takes seconds, in which the table may be
renamed and another one may take its name, so all steps use its id.
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
            TableNotFoundError: There is no such table.
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
        """Declare an index and, with `is_built`, build it over the present base.

        Raises:
            As `Indexer.declare`; a TableNotFoundError also if the table is dropped meanwhile.
        """
        self._checkpointer.checkpoint()
        index = self._indexer.declare(table, column, kind, name=name, options=options)
        if is_built:
            self._indexer.catch_up(table)
        self._checkpointer.refresh()
        return index

    def drop(self, table: int, name: str) -> None:
        """Drop an index, and remove it from base.

        Raises:
            As `Indexer.drop`; a TableNotFoundError also if the table is dropped meanwhile.
        """
        self._checkpointer.checkpoint()
        self._indexer.drop(table, name)
        self._indexer.catch_up(table)
        self._checkpointer.refresh()
