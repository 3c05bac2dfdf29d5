"""Store tables: the parts of the storage that know the datasets of one open store."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.storage.tables import tables
from siltstone.storage.tables.keys.key_cover import TableKeys


@dataclass(frozen=True, slots=True)
class Tables:
    """The datasets of one open store, by what is done with them; threads may share it.

    Ask for one part where one is enough. Every method that returns a `Pin` may raise:
        SchemaMismatchError: The rows or columns do not fit the pin.
        UnavailableError: The file system refuses; no pin came of it.
    """

    reader: tables.TableReader
    paths: tables.PinPaths
    writer: tables.TableWriter
    rewriter: tables.TableRewriter
    compactor: tables.TableCompactor
    indexer: tables.TableIndexer
    names: tables.PublicNames
    external: tables.ExternalTables
    clients: tables.ClientViews
    keys: TableKeys
