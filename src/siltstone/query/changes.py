"""Changes: every row version of the keyed tables over a range of seqs, in seq order.

From un-flushed memtables and from history, which keeps every version; a bulk load that went
straight to base is read from the base version of its seq. Asked from seq 0 when history does not
reach that far back, the feed begins with the state at the oldest kept seq: rows with `_op`
"snapshot".

A feed is of a name: whoever applies it to a copy of what was called so at `since` has a copy of
what is called so at `until`. Where the name passed from one table to another (a drop and a
creation, or renames), a delete for each key of the former one comes at the seq at which that lost
the name, and a table that had lived under another name comes whole at the seq at which it took
this one. A truncate comes as deletes, too. A name that nothing has at `until` has no feed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.chunk import Chunk
from siltstone.engine.core import Core
from siltstone.engine.reader import Reader, plain_folder
from siltstone.engine.shape import Shape, shape_of
from siltstone.engine.view import Levels, State
from siltstone.errors import (
    RequestError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
)
from siltstone.formats.group import DELETE
from siltstone.formats.manifest import Incarnation, Table, Version

FOREVER = 1 << 62
OPS = ("upsert", "delete", "snapshot")


@functools.cache
def _op_names() -> pa.StringArray:
    """Late: the first `pa.array` of Python objects imports pandas, more than a second."""
    return pa.array(["upsert", "delete"])


def kept_from(state: State) -> int:
    """Return the lowest seq since which all changes are kept, whatever tables were renamed."""
    followed = (tag.seq for tag in state.view.catalog.tags if tag.lasts_s)
    return min(state.view.record.oldest_seq, *followed, FOREVER)


def changes(
    core: Core, state: State, since: int, until: int, tables: Sequence[str] | None
) -> dict[str, pa.RecordBatchReader]:
    """Return per keyed table its versions with since < _seq <= until; `_seq`, `_op`, columns.

    Raises:
        SnapshotExpiredError: Versions above `since` (not 0) are not kept any more.
        SchemaMismatchError: The name passed to a table with another key: begin again from seq 0.
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
    taken = catalogs.named_from(table, until)
    gone: Iterator[pa.RecordBatch] = iter(())
    if 0 < since < taken and since < kept_from(state):
        raise SnapshotExpiredError(f"changes since seq {since}", kept_from(state), state.visible)
    if 0 < since < taken and not _had_name(table, since, name):
        gone = _gone(core, state, since, name, shape)
        if table.created < taken:
            whole = _whole(core, state, table, taken, shape, "upsert")
            rest = _versions(core, state, table, taken, until, shape)
            return _reader(fields, gone, whole, rest)
    return _reader(fields, gone, _versions(core, state, table, since, until, shape))


def _reader(fields: pa.Schema, *parts: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    batches = (pa.RecordBatch.from_arrays(b.columns, schema=fields) for p in parts for b in p)
    return pa.RecordBatchReader.from_batches(fields, batches)


def _versions(
    core: Core, state: State, table: Table, since: int, until: int, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """Return the versions of one table; from seq 0, first a snapshot where older ones are gone."""
    spans, whole_from = _kept_spans(state, _spans(state, table, since, until), since)
    if whole_from > until:
        raise SnapshotExpiredError(f"changes until seq {until}", whole_from, state.visible)
    first: Iterator[pa.RecordBatch] = iter(())
    if whole_from:
        first = _whole(core, state, table, whole_from, shape, "snapshot")
    rest = _of_spans(core, state, table, spans, shape, max(since, whole_from), until)
    return itertools.chain(first, rest)


def _whole(
    core: Core, state: State, table: Table, seq: int, shape: Shape, op: str
) -> Iterator[pa.RecordBatch]:
    """Return the rows that live at `seq`, as if they all had come then."""
    reader = core.readers.open(state.view, table, seq)
    return _marked(_aligned(reader, shape, shape.arrow.names), seq, shape, op)


def _had_name(table: Table, since: int, name: str) -> bool:
    return catalogs.is_alive(table, since) and catalogs.name_of(table, since) == name


def _gone(
    core: Core, state: State, since: int, name: str, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """Return a delete for each key, living at `since`, of the table that had the name then."""
    try:
        former = catalogs.find(state.view.catalog, name, since)
    except TableNotFoundError:
        return iter(())
    was = shape_of(catalogs.schema_of(former, since))
    if was.keys is None:
        return iter(())  # a plain table has no feed, so nobody has a copy by it
    lost = catalogs.named_until(former, since)
    if _key_types(was) != _key_types(shape):
        raise SchemaMismatchError(
            f"changes of {name!r} since seq {since}: at seq {lost} the table lost its name, and the"
            f" one that has it now has the key {_key_types(shape)}, not {_key_types(was)}; empty"
            " the copy and read the changes since seq 0"
        )
    reader = core.readers.open(state.view, former, since)
    return _marked(_aligned(reader, shape, shape.codec.names, by_name=True), lost, shape, "delete")


def _key_types(shape: Shape) -> dict[str, pa.DataType]:
    return {name: shape.arrow.field(name).type for name in shape.codec.names}


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


def _kept_spans(
    state: State, spans: list[tuple[Incarnation, int]], since: int
) -> tuple[list[tuple[Incarnation, int]], int]:
    """Return the spans that have all their versions, and the seq from which the first has them.

    Raises:
        SnapshotExpiredError: From `since` (not 0) on some are missing.
    """
    for index in range(len(spans) - 1, -1, -1):
        step = spans[index][0]
        trimmed = state.view.levels[step.id].storage.history_from
        if max(since, step.seq - 1) < trimmed:
            if since:
                raise SnapshotExpiredError(f"changes since seq {since}", trimmed, state.visible)
            return spans[index:], trimmed
    return spans, 0


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
        yield from _batches(
            core, state, levels, table, step.versions, shape, since, min(until, end - 1)
        )
        if end <= until:
            yield from _truncated(core, state, table, shape, end)


def _truncated(
    core: Core, state: State, table: Table, shape: Shape, seq: int
) -> Iterator[pa.RecordBatch]:
    """Yield a truncate as what it does to who follows: a delete of every key that lived before."""
    reader = core.readers.open(state.view, table, seq - 1)
    yield from _marked(_aligned(reader, shape, shape.codec.names), seq, shape, "delete")


def _aligned(
    reader: Reader, shape: Shape, names: Sequence[str], *, by_name: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield a reader's rows as `shape` shows them; columns that are not in `names` are null.

    `by_name`: the reader's table is another one, whose column ids say nothing here.
    """
    shown = set(names)
    for batch in reader.scan():
        rows = batch.num_rows
        arrays = [
            (batch.column(name) if by_name else shape.align(batch, reader.shape, [name])[0])
            if name in shown
            else pa.nulls(rows, shape.arrow.field(name).type)
            for name in shape.arrow.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=shape.arrow)


def _marked(
    batches: Iterator[pa.RecordBatch], seq: int, shape: Shape, op: str
) -> Iterator[pa.RecordBatch]:
    names = ["_seq", "_op", *shape.arrow.names]
    for batch in batches:
        rows = batch.num_rows
        seqs, ops = pa.array(np.full(rows, seq, np.int64)), pa.repeat(pa.scalar(op), rows)
        yield pa.RecordBatch.from_arrays([seqs, ops, *batch.columns], names=names)


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
    opened = core.tables.open(plain_folder(load.pin), load.pin)
    aligned = (
        pa.RecordBatch.from_arrays(
            shape.align(batch, written, shape.arrow.names), schema=shape.arrow
        )
        for batch in opened.scan()
    )
    yield from _marked(aligned, load.seq, shape, "upsert")


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
