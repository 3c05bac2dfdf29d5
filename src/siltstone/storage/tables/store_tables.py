"""Store tables: the parts of the storage that know the datasets of one open store."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.storage.tables.keys.key_cover import TableKeys
from siltstone.storage.tables.tables import (
    ClientViews,
    ExternalTables,
    PinPaths,
    PublicNames,
    TableCompactor,
    TableIndexer,
    TableReader,
    TableRewriter,
    TableWriter,
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The datasets of one open store, by what is done with them; threads may share it.

    Ask for one part where one is enough. Every method that returns a `Pin` may raise:
        SchemaMismatchError: The rows or columns do not fit the pin.
        UnavailableError: The file system refuses; no pin came of it.
    """

    reader: TableReader
    paths: PinPaths
    writer: TableWriter
    rewriter: TableRewriter
    compactor: TableCompactor
    indexer: TableIndexer
    names: PublicNames
    external: ExternalTables
    clients: ClientViews
    keys: TableKeys
