"""Changes: every row version of the keyed tables over a range of seqs, in seq order.

From un-flushed memtables and from history, which keeps every version; a bulk load that went straight
to base is read from the base version of its seq. Asked from seq 0 when history does not reach that
far back, the feed begins with the state at the oldest kept seq: rows with `_op` "snapshot".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.chunk import Chunk
from siltstone.engine.core import Core
from siltstone.engine.reader import plain_folder
from siltstone.engine.shape import Shape, shape_of
from siltstone.engine.view import Levels, State
from siltstone.errors import RequestError, SnapshotExpiredError
from siltstone.formats.group import DELETE
from siltstone.formats.manifest import Table, Version

OPS = ("upsert", "delete", "snapshot")
_OP_NAMES = pa.array(["upsert", "delete"])


def changes(
    core: Core, state: State, since: int, until: int, tables: Sequence[str] | None
) -> dict[str, pa.RecordBatchReader]:
    """Return per keyed table its versions with since < _seq <= until; `_seq`, `_op`, columns.

    Raises:
        SnapshotExpiredError: Versions above `since` (not 0) are not kept any more.
        TableNotFoundError, RequestError: No such table at `until`; a plain table; a bad range.
    """
    if not 0 <= since <= until:
        raise RequestError(f"changes from seq {since} to {until}: 0 <= since <= until is needed")
    names = [tables] if isinstance(tables, str) else tables
    if names is None:
        every = [t for t in state.view.catalog.tables if catalogs.is_alive(t, until)]
        names = [catalogs.name_of(t, until) for t in every if catalogs.schema_of(t, until).key]
    return {name: _table_changes(core, state, since, until, name) for name in names}


def _table_changes(
    core: Core, state: State, since: int, until: int, name: str
) -> pa.RecordBatchReader:
    table = catalogs.find(state.view.catalog, name, until)
    shape = shape_of(catalogs.schema_of(table, until))
    if shape.keys is None:
        raise RequestError(f"{name!r} is a plain table: it has versions, not changes")
    incarnation = catalogs.incarnation_of(table, until)
    levels = state.view.levels[incarnation.id]
    kept_from = levels.storage.history_from
    if 0 < since < kept_from:
        raise SnapshotExpiredError(f"changes since seq {since}", kept_from, state.visible)
    fields = pa.schema([("_seq", pa.int64()), ("_op", pa.string()), *shape.arrow])
    start = max(since, kept_from)
    batches = _batches(core, state, levels, table, incarnation.versions, shape, start, until)
    if since < kept_from:
        reader = core.readers.open(state.view, table, kept_from, defined_at=until)
        first = _marked(reader.scan(), kept_from, fields, "snapshot")
        return pa.RecordBatchReader.from_batches(fields, _chained(first, batches, fields))
    return pa.RecordBatchReader.from_batches(fields, _chained(iter(()), batches, fields))


def _chained(
    first: Iterator[pa.RecordBatch], rest: Iterator[pa.RecordBatch], fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    yield from first
    for batch in rest:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=fields)


def _marked(
    batches: Iterator[pa.RecordBatch], seq: int, fields: pa.Schema, op: str
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.num_rows
        seqs, ops = pa.array(np.full(rows, seq, np.int64)), pa.repeat(pa.scalar(op), rows)
        yield pa.RecordBatch.from_arrays([seqs, ops, *batch.columns], schema=fields)


def _batches(
    core: Core,
    state: State,
    levels: Levels,
    table: Table,
    loads: Sequence[Version],
    shape: Shape,
    since: int,
    until: int,
) -> Iterator[pa.RecordBatch]:
    for load in loads:  # a load is the first thing that ever happened to its incarnation
        if since < load.seq <= until:
            yield from _loaded(core, table, load, shape)
    flushed = state.view.record.flushed_seq
    run = core.readers.history(table, levels.storage, since, min(until, flushed), state.view.lease)
    sources = [*(() if run is None else (run,)), *levels.sealed, levels.active]
    for source in sources:
        for chunk in source.chunks_upto(until):
            yield from _of_chunk(chunk, shape, since, until)


def _loaded(core: Core, table: Table, load: Version, shape: Shape) -> Iterator[pa.RecordBatch]:
    written = shape_of(catalogs.schema_of(table, load.seq))
    fields = pa.schema([("_seq", pa.int64()), ("_op", pa.string()), *shape.arrow])
    opened = core.tables.open(plain_folder(load.pin), load.pin)
    aligned = (
        pa.RecordBatch.from_arrays(
            shape.align(batch, written, shape.arrow.names), schema=shape.arrow
        )
        for batch in opened.scan()
    )
    yield from _marked(aligned, load.seq, fields, "upsert")


def _of_chunk(chunk: Chunk, shape: Shape, since: int, until: int) -> Iterator[pa.RecordBatch]:
    low = int(np.searchsorted(chunk.seqs, since, "right"))
    high = int(np.searchsorted(chunk.seqs, until, "right"))
    if low >= high:
        return
    batch = chunk.batch.slice(low, high - low)
    ops = _OP_NAMES.take(pa.array((chunk.ops[low:high] == DELETE).astype(np.int8)))
    arrays = shape.align(batch, chunk.shape, shape.arrow.names)
    names = ["_seq", "_op", *shape.arrow.names]
    yield pa.RecordBatch.from_arrays([pa.array(chunk.seqs[low:high]), ops, *arrays], names=names)
