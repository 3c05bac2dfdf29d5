"""Keyed writes: the writes of one transaction to one keyed table, before it commits.

They are laid over the snapshot (`levels.own_rows`): the transaction reads them like any other
level. At commit the newest versions become the parts of a write set, under the newest schema.

A delete is blind: it is a write of its keys, whether rows have them or not. That it counts those
that live is for its caller, and no read that conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.definitions import forbidden
from siltstone.engine.catalog.row_input import RowInput, key_input
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.commit.write_set import AdvancePart, AttachPart, BatchPart, Part, RowPart
from siltstone.engine.filter.filters import compares_columns
from siltstone.engine.levels.chunk import Chunk, rows_kept
from siltstone.engine.levels.memtable import Contents, Newest, append_batch, newest_versions
from siltstone.engine.levels.own_rows import OWN_SEQ, OwnRows
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.recover.replay import batch_fields
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError
from siltstone.formats.keys import Codes, Key
from siltstone.formats.log.group import DELETE, UPSERT
from siltstone.formats.rows import Row

_ROWS_AS_TUPLES_MAX = 4096
COUNTED_KEYS_MAX = 10_000
"""A delete of more keys does not look which of them live."""
_USE_DELETE_WHERE = (
    "no row has the key {!r:.200}; to delete the rows that match it use delete_where"
)


class KeyedWrites:
    """Uncommitted rows of one incarnation. One transaction, one thread at a time.

    `table_schema` may become a newer one: the commit aligns the rows written so far. `own` has the
    rows.
    """

    __slots__ = ("incarnation", "own", "table", "table_schema")

    def __init__(self, table: int, incarnation: int, table_schema: TableSchema) -> None:
        self.table, self.incarnation, self.table_schema = table, incarnation, table_schema
        self.own = OwnRows(table_schema)

    def upsert(self, given: RowInput) -> None:
        """Insert or replace whole rows."""
        if given.batch is None:
            self.own.append(self.table_schema, given.rows, given.keys, ())
        elif given.codes is not None:
            self.append_batch(given.batch, given.codes, UPSERT)

    def upsert_row(self, row: Row) -> None:
        """Insert or replace one row."""
        self.own.append(self.table_schema, (row,), (self.table_schema.codec.key_of(row),), ())

    def delete(self, keys: list[Key]) -> None:
        """Delete keys, whether they exist or not."""
        if len(keys) <= _ROWS_AS_TUPLES_MAX and self.table_schema.rows.is_packable:
            self.own.append(self.table_schema, (), (), keys)
            return
        batch = self.table_schema.codec.batch(keys)
        self.append_batch(batch, self.table_schema.codec.codes(batch), DELETE)

    def append_batch(self, batch: pa.RecordBatch, codes: Codes, op: int) -> None:
        """Note rows of the columns of `table_schema`; of deletes only the key counts."""
        self.own.written += batch.num_rows
        append_batch(self.own.whole(), self.table_schema, batch, codes, op, OWN_SEQ)

    def alter(self, table_schema: TableSchema) -> None:
        """Write by a newer schema from now on; the rows written so far keep theirs."""
        self.own.whole()
        self.table_schema = table_schema

    def parts(self, table_schema: TableSchema) -> list[Part]:
        """Return the parts to commit, each key once, with the schema `table_schema`."""
        newest = self.own.newest(table_schema.id) if table_schema.rows.is_packable else None
        if newest is None:
            return self._many(table_schema)
        upserts, keys, deletes = [], [], []
        for key, row in newest.items():
            if row is None:
                deletes.append(key)
            else:
                upserts.append(row)
                keys.append(key)
        if not upserts and not deletes:
            return []
        return [RowPart(self.table, self.incarnation, table_schema, upserts, keys, deletes)]

    def _many(self, table_schema: TableSchema) -> list[Part]:
        own = self.own.whole()
        only = _only_batch(own.contents, table_schema)
        if only is not None:
            batch, codes = only.batch, only.codes
            made = batch.serialize()
            return [
                BatchPart(self.table, self.incarnation, table_schema, batch, codes, UPSERT, made)
            ]
        parts = list[Part]()
        for op, batches in _batches(newest_versions(own), table_schema):
            batch = pa.concat_batches([*batches])  # pyright: ignore[reportAttributeAccessIssue]
            parts.append(batch_part(self.table, self.incarnation, table_schema, batch, op))
        return parts

    def batches(self, table_schema: TableSchema) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield what was upserted, and what was deleted (the keys alone), each key once."""
        return _batches(newest_versions(self.own.whole()), table_schema)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, if they are more than a few."""
        return 0 if self.own.few is not None else self.own.whole().nbytes


def _batches(
    newest: Newest, table_schema: TableSchema
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    for op, chosen in ((UPSERT, newest.is_live), (DELETE, ~newest.is_live)):
        if chosen.any():
            kept = np.zeros(newest.chunks[-1].end, bool)
            kept[newest.ordinals[chosen]] = True
            fields = batch_fields(table_schema, op)
            found = rows_kept(newest.chunks, pa.array(kept), table_schema, fields.names)
            yield op, (each.cast(fields) if op == DELETE else each for each in found)  # pyright: ignore[reportAttributeAccessIssue]


def _only_batch(own: Contents, table_schema: TableSchema) -> Chunk | None:
    """Return the only rows that were written, if each has a key of its own: most large writes.

    Of rows whose codes all differ nothing is sought: they are the newest of their keys.
    """
    if own.tail.rows or len(own.chunks) != 1 or len(own.runs) != 1:
        return None
    (chunk,), (run,) = own.chunks, own.runs
    differ = bool((run.codes[1:] > run.codes[:-1]).all())
    same = chunk.batch.schema.equals(table_schema.arrow, check_metadata=True)
    is_whole = differ and same and bool((chunk.ops == UPSERT).all())
    return chunk if is_whole and chunk.table_schema.id == table_schema.id else None


class Deletion(NamedTuple):
    """The keys of a delete, each once, and how many of them have a row; None: they are too many."""

    keys: list[Key]
    lived: int | None


def deletion(given: object, reader: KeyedReader, *, is_again: bool = False) -> Deletion:
    """Return what a delete by keys deletes, as `reader` sees it.

    `is_again`: it was committed before, so that no row has a key any more, whatever it is.

    Raises:
        RequestError: It is a text that reads as a filter, and no row has it as its key; or the keys
            cannot be read.
        SchemaMismatchError: A key is of another type.
    """
    try:
        keys = key_input(given, reader.table_schema)
    except SchemaMismatchError:
        if _reads_as_filter(given, reader.table_schema):
            raise RequestError(_USE_DELETE_WHERE.format(given)) from None
        raise
    lived = reader.rows_that_live(keys) if len(keys) <= COUNTED_KEYS_MAX else None
    if lived == 0 and not is_again and _reads_as_filter(given, reader.table_schema):
        (name,) = reader.table_schema.codec.names
        key = f"; a key of this text is given as {{{name!r}: ...}}"
        raise RequestError(_USE_DELETE_WHERE.format(given) + key)
    return Deletion(keys, lived)


def _reads_as_filter(given: object, table_schema: TableSchema) -> TypeGuard[str]:
    """Say whether a caller would take the rows that match `given` for deleted."""
    return type(given) is str and compares_columns(given, table_schema.arrow)


def batch_part(
    table: int, incarnation: int, table_schema: TableSchema, batch: pa.RecordBatch, op: int
) -> BatchPart:
    """Return the part of a batch with each key once; for a delete, only the key columns."""
    fields = batch_fields(table_schema, op)
    batch = pa.RecordBatch.from_arrays([batch.column(name) for name in fields.names], schema=fields)
    codes = table_schema.codec.codes(batch)
    return BatchPart(table, incarnation, table_schema, batch, codes, op, batch.serialize())


def widened(part: Part, newest: TableSchema) -> Part:
    """Return `part` of an older schema with the schema `newest`.

    Raises:
        ConflictError: A column was dropped or renamed since: the change is not additive. Or one
            takes no null any more, and a row has it there.
    """
    assert not isinstance(part, AdvancePart)
    old = part.table_schema
    if any(newest.names.get(column_id) != name for column_id, name in old.names.items()):
        raise ConflictError(f"#{part.table}", "*", 0, 0)
    if _has_null(part, [old.arrow.names.index(n) for n in forbidden(old.schema, newest.schema)]):
        raise ConflictError(f"#{part.table}", "*", 0, 0)
    if isinstance(part, AttachPart):
        # Its entry keeps the schema of the files.
        return msgspec.structs.replace(part, table_schema=newest)
    if isinstance(part, RowPart):
        rows = [widened_row(row, old, newest) for row in part.upserts]
        return RowPart(part.table, part.incarnation, newest, rows, part.row_keys, part.deletes)
    assert isinstance(part, BatchPart)
    if part.op == DELETE:
        return batch_part(part.table, part.incarnation, newest, part.batch, DELETE)
    arrays = newest.align(part.batch, old, newest.arrow.names)
    batch = pa.RecordBatch.from_arrays(arrays, schema=newest.arrow)
    return batch_part(part.table, part.incarnation, newest, batch, UPSERT)


def widened_row(row: Row, old: TableSchema, newest: TableSchema) -> Row:
    """Return a row of an older schema, whose columns the newest has, as it is under the newest."""
    turns = newest.turns(old)
    known = dict(zip(old.names, row, strict=True))
    for column_id, turn in turns.items():
        known[column_id] = turn(known[column_id])
    return tuple(known.get(c.id, newest.initial(c.id)) for c in newest.schema.columns)


def has_other_values(old: TableSchema, newest: TableSchema) -> bool:
    """Say whether rows of a plain table under an older schema may not be as the newest has them."""
    came = newest.initials().keys() - old.names.keys()
    is_strict = bool(forbidden(old.schema, newest.schema))
    return newest.has_other_types(old) or bool(came) or is_strict


def _has_null(part: Part, places: Sequence[int]) -> bool:
    """Say whether rows of a part have null in some columns; of a load nobody looks."""
    if isinstance(part, RowPart):
        return any(row[place] is None for row in part.upserts for place in places)
    if isinstance(part, BatchPart):
        return part.op == UPSERT and any(part.batch.column(place).null_count for place in places)
    return bool(places)


def chunk_of_batch(
    batch: pa.RecordBatch, table_schema: TableSchema, codes: Codes | None = None
) -> Chunk:
    """Return a conformed batch as a chunk, to check which of its keys exist."""
    ones = np.full(batch.num_rows, OWN_SEQ, np.int64)
    known = table_schema.codec.codes(batch) if codes is None else codes
    return Chunk(0, batch, table_schema, known, ones, np.zeros(batch.num_rows, np.int8))
