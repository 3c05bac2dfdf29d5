"""Load: many rows in files of their own that one frame names.

    empty table    stage the rows as the first base ─▶ one `advance` frame: base from its seq on
    any other      stage the rows as a run of history ─▶ one `attach` frame: rows of its seq

The frame is the commit; before it nothing names the files. If a table gets a row while its first
base is staged, admission refuses the load and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.row_input import conformed, stream_of
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Receipt, WriteSet
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import Levels, State, is_empty
from siltstone.engine.write.bulk import (
    BulkRows,
    Repeats,
    attach_part,
    load_part,
    refuse_living,
    unique,
)
from siltstone.engine.write.stage_task import ATTACHED, stored_fields
from siltstone.engine.write.submission import submit
from siltstone.errors import ConflictError
from siltstone.formats.keys import Codes
from siltstone.formats.manifest import TableDefinition
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
    bytes_min: int | None = None,
) -> Receipt | object:
    """Load `rows` if they are many; otherwise return rows for an ordinary write.

    Args:
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
    incarnation = catalogs.incarnation_of(table)
    levels = core.state().view.levels.get(incarnation.id)
    if levels is None:
        return stream
    is_first = is_empty(levels) and not incarnation.versions
    least = bytes_min or (LOAD_BYTES_MIN if is_first else ATTACH_BYTES_MIN)
    head, size = [], 0
    for batch in conformed(stream, table_schema):
        head.append(batch)
        size += batch.nbytes
        if size >= least:
            break
    if size < least:
        return pa.RecordBatchReader.from_batches(table_schema.arrow, head)
    batches = chain(head, conformed(stream, table_schema))
    way = _load if is_first else _attach
    begun = core.begun()
    with core.hold(begun.first_us):
        return way(core, table, table_schema, levels, batches, begun, may_repeat=may_repeat)


def _load(
    core: Core,
    table: TableDefinition,
    table_schema: TableSchema,
    levels: Levels,
    batches: Iterator[pa.RecordBatch],
    begun: Begun,
    *,
    may_repeat: bool,
) -> Receipt:
    folder = f"{levels.storage.folder}/base"
    codes: list[Codes] = []
    empty = core.tables.writer.create(folder, table_schema.arrow)
    pin = core.tables.writer.append(folder, empty, _watched(batches, table_schema, codes))
    written = BulkRows(catalogs.name_of(table), table_schema, folder, pin, table_schema.codec.names)
    rows, _ = unique(core.tables, written, codes, Repeats(are_allowed=may_repeat))
    part = load_part(core, table, levels.storage.incarnation, rows)
    write_set = WriteSet(
        number=next(core.numbers),
        read_seq=None,
        parts=(part,),
        rows=part.rows,
        staged_us=begun.started_us(core.now_us),
    )
    try:
        return submit(core, lambda: write_set)
    except ConflictError:  # somebody wrote a row meanwhile: ours become a run on top of it
        staged = rows.opened(core.tables.reader).scan(table_schema.arrow.names)
        return _attach(core, table, table_schema, levels, staged, begun, may_repeat=may_repeat)


def _attach(
    core: Core,
    table: TableDefinition,
    table_schema: TableSchema,
    levels: Levels,
    batches: Iterator[pa.RecordBatch],
    begun: Begun,
    *,
    may_repeat: bool,
) -> Receipt:
    number = next(core.numbers)
    transaction, state = core.transactions.begin(core.writer().current)
    assert isinstance(state, State)
    try:
        folder = f"{levels.storage.folder}/.attached/{state.view.record.epoch}-{number}"
        fields = stored_fields(table_schema, ATTACHED, "upsert")
        codes: list[Codes] = []
        renamed = (
            pa.RecordBatch.from_arrays(batch.columns, schema=fields)
            for batch in _watched(batches, table_schema, codes)
        )
        pin = core.tables.writer.append(folder, core.tables.writer.create(folder, fields), renamed)
        names = tuple(history_name(column_id) for column_id in table_schema.schema.key)
        written = BulkRows(catalogs.name_of(table), table_schema, folder, pin, names)
        rows, every = unique(core.tables, written, codes, Repeats(are_allowed=may_repeat))
        if not may_repeat:
            reader = core.readers.open(state.view, table, state.visible)
            assert isinstance(reader, KeyedReader)
            refuse_living(core.tables.reader, rows, reader)
        part = attach_part(core, table, levels.storage.incarnation, rows, every)
        write_set = WriteSet(
            number=number,
            read_seq=None if may_repeat else state.visible,
            parts=(part,),
            rows=part.rows,
            staged_us=begun.started_us(core.now_us),
        )
        return submit(core, lambda: write_set)
    finally:
        core.transactions.end(transaction)


def _watched(
    batches: Iterator[pa.RecordBatch], table_schema: TableSchema, codes: list[Codes]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, keeping the codes of their keys."""
    for batch in batches:
        codes.append(table_schema.codec.codes(batch))
        yield batch
