"""Table diff: what differs between two states of one table with a key, a row for each key.

    _change   "added", "removed" or "changed"
    <key>     the columns of the key
    _old      the other columns of the row before, as a struct; null if it was added
    _new      those after; null if it was removed

The rows come in the order of the key, and stream. Where the two states have no key in common (the
name has another table now, with another key), there are no columns of the key: first all rows of
before, then all of after. Columns of one table are matched by id, those of two by name; one that a
state lacks counts as null there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.ordered_rows import Page
from siltstone.engine.read.read_union import KeyedReader
from siltstone.formats.keys import Key, KeyCodec
from siltstone.process import deadline
from siltstone.query.diff.diff import RowCounts
from siltstone.query.diff.values import differing
from siltstone.query.diff.windows import KeyedRows, Window, in_order, looked_up, whole

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
CHANGES = (ADDED, REMOVED, CHANGED)
CHANGE, OLD, NEW = "_change", "_old", "_new"
_compute: Any = pc


@dataclass(frozen=True, slots=True)
class DiffShape:
    """The columns of a diff, and the names that its key has before and after."""

    fields: pa.Schema
    old_key: tuple[str, ...] = ()
    new_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TwoStates:
    """One table before and after; None: it was not there. `is_one`: it is the same table.

    `keys`: those that may differ, in order; None: any.
    """

    old: KeyedReader | None
    new: KeyedReader | None
    is_one: bool
    keys: list[Key] | None

    @property
    def codec(self) -> KeyCodec | None:
        """The key that both have; None: they have two."""
        codecs = [each.table_schema.codec for each in (self.old, self.new) if each is not None]
        kinds = {(codec.names, tuple(codec.user_types)) for codec in codecs}
        return codecs[-1] if self.is_one or len(kinds) == 1 else None

    @property
    def fields(self) -> pa.Schema:
        """The columns of the diff."""
        return pa.schema(
            [
                pa.field(CHANGE, pa.string()),
                *([] if self.codec is None else _key_fields(self._either(self.new, self.old))),
                *(
                    pa.field(name, pa.struct(self._rest(self._either(*each))))
                    for name, each in zip((OLD, NEW), self._turned, strict=True)
                ),
            ]
        )

    @property
    def _turned(self) -> tuple[tuple[KeyedReader | None, KeyedReader | None], ...]:
        return (self.old, self.new), (self.new, self.old)

    @staticmethod
    def _either(one: KeyedReader | None, other: KeyedReader | None) -> KeyedReader:
        found = one or other
        assert found is not None
        return found

    def _rest(self, reader: KeyedReader) -> list[pa.Field]:
        key = () if self.codec is None else reader.table_schema.codec.names
        rest = [field for field in reader.table_schema.arrow if field.name not in key]
        return [field.with_nullable(True).remove_metadata() for field in rest]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the diff; of none there is no batch."""
        codec = self.codec
        if codec is None:
            shape = DiffShape(self.fields)
            yield from self._all_of(self.old, REMOVED, shape)
            yield from self._all_of(self.new, ADDED, shape)
            return
        keys = [self._either(*each).table_schema.codec.names for each in self._turned]
        shape = DiffShape(self.fields, keys[0], keys[1])
        pairs = self._pairs()
        for window in deadline.checked(self._windows(codec)):
            batch = _compared(window, pairs, shape)
            if batch.num_rows:
                yield batch

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows of the diff as they are read."""
        return pa.RecordBatchReader.from_batches(self.fields, self.batches())

    def counts(self) -> RowCounts:
        """Return how many rows were added, removed, and changed."""
        found = dict.fromkeys(CHANGES, 0)
        for batch in self.batches():
            for each in _compute.value_counts(batch.column(CHANGE)).to_pylist():
                found[each["values"]] += each["counts"]
        return found[ADDED], found[REMOVED], found[CHANGED]

    def _windows(self, codec: KeyCodec) -> Iterator[Window]:
        if self.keys is not None:
            return looked_up(self.keys, self.old, self.new, codec)
        return in_order(self.old, self.new)

    def _pairs(self) -> list[tuple[str | None, str | None]]:
        """Return the names before and after of each column but the key's; None: it is not there."""
        if self.old is None or self.new is None:
            return []
        old, new = self.old.table_schema, self.new.table_schema
        pairs = column_pairs(old, new, is_one=self.is_one)
        return [pair for pair in pairs if pair[1] not in new.codec.names]

    @staticmethod
    def _all_of(
        reader: KeyedReader | None, change: str, shape: DiffShape
    ) -> Iterator[pa.RecordBatch]:
        if reader is None:
            return
        for batch in reader.in_order(KeyRange(), Page()):
            at = np.arange(batch.num_rows)
            nothing = np.full(batch.num_rows, -1)
            rows = pa.Table.from_batches([batch])
            old, new = (at, nothing) if change == REMOVED else (nothing, at)
            yield diff_batch(rows, rows, old, new, shape)


def column_pairs(
    old: TableSchema | None, new: TableSchema | None, *, is_one: bool
) -> list[tuple[str | None, str | None]]:
    """Return the names before and after of each column; None: it is not there.

    Columns of one table are matched by their ids, those of two by their names.
    """
    before = {} if old is None else old.names if is_one else {n: n for n in old.ids}
    after = {} if new is None else new.names if is_one else {n: n for n in new.ids}
    keys: dict[Any, None] = dict.fromkeys([*before, *after])
    known: Any = before, after
    return [(known[0].get(key), known[1].get(key)) for key in keys]


def _key_fields(reader: KeyedReader) -> list[pa.Field]:
    schema = reader.table_schema
    return [schema.arrow.field(name).remove_metadata() for name in schema.codec.names]


def as_structs(rows: pa.Table, of: pa.RecordBatch, codec: KeyCodec, column: str) -> pa.Array:
    """Return for each row of a diff the one of `rows` with its key, as `column` has it; or null.

    `of` has the key columns of `codec`, and so have `rows`.
    """
    wanted = codec.ordered_of(of.select(list(codec.names)))
    found = codec.ordered_of(rows)
    at = _partners(KeyedRows(rows, found), KeyedRows(rows, wanted))
    return as_struct(of.schema.field(column).type, rows, at)


def _compared(
    window: Window, pairs: list[tuple[str | None, str | None]], shape: DiffShape
) -> pa.RecordBatch:
    """Return what differs in a window."""
    old, new = window
    at = _partners(old, new)
    in_new = np.flatnonzero(at >= 0)
    in_old = at[in_new]
    changed = _changed(old.rows.take(in_old), new.rows.take(in_new), pairs)
    is_partner = np.zeros(len(old.keys), dtype=bool)
    is_partner[in_old] = True
    removed, added = np.flatnonzero(~is_partner), np.flatnonzero(at < 0)
    olds = np.concatenate([in_old[changed], removed, np.full(len(added), -1)])
    news = np.concatenate([in_new[changed], np.full(len(removed), -1), added])
    order = _key_order(old, new, olds, news)
    return diff_batch(old.rows, new.rows, olds[order], news[order], shape)


def _partners(old: KeyedRows, new: KeyedRows) -> np.ndarray:
    """Return for each new row the place of the old one with its key; -1: there is none."""
    if not len(old.keys) or not len(new.keys):
        return np.full(len(new.keys), -1)
    found = pc.index_in(new.keys.array, value_set=old.keys.array)
    return found.fill_null(-1).to_numpy().astype(np.int64)


def _changed(
    old: pa.Table, new: pa.Table, pairs: list[tuple[str | None, str | None]]
) -> np.ndarray:
    found = np.zeros(new.num_rows, dtype=bool)
    if not len(found):
        return found
    for before, after in pairs:
        one, other = _column(old, before, after, new), _column(new, after, before, old)
        found |= differing(one, other)
    return found


def _column(rows: pa.Table, name: str | None, other: str | None, others: pa.Table) -> pa.Array:
    if name is None:
        assert other is not None
        return pa.nulls(rows.num_rows, others.schema.field(other).type)
    return whole(rows.column(name))


def _key_order(old: KeyedRows, new: KeyedRows, olds: np.ndarray, news: np.ndarray) -> np.ndarray:
    """Return the order of the keys of some rows: by the old one, or the new one if it has none."""
    parts = [(rows.keys.array, at) for rows, at in ((old, olds), (new, news)) if len(rows.keys)]
    if not len(olds) or not parts:
        return np.arange(len(olds))
    if len(parts) == 1:
        keys, at = parts[0]
        keys = keys.take(at)
    else:
        both = pa.concat_arrays([keys for keys, _ in parts])
        keys = both.take(np.where(olds >= 0, olds, len(old.keys) + news))
    return _compute.array_sort_indices(keys).to_numpy().astype(np.int64)


def diff_batch(
    old: pa.Table, new: pa.Table, olds: np.ndarray, news: np.ndarray, shape: DiffShape
) -> pa.RecordBatch:
    """Return rows of a diff, by the places of the old and the new ones; -1: there is none."""
    fields = shape.fields
    changes = np.where(olds < 0, ADDED, np.where(news < 0, REMOVED, CHANGED))
    columns: list[pa.Array] = [pa.array(changes.tolist(), pa.string())]
    for before, after in zip(shape.old_key, shape.new_key, strict=True):
        parts = [(old, before, olds), (new, after, news)]
        columns.append(_keys([each for each in parts if len(each[0])]))
    columns.append(as_struct(fields.field(OLD).type, old, olds))
    columns.append(as_struct(fields.field(NEW).type, new, news))
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _keys(sides: list[tuple[pa.Table, str, np.ndarray]]) -> pa.Array:
    """Return a column of the key: of each row from a side that has it."""
    columns = [whole(rows.column(name)) for rows, name, _ in sides]
    places = [at for _, _, at in sides]
    if len(columns) == 1:
        return columns[0].take(places[0])
    old, new = places
    both = pa.concat_arrays(columns)
    return both.take(np.where(old >= 0, old, len(columns[0]) + new))


def as_struct(kind: Any, rows: pa.Table, at: np.ndarray) -> pa.Array:
    """Return rows as structs; null where there is none."""
    is_there = at >= 0
    if not is_there.any():
        return pa.nulls(len(at), kind)
    members = list(kind)
    if not members:
        return pa.array([{} if each else None for each in is_there.tolist()], kind)
    places: Any = pa.array(at, mask=~is_there)
    parts = [whole(rows.column(field.name)).take(places) for field in members]
    return pa.StructArray.from_arrays(parts, fields=members, mask=pa.array(~is_there))
