"""Changes: every row version of the keyed tables over a range of seqs, in seq order.

From un-flushed memtables and from history, which keeps every version; a bulk load that went
straight to base is read from the base version of its seq. Asked from seq 0 when history does not
reach that far back, the feed begins with the state at the oldest kept seq: rows with `_op`
"snapshot".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.chunk import Chunk
from siltstone.engine.core import Core
from siltstone.engine.reader import Reader, plain_folder
from siltstone.engine.shape import Shape, shape_of
from siltstone.engine.view import Levels, State
from siltstone.errors import RequestError, SnapshotExpiredError
from siltstone.formats.group import DELETE
from siltstone.formats.manifest import Incarnation, Table, Version

FOREVER = 1 << 62
OPS = ("upsert", "delete", "snapshot")


@functools.cache
def _op_names() -> pa.StringArray:
    """Late: the first `pa.array` of Python objects imports pandas, more than a second."""
    return pa.array(["upsert", "delete"])


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
    fields = pa.schema([pa.field("_seq", pa.int64()), pa.field("_op", pa.string()), *shape.arrow])
    spans = _spans(state, table, since, until)
    kept_from = state.view.levels[spans[0][0].id].storage.history_from
    if 0 < since < kept_from:
        raise SnapshotExpiredError(f"changes since seq {since}", kept_from, state.visible)
    first: Iterator[pa.RecordBatch] = iter(())
    if since < kept_from:
        reader = core.readers.open(state.view, table, kept_from, defined_at=kept_from)
        rows = _aligned(reader, shape, shape.arrow.names)
        first = _marked(rows, kept_from, fields, "snapshot")
    rest = _of_spans(core, state, table, spans, shape, max(since, kept_from), until)
    return pa.RecordBatchReader.from_batches(fields, _chained(first, rest, fields))


def _spans(state: State, table: Table, since: int, until: int) -> list[tuple[Incarnation, int]]:
    """Return the incarnations that live in (since, until], each with the seq that truncated it.

    One that was truncated in the commit that made it never had a row that anybody could see.
    """
    steps = [step for step in table.incarnations if step.seq <= until]
    ends = [*(step.seq for step in steps[1:]), FOREVER]
    spans = [(s, e) for s, e in zip(steps, ends, strict=True) if e > max(since, s.seq)]
    begin = spans[0][0].seq
    if 0 < since < begin and table.created < begin and spans[0][0] is table.incarnations[0]:
        raise SnapshotExpiredError(f"changes since seq {since}", begin, state.visible)
    return spans


def _of_spans(
    core: Core,
    state: State,
    table: Table,
    spans: Sequence[tuple[Incarnation, int]],
    shape: Shape,
    since: int,
    until: int,
) -> Iterator[pa.RecordBatch]:
    for step, end in spans:
        levels = state.view.levels[step.id]
        low, high = max(since, levels.storage.history_from), min(until, end - 1)
        yield from _batches(core, state, levels, table, step.versions, shape, low, high)
        if end <= until:
            yield from _truncated(core, state, table, shape, end)


def _truncated(
    core: Core, state: State, table: Table, shape: Shape, seq: int
) -> Iterator[pa.RecordBatch]:
    """Yield a truncate as what it does to who follows: a delete of every key that lived before."""
    reader = core.readers.open(state.view, table, seq - 1)
    fields = pa.schema([pa.field("_seq", pa.int64()), pa.field("_op", pa.string()), *shape.arrow])
    yield from _marked(_aligned(reader, shape, shape.codec.names), seq, fields, "delete")


def _aligned(reader: Reader, shape: Shape, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a reader's rows as `shape` shows them; columns that are not in `names` are null."""
    shown = set(names)
    for batch in reader.scan():
        arrays = shape.align(batch, reader.shape, shape.arrow.names)
        yield pa.RecordBatch.from_arrays(
            [
                array if name in shown else pa.nulls(batch.num_rows, array.type)
                for name, array in zip(shape.arrow.names, arrays, strict=True)
            ],
            schema=shape.arrow,
        )


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
    fields = pa.schema([pa.field("_seq", pa.int64()), pa.field("_op", pa.string()), *shape.arrow])
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
    ops = _op_names().take(pa.array((chunk.ops[low:high] == DELETE).astype(np.int8)))
    arrays = shape.align(batch, chunk.shape, shape.arrow.names)
    names = ["_seq", "_op", *shape.arrow.names]
    yield pa.RecordBatch.from_arrays([pa.array(chunk.seqs[low:high]), ops, *arrays], names=names)
