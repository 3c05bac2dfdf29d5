"""Fallback rows: flushed rows that Lance refused, as a sealed memtable again.

They are read from their file when a reader first needs them, and shared from then on, for as long
as a view or a reader has them. So all that reads levels reads them, too.

Lock: one, held while a file is read, so that it is in memory once.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema, aligned, whole_table_schema
from siltstone.engine.levels.memtable import Memtable
from siltstone.formats.manifest import Fallback, TableDefinition
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN
from siltstone.storage.tables.tables import TableReader


class FallbackRows:
    """See the module; any thread."""

    def __init__(self, tables: TableReader) -> None:
        self._tables, self._lock = tables, threading.Lock()
        self._known: weakref.WeakValueDictionary[str, Memtable] = weakref.WeakValueDictionary()

    def of(self, table: TableDefinition, fallback: Fallback) -> Memtable:
        """Return the rows of one file.

        Raises:
            CorruptionError: The bytes are not those that were written.
            UnavailableError: The file system refuses.
        """
        path = fallback.pin.path
        with self._lock:
            found = self._known.get(path)
            if found is None:
                rows = self._tables.read_arrow(fallback.pin)
                found = self._known[path] = memtable_of(rows, whole_table_schema(table))
            return found


def memtable_of(rows: pa.Table, table_schema: TableSchema) -> Memtable:
    """Return row versions with the columns of history; columns that they lack are null."""
    memtable, has = Memtable(table_schema), set(rows.schema.names)
    names = [name if name in has else None for name in table_schema.arrow.names]
    for batch in rows.to_batches():
        columns = aligned(batch, names, table_schema.arrow)
        whole = pa.RecordBatch.from_arrays(columns, schema=table_schema.arrow)
        seqs = batch.column(SEQ_COLUMN).to_numpy().astype(np.int64)
        ops = batch.column(OP_COLUMN).to_numpy().astype(np.int8)
        memtable.append_versions(table_schema, whole, table_schema.codec.codes(whole), seqs, ops)
    memtable.settle()
    return memtable
