"""Load: many rows at once, as files of their own that one frame names.

    virgin table   stage the rows as the first base ─▶ one `advance` frame: base from its seq on
    any other      stage the rows as a run of history ─▶ one `attach` frame: rows of its seq

The commit is the frame; before it nobody names the files. Should a table have got a row while its
first base was staged, the load is refused at admission and nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.chunk import run_of
from siltstone.engine.core import Core
from siltstone.engine.input import conformed, stream_of
from siltstone.engine.keyed_writes import chunk_of_batch
from siltstone.engine.read_union import KeyedReader
from siltstone.engine.shape import Shape
from siltstone.engine.submission import submit
from siltstone.engine.view import Levels, State, is_virgin
from siltstone.engine.write_set import AdvancePart, AttachPart, Receipt, WriteSet
from siltstone.errors import ConflictError, DuplicateKeyError
from siltstone.formats import group
from siltstone.formats.keys import Codes, newest_rows
from siltstone.formats.manifest import Pin, Table
from siltstone.formats.schema import history_field, history_name

LOAD_BYTES_MIN = 32 << 20
ATTACH_BYTES_MIN = 64 << 20
_BITS_PER_CODE_MAX = 16


def load(
    core: Core,
    table: Table,
    shape: Shape,
    rows: object,
    *,
    may_repeat: bool,
    bytes_min: int | None = None,
) -> Receipt | object:
    """Load `rows` if they are many, else return rows to write the ordinary way.

    Args:
        bytes_min: From how many bytes on; by default 32 MiB into a table without a row version,
            64 MiB into any other.

    Raises:
        DuplicateKeyError: Equal keys, or keys that live, and they may not; nothing was written.
        SchemaMismatchError: The rows do not fit; nothing was written.
        ConflictError: Somebody wrote to the table meanwhile.
    """
    stream = stream_of(rows)
    if stream is None:
        return rows
    incarnation = catalogs.incarnation_of(table)
    levels = core.state().view.levels.get(incarnation.id)
    if levels is None:
        return stream
    is_first = is_virgin(levels) and not incarnation.versions
    least = bytes_min or (LOAD_BYTES_MIN if is_first else ATTACH_BYTES_MIN)
    head, size = [], 0
    for batch in conformed(stream, shape):
        head.append(batch)
        size += batch.nbytes
        if size >= least:
            break
    if size < least:
        return pa.RecordBatchReader.from_batches(shape.arrow, head)
    batches = chain(head, conformed(stream, shape))
    way = _load if is_first else _attach
    return way(core, table, shape, levels, batches, may_repeat=may_repeat)


def _load(
    core: Core,
    table: Table,
    shape: Shape,
    levels: Levels,
    batches: Iterator[pa.RecordBatch],
    *,
    may_repeat: bool,
) -> Receipt:
    folder = f"{levels.storage.folder}/base"
    codes: list[Codes] = []
    empty = core.tables.create(folder, shape.arrow)
    pin = core.tables.append(folder, empty, _watched(batches, shape, codes))
    names = list(shape.codec.names)
    pin, _ = _unique(core, table, shape, folder, pin, codes, names, may_repeat=may_repeat)
    entry = group.Advance(levels.storage.incarnation, 0, pin)
    base = core.readers.base_of(folder, pin, shape)
    part = AdvancePart(table.id, levels.storage.incarnation, 0, entry, pin.rows, base)
    write_set = WriteSet(number=next(core.numbers), read_seq=None, parts=(part,), rows=pin.rows)
    try:
        return submit(core, lambda: write_set)
    except ConflictError:  # somebody wrote a row meanwhile: ours become a run on top of it
        staged = core.tables.open(folder, pin).scan(shape.arrow.names)
        return _attach(core, table, shape, levels, staged, may_repeat=may_repeat)


def _attach(
    core: Core,
    table: Table,
    shape: Shape,
    levels: Levels,
    batches: Iterator[pa.RecordBatch],
    *,
    may_repeat: bool,
) -> Receipt:
    number = next(core.numbers)
    transaction, state = core.transactions.begin(core.writer().current)
    assert isinstance(state, State)
    try:
        if not may_repeat:
            reader = core.readers.open(state.view, table, state.visible)
            assert isinstance(reader, KeyedReader)
            batches = _absent(batches, reader, shape, catalogs.name_of(table))
        folder = f"{levels.storage.folder}/.attached/{state.view.record.epoch}-{number}"
        fields = pa.schema([history_field(column) for column in shape.schema.columns])
        codes: list[Codes] = []
        renamed = (
            pa.RecordBatch.from_arrays(batch.columns, schema=fields)
            for batch in _watched(batches, shape, codes)
        )
        pin = core.tables.append(folder, core.tables.create(folder, fields), renamed)
        names = [history_name(column_id) for column_id in shape.schema.key]
        pin, written = _unique(core, table, shape, folder, pin, codes, names, may_repeat=may_repeat)
        incarnation = levels.storage.incarnation
        entry = group.Attach(incarnation, shape.id, pin, group.UPSERT, pin.rows)
        opened = core.tables.open(folder, pin)
        part = AttachPart(
            table.id, incarnation, shape, entry, pin.rows, run_of(written, 0).codes, opened
        )
        write_set = WriteSet(
            number=number,
            read_seq=None if may_repeat else state.visible,
            parts=(part,),
            rows=pin.rows,
        )
        return submit(core, lambda: write_set)
    finally:
        core.transactions.end(transaction)


def _watched(
    batches: Iterator[pa.RecordBatch], shape: Shape, codes: list[Codes]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, keeping the codes of their keys."""
    for batch in batches:
        codes.append(shape.codec.codes(batch))
        yield batch


def _absent(
    batches: Iterator[pa.RecordBatch], reader: KeyedReader, shape: Shape, name: str
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; refuse a key that lives."""
    for batch in batches:
        found = reader.first_existing(chunk_of_batch(batch, shape))
        if found is not None:
            raise DuplicateKeyError(name, shape.codec.to_user(found))
        yield batch


def _unique(
    core: Core,
    table: Table,
    shape: Shape,
    folder: str,
    pin: Pin,
    codes: list[Codes],
    names: list[str],
    *,
    may_repeat: bool,
) -> tuple[Pin, Codes]:
    """Return the pin with each key once (its last row), and the codes of the keys, in no order."""
    every = np.concatenate(codes)
    if _all_differ(every):
        return pin, every
    keys_at = _keys_at(core, shape, folder, pin, names)
    newest = newest_rows(shape.codec, every, keys_at)
    if len(newest) < pin.rows:
        dropped = np.setdiff1d(np.arange(pin.rows), newest)
        if not may_repeat:
            key = keys_at(dropped[:1])[0]
            raise DuplicateKeyError(catalogs.name_of(table), shape.codec.to_user(key))
        pin = core.tables.rewrite(folder, pin, drop=dropped, batches=())
    return pin, every[newest]


def _all_differ(codes: Codes) -> bool:
    """Say whether no two codes are equal: by a bit per value where they lie close, else sorted.

    Of 10 M shuffled codes the sort takes 0.8 s, the bits 0.1 s.
    """
    if len(codes) < 2 or (codes[1:] > codes[:-1]).all():
        return True
    low, high = int(codes.min()), int(codes.max())
    if high - low < _BITS_PER_CODE_MAX * len(codes):
        seen = np.zeros(high - low + 1, bool)
        seen[codes - low] = True
        return int(np.count_nonzero(seen)) == len(codes)
    ordered = np.sort(codes)
    return not (ordered[1:] == ordered[:-1]).any()


def _keys_at(
    core: Core, shape: Shape, folder: str, pin: Pin, names: list[str]
) -> Callable[[np.ndarray], list[object]]:
    def keys_at(positions: np.ndarray) -> list[object]:
        taken = core.tables.open(folder, pin).take(positions, names)
        return shape.codec.keys(taken.rename_columns(list(shape.codec.names)))

    return keys_at
