"""Load: many rows in files of their own that one frame names.

    empty table    stage the rows as the first base ─▶ one `advance` frame: base from its seq on
    any other      stage the rows as a run of history ─▶ one `attach` frame: rows of its seq

The frame is the commit; before it nothing names the files. If a table gets a row while its first
base is staged, admission refuses the load and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter

import msgspec
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.row_input import conformed, stream_of
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import AdvancePart, AttachPart, Receipt, WriteSet
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import State, is_empty
from siltstone.engine.write.bulk import BulkRows, attach_part, load_part, refuse_living, unique
from siltstone.engine.write.stage_task import ATTACHED, stored_fields
from siltstone.engine.write.submission import submit
from siltstone.errors import ConflictError
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.manifest import KeyedStorage, TableDefinition
from siltstone.formats.schema import history_name
from siltstone.storage.tables.jobs import Begun

LOAD_BYTES_MIN = 32 << 20
ATTACH_BYTES_MIN = 64 << 20


def load(
    core: Core,
    table: TableDefinition,
    table_schema: TableSchema,
    rows: object,
    *,
    may_repeat: bool,
    is_whole: bool = False,
    bytes_min: int | None = None,
) -> Receipt | object:
    """Load `rows` if they are many; otherwise return rows for an ordinary write.

    Args:
        is_whole: Rows that lack a column are refused; else they have null there.
        bytes_min: The least size for a load. Default: 32 MiB into a table without a row version,
            64 MiB into any other.

    Raises:
        DuplicateKeyError: Keys are equal, or exist, but may not; nothing was written.
        SchemaMismatchError: The rows do not fit; nothing was written.
        ConflictError: Another transaction wrote to the table meanwhile.
    """
    stream = stream_of(rows)
    if stream is None:
        return rows
    if is_whole:
        table_schema.rows.refuse_lacking(stream.schema.names)
    incarnation = catalogs.incarnation_of(table)
    levels = core.state().view.levels.get(incarnation.id)
    if levels is None:
        return stream
    is_first = is_empty(levels) and not incarnation.versions
    least = bytes_min or (LOAD_BYTES_MIN if is_first else ATTACH_BYTES_MIN)
    head = next(gathered(conformed(stream, table_schema), attrgetter("nbytes"), least), [])
    if sum(batch.nbytes for batch in head) < least:
        return pa.RecordBatchReader.from_batches(table_schema.arrow, head)
    batches = chain(head, conformed(stream, table_schema))
    begun = core.begun()
    with core.site.jobs.hold(begun.first_us):
        bulk = _Bulk(core, table, table_schema, levels.storage, begun, may_repeat)
        return bulk.load(batches) if is_first else bulk.attach(batches)


class _Bulk(msgspec.Struct, frozen=True):
    """A load into one table, which `may_repeat` keys; the storage is as of its begin."""

    core: Core
    table: TableDefinition
    table_schema: TableSchema
    storage: KeyedStorage
    begun: Begun
    may_repeat: bool

    def load(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        core, folder = self.core, f"{self.storage.folder}/base"
        fields, names = self.table_schema.arrow, self.table_schema.codec.names
        rows = self._written(folder, fields, names, batches)
        part = load_part(core, self.table, self.storage.incarnation, rows)
        try:
            return self._submit(next(core.numbers), None, part)
        except ConflictError:  # a row was written meanwhile: ours become a run on top
            return self.attach(rows.opened(core.tables.reader).scan(fields.names))

    def attach(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        core = self.core
        number, transaction = next(core.numbers), next(core.transactions.numbers)
        try:
            state = core.transactions.begin(transaction, core.writer().current)
            assert isinstance(state, State)
            folder = f"{self.storage.folder}/.attached/{state.view.record.epoch}-{number}"
            fields = stored_fields(self.table_schema, ATTACHED, "upsert")
            names = tuple(history_name(column_id) for column_id in self.table_schema.schema.key)
            rows = self._written(folder, fields, names, batches)
            if not self.may_repeat:
                reader = core.readers.open(state.view, self.table, state.visible)
                assert isinstance(reader, KeyedReader)
                refuse_living(core.tables.reader, rows, reader)
            part = attach_part(core, self.table, self.storage.incarnation, rows)
            return self._submit(number, None if self.may_repeat else state.visible, part)
        finally:
            core.transactions.end(transaction)

    def _written(
        self,
        folder: str,
        fields: pa.Schema,
        names: tuple[str, ...],
        batches: Iterator[pa.RecordBatch],
    ) -> BulkRows:
        """Write batches as `fields`; return the rows without repeated keys."""
        tables = self.core.tables

        def stored() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=fields)

        pin = tables.writer.append(tables.writer.create(folder, fields), stored())
        name = catalogs.name_of(self.table)
        written = BulkRows(name, self.table_schema, pin, names)
        return unique(tables, written, may_repeat=self.may_repeat)

    def _submit(self, number: int, read_seq: int | None, part: AdvancePart | AttachPart) -> Receipt:
        write_set = WriteSet(
            number=number,
            read_seq=read_seq,
            parts=(part,),
            rows=part.rows,
            staged_us=self.begun.started_us(self.core.site.now_us),
        )
        return submit(self.core, lambda: write_set)
