"""Merging: the rows of a source merged into a table, matched by columns.

    in both           updated: the columns of the source; others keep their values
    source only       inserted
    table only        deleted, if they match a filter

A keyed table is merged on its key, a plain table on any columns: the merge reads its rows once, a
batch at a time, and rewrites every row with a match, so a source row may update several rows. A
null matches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.catalog import schema_of
from siltstone.engine.catalog.row_input import batch_of_all
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats.conversion.conform import conform
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.storage.tables.values import POSITION


@dataclass(frozen=True, slots=True)
class Merge:
    """The actions of a merge; `rows_max` bounds the source, and the rows written or deleted."""

    on: tuple[str, ...]
    updates: bool
    inserts: bool
    deletes: bool
    delete_filter: str | None
    rows_max: int


@dataclass(frozen=True, slots=True)
class MergeInserted:
    """The numbers of updated, inserted and deleted rows of the table."""

    updated: int
    inserted: int
    deleted: int


def merge(tx: EngineTransaction, name: str, rows: pa.Table, how: Merge) -> MergeInserted:
    """Merge `rows` into a table.

    Raises:
        RequestError: Two rows of the source have the same key, the columns cannot be matched, or
            there are more than `rows_max` rows.
        SchemaMismatchError: Columns are missing or do not fit.
    """
    missing = [column for column in how.on if column not in rows.schema.names]
    if missing:
        raise SchemaMismatchError(f"the rows lack the columns {missing} of the merge")
    _refuse_many(rows.num_rows, how)
    definition = tx.named(name)
    table, schema = (
        LocalTransactionTable(tx, definition.id),
        table_schema_of(schema_of(definition)),
    )
    if not table.primary_key:
        return _PlainMerge(tx, name, rows, how).run()
    if set(how.on) != set(table.primary_key):
        raise RequestError(
            f"{name!r} is merged on its primary key {list(table.primary_key)}, not on"
            f" {list(how.on)}"
        )
    return _merge_keyed(table, schema, _conformed(rows, schema), how)


def _conformed(rows: pa.Table, schema: TableSchema, *, is_whole: bool = False) -> pa.Table:
    """Return the columns of a source as the table has them: equal keys are equal values only so.

    `is_whole`: with all columns of the table; those that the source lacks have their defaults.
    """
    named = (field for field in schema.arrow if is_whole or field.name in rows.schema.names)
    fields = pa.schema(named)
    batches = [conform(batch, schema.schema, fields) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, fields)


def _refuse_many(count: int, how: Merge) -> None:
    if count > how.rows_max:
        raise RequestError(
            f"a merge takes and changes at most {how.rows_max} rows; use several merges"
        )


def _refuse_twice(count: int, distinct: int) -> None:
    if distinct != count:
        raise RequestError("two rows of the source have the same key")


def _merge_keyed(
    table: LocalTransactionTable, schema: TableSchema, rows: pa.Table, how: Merge
) -> MergeInserted:
    key = table.primary_key
    keys = _keys_of(rows, key)
    _refuse_twice(len(keys), len(set(keys)))
    living = table.get_many(rows.select(list(key))) if keys else rows.slice(0, 0)
    places = {found: place for place, found in enumerate(_keys_of(living, key))} if keys else {}
    partners = [places.get(found) for found in keys]
    both = pa.array([place is not None for place in partners], pa.bool_())
    old = living.take(pa.array([p for p in partners if p is not None], pa.int64()))
    changed, new = rows.filter(both), rows.filter(pc.invert(both))
    # What may be refused comes first, so that a refused merge changed nothing.
    gone = _others(table, set(keys), how) if how.deletes else []
    written = [_patched(old, changed)] if how.updates and changed.num_rows else []
    if how.inserts and new.num_rows:
        written.append(_conformed(new, schema, is_whole=True))
    if written:  # it updates only the columns that it names
        table.upsert(pa.concat_tables(written, promote_options="default"), "null")
    if gone:
        table.delete(gone)
    return MergeInserted(
        changed.num_rows if how.updates else 0, new.num_rows if how.inserts else 0, len(gone)
    )


def _keys_of(rows: pa.Table, key: Sequence[str]) -> Sequence[object]:
    columns = [rows.column(name).to_pylist() for name in key]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _others(table: LocalTransactionTable, keys: set[object], how: Merge) -> list[object]:
    """Return the keys of the rows to delete, which are not in the source."""
    key = table.primary_key
    gone: list[object] = []
    for batch in table.scan(list(key), how.delete_filter):
        found = _keys_of(pa.Table.from_batches([batch]), key)
        gone += [one for one in found if one not in keys]
        _refuse_many(len(gone), how)
    return gone


def _patched(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows of `old` with the columns of `new`, row by row."""
    for name in new.schema.names:
        column = (new.schema.field(name), new.column(name))
        place = old.schema.get_field_index(name)
        old = old.append_column(*column) if place < 0 else old.set_column(place, *column)
    return old


class _PlainMerge:
    """One merge into a plain table; it is one version of it."""

    def __init__(self, tx: EngineTransaction, name: str, rows: pa.Table, how: Merge) -> None:
        definition = tx.named(name)
        self._writes, self._how = tx.rows.plain(definition), how
        self._schema = schema = self._writes.table_schema.arrow
        # Cast once to what the table holds: it must equal what is read from there.
        whole = pa.Table.from_batches([batch_of_all(rows, self._writes.table_schema)])
        self._whole = whole
        self._source = whole.select([n for n in schema.names if n in rows.schema.names])
        self._others: Filter | None = filter_of(how.delete_filter, schema)
        tx.rows.note(definition, tx.rows.reader(definition), (), None)
        self._partners = _Partners(self._source, how.on)

    def run(self) -> MergeInserted:
        """Merge; again: on another version with the same rows."""
        self._drop: list[np.ndarray] = []
        self._added: list[pa.Table] = []
        self._updated = self._deleted = 0
        is_new = np.ones(self._source.num_rows, np.bool_)
        for batch in self._writes.located(self._columns()):
            found = self._partners.of(batch)
            is_new[found.drop_null().to_numpy()] = False
            if self._how.updates:
                self._update(batch, found)
            if self._how.deletes:
                self._delete(batch.filter(found.is_null()))
            _refuse_many(self._updated + self._deleted, self._how)
        inserted = self._whole.filter(pa.array(is_new)) if self._how.inserts else None
        if inserted is not None and inserted.num_rows:
            self._added.append(inserted)
        drop = np.concatenate(self._drop) if self._drop else np.zeros(0, np.int64)
        whole = pa.concat_tables(
            [self._schema.empty_table(), *self._added], promote_options="default"
        )
        batches = whole.cast(self._schema).to_batches() if self._added else []
        self._writes.replace(drop, batches, again=self.run)
        count = 0 if inserted is None else inserted.num_rows
        return MergeInserted(self._updated, count, self._deleted)

    def _columns(self) -> list[str]:
        """Return what is read of the table: what is compared, filtered, or kept in an update."""
        wanted = set(self._how.on)
        if self._how.updates:
            wanted |= set(self._schema.names) - set(self._source.schema.names)
        if self._how.deletes and self._others is not None:
            wanted |= set(self._others.columns)
        return [name for name in self._schema.names if name in wanted]

    def _update(self, batch: pa.RecordBatch, found: pa.Array) -> None:
        old = batch.filter(found.is_valid())
        if not old.num_rows:
            return
        self._updated += old.num_rows
        self._drop.append(old.column(POSITION).to_numpy())
        kept = pa.Table.from_batches([old.drop_columns([POSITION])])
        self._added.append(_patched(kept, self._source.take(found.drop_null())))

    def _delete(self, batch: pa.RecordBatch) -> None:
        gone = batch if self._others is None else self._others.keep(batch)
        self._deleted += gone.num_rows
        self._drop.append(gone.column(POSITION).to_numpy())


class _Partners:
    """Finds the row of a source that has the same values in some columns, a batch at a time.

    Column by column: a value becomes its number among the source's, a pair of numbers one number.
    """

    def __init__(self, source: pa.Table, on: Sequence[str]) -> None:
        """Raises RequestError: Two rows have the same, or Arrow cannot compare a column."""
        self._on = list(on)
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes = self._codes(source, is_source=True)
        self._rows = codes
        known = codes.drop_null()
        _refuse_twice(len(known), len(known.unique()))

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row the row number of its partner in the source, or null."""
        return _index_in(self._codes(pa.Table.from_batches([batch])), self._rows)

    def _codes(self, rows: pa.Table, *, is_source: bool = False) -> pa.Array:
        codes: Any = None
        for number, name in enumerate(self._on):
            column = cast("pa.Array", rows.column(name).combine_chunks())
            if is_source:
                self._values.append(_distinct(column, name))
            values = self._values[number]
            found = _index_in(column, values)
            if codes is not None:
                pairs = pc.add(pc.multiply(codes, max(1, len(values))), found)
                if is_source:
                    self._pairs.append(pairs.drop_null().unique())
                found = _index_in(pairs, self._pairs[number - 1])
            codes = found
        return codes


def _distinct(column: pa.Array, name: str) -> pa.Array:
    try:
        return column.drop_null().unique()
    except pa.ArrowException as error:
        raise RequestError(f"rows cannot be merged on {name!r}, a {column.type}") from error


def _index_in(values: Any, known: Any) -> pa.Array:
    found = pc.index_in(values, value_set=known, skip_nulls=True)
    return cast("pa.Array", found.cast(pa.int64()))
