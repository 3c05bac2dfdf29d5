"""Histories: what a flush writes to the history of a table, and the storages of its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.read_union import EVERYTHING
from siltstone.engine.read.view import View
from siltstone.formats.manifest import Catalog, Fallback, KeyedStorage, Load, Pin, Record
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN, history_name

_BATCH_ROWS = 65_536


class Histories(msgspec.Struct, frozen=True):
    """What a flush adds to one storage: a history, unless there is no `pin`, and loads.

    Its `fallbacks` take the place of those before.
    """

    pin: Pin | None
    columns: tuple[int, ...]
    loads: tuple[Load, ...]
    fallbacks: tuple[Fallback, ...]

    def put_on(self, storage: KeyedStorage) -> KeyedStorage:
        storage = storage.with_fallbacks(self.fallbacks)
        if self.loads:
            storage = storage.with_loads((*storage.loads, *self.loads))
        if self.pin is None:
            return storage
        return msgspec.structs.replace(storage, history=self.pin, history_columns=self.columns)


def stored_after(
    view: View, record: Record, catalog: Catalog, last_seq: int, pins: dict[int, Histories]
) -> tuple[KeyedStorage, ...]:
    """Return the keyed storages of the next record: the winner's, with what was flushed on top."""
    stored = {storage.incarnation: storage for storage in record.keyed}
    for table in catalog.tables:
        for step in table.incarnations if catalogs.schema_of(table).key else ():
            old = stored.get(step.id)
            if old is None:
                # The folder of its first files: the table may have been renamed in the same commit.
                old = KeyedStorage(step.id, view.levels[step.id].storage.folder)
            ours = view.levels[step.id].storage
            if old.merged_seq < ours.merged_seq <= last_seq and step.versions:
                old = old.with_base_of(ours)  # a bulk load went straight to base
            found = pins.get(step.id)
            if found is not None:
                old = found.put_on(old)
            stored[step.id] = old
    return tuple(stored.values())


def history_batches(
    sources: Sequence[Source], table_schema: TableSchema
) -> Iterator[pa.RecordBatch]:
    names = [history_name(column.id) for column in table_schema.schema.columns]
    for source in sources:
        for chunk in source.chunks_upto(EVERYTHING):
            arrays = table_schema.align(chunk.batch, chunk.table_schema, table_schema.arrow.names)
            batch = pa.RecordBatch.from_arrays(
                [*arrays, pa.array(chunk.seqs), pa.array(chunk.ops)],
                names=[*names, SEQ_COLUMN, OP_COLUMN],
            )
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)
