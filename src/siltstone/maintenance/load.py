"""Load: many rows into a keyed table that has no row version at all go straight to base.

    stage the rows as the first base ─▶ keys unique? ─▶ one `advance` frame: base from its seq on

The commit is the frame; before it nobody names the files. Should the table have got a row meanwhile,
the load is refused at admission and nothing happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.core import Core
from siltstone.engine.input import conformed, stream_of
from siltstone.engine.shape import Shape
from siltstone.engine.submission import submit
from siltstone.engine.view import Levels, is_virgin
from siltstone.engine.write_set import AdvancePart, Receipt, WriteSet
from siltstone.errors import DuplicateKeyError
from siltstone.formats import group
from siltstone.formats.keys import newest_rows
from siltstone.formats.manifest import Table

LOAD_BYTES_MIN = 32 << 20


def load(
    core: Core, table: Table, shape: Shape, rows: object, *, may_repeat: bool
) -> Receipt | object:
    """Load `rows` if that is possible and worth it, else return rows to write the ordinary way.

    Raises:
        DuplicateKeyError: Equal keys, and they may not repeat; nothing was written.
        SchemaMismatchError: The rows do not fit; nothing was written.
        ConflictError: Somebody wrote to the table meanwhile.
    """
    stream = stream_of(rows)
    if stream is None:
        return rows
    incarnation = catalogs.incarnation_of(table)
    levels = core.state().view.levels.get(incarnation.id)
    if levels is None or not is_virgin(levels) or incarnation.versions:
        return stream
    head, size = [], 0
    for batch in conformed(stream, shape):
        head.append(batch)
        size += batch.nbytes
        if size >= LOAD_BYTES_MIN:
            break
    if size < LOAD_BYTES_MIN:
        return pa.RecordBatchReader.from_batches(shape.arrow, head)
    return _load(
        core, table, shape, levels, chain(head, conformed(stream, shape)), may_repeat=may_repeat
    )


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
    codes: list[np.ndarray] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            codes.append(shape.codec.codes(batch))
            yield batch

    pin = core.tables.append(folder, core.tables.create(folder, shape.arrow), watched())
    opened = core.tables.open(folder, pin)
    names = list(shape.codec.names)

    def keys_at(positions: np.ndarray) -> list[object]:
        return shape.codec.keys(opened.take(positions, names))

    every = np.concatenate(codes)
    if len(every) > 1 and shape.codec.exact and (every[1:] > every[:-1]).all():
        newest = None
    else:
        newest = newest_rows(shape.codec, every, keys_at)
    if newest is not None and len(newest) < pin.rows:
        dropped = np.setdiff1d(np.arange(pin.rows), newest)
        if not may_repeat:
            key = keys_at(dropped[:1])[0]
            raise DuplicateKeyError(catalogs.name_of(table), shape.codec.to_user(key))
        pin = core.tables.rewrite(folder, pin, drop=dropped, batches=())
    entry = group.Advance(levels.storage.incarnation, 0, pin)
    base = core.readers.base_of(folder, pin, shape)
    written = every if newest is None else every[newest]
    part = AdvancePart(
        table.id, levels.storage.incarnation, 0, entry, pin.rows, base, np.sort(written)
    )
    write_set = WriteSet(number=next(core.numbers), read_seq=None, parts=(part,), rows=pin.rows)
    return submit(core, lambda: write_set)
