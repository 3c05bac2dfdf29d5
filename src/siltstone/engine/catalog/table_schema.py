"""Table schema: one schema of one table with all values derived from it, created once and shared.

Rows and batches with one schema are read with another one by column id: a column that the older
schema lacks has its initial value, else null; a column that the newer one lacks is not shown, a
renamed column is the same. One whose type was widened is shown in the reader's (`widening`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.formats.conversion.row_codec import RowCodec
from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.manifest import Column, Schema, TableDefinition
from siltstone.formats.rows import Row, converter, from_storage_values, to_user
from siltstone.formats.schema import decode_type, history_name
from siltstone.formats.types.defaults import absent, stored_of
from siltstone.formats.types.metadata import with_metadata
from siltstone.formats.types.widening import in_type, value_in_type


class TableSchema:
    """A schema, its codecs and its Arrow form. Immutable; get it from `table_schema_of`.

    `arrow` is what rows have, `shown` the same with the metadata that clients noted.
    """

    __slots__ = (
        "_initials",
        "_key_places",
        "_types",
        "arrow",
        "codec",
        "history_codec",
        "id",
        "ids",
        "keys",
        "names",
        "rows",
        "schema",
        "shown",
    )

    codec: KeyCodec
    """The key codec of a keyed table; a plain table has none (`keys` is None)."""
    history_codec: KeyCodec
    """The same for batches with the names of history: keys are equal, and so are their codes."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.id = schema.id
        self.rows = RowCodec(schema)
        self.keys = KeyCodec(schema) if schema.key else None
        if self.keys is not None:
            self.codec = self.keys
            self.history_codec = KeyCodec(_named_by_ids(schema))
        self.arrow = self.rows.arrow
        self.shown = with_metadata(self.arrow, schema)
        self.names: dict[int, str] = {column.id: column.name for column in schema.columns}
        self.ids: dict[str, int] = {column.name: column.id for column in schema.columns}
        self._types: dict[int, object] = {column.id: column.type for column in schema.columns}
        self._initials = {
            column.id: stored_of(column.initial, self.arrow.field(column.name).type)
            for column in schema.columns
            if column.initial is not None
        }
        places = {column.id: place for place, column in enumerate(schema.columns)}
        self._key_places = tuple(places[column_id] for column_id in schema.key)

    def delete_row(self, key: Key) -> Row:
        """Return the row of a delete: the key, and nulls."""
        row: list[object] = [None] * len(self.ids)
        parts: Sequence[object] = key if len(self._key_places) > 1 else (key,)  # type: ignore[assignment]
        for place, part in zip(self._key_places, parts, strict=True):
            row[place] = part
        return tuple(row)

    def align(
        self, batch: pa.RecordBatch, written: TableSchema, columns: Sequence[str]
    ) -> list[pa.Array]:
        """Return `columns` out of a batch written under `written`, which may lack some.

        A delete that came as a batch has its key columns alone.
        """
        has = batch.schema.names
        stored = (name if name in has else None for name in self.stored(columns, written))
        return aligned(batch, stored, map(self.arrow.field, columns))

    def stored(self, columns: Iterable[str], written: TableSchema) -> tuple[str | None, ...]:
        """Return the names that `columns` have under `written`; None: it lacks the column."""
        return tuple(written.names.get(self.ids[name]) for name in columns)

    def alike(self, columns: Iterable[str], written: TableSchema) -> dict[str, str]:
        """Return the names under `written` of those columns that have the same type there.

        What knows no other type reads them by these: Lance's filters, its indexes, images.
        """
        here, there = self._types, written._types
        ids = ((name, self.ids[name]) for name in columns)
        return {n: written.names[i] for n, i in ids if i in there and there[i] == here[i]}

    def has_other_types(self, other: TableSchema) -> bool:
        """Say whether a column that both have is of another type there."""
        here, there = self._types, other._types
        return any(i in there and there[i] != kind for i, kind in here.items())

    def is_unlike(self, column: str, written: TableSchema) -> bool:
        """Say whether rows under `written` have values of a column that are not stored as such.

        It has another type there; or it is not there, and they have its initial value.
        """
        column_id = self.ids[column]
        if column_id not in written.names:
            return self.initial(column_id) is not None
        return written._types[column_id] != self._types[column_id]

    def turns(self, written: TableSchema) -> dict[int, Callable[[Any], Any]]:
        """Return what turns storage values of rows under `written` into ours, by column id.

        Only of columns with another type; most schemas have none.
        """
        here, there = self._types, written._types
        others = [i for i, kind in here.items() if i in there and there[i] != kind]
        found = {i: value_in_type(decode_type(there[i]), decode_type(here[i])) for i in others}
        return {i: turn for i, turn in found.items() if turn is not None}

    def align_row(self, row: Mapping[str, object], written: TableSchema) -> dict[str, object]:
        """Return a row that was written under `written` as this shape shows it."""
        if written.id == self.id:
            return dict(row)
        found = {
            column.name: row.get(written.names[column.id])
            if column.id in written.names
            else to_user(self.initial(column.id), self.arrow.field(column.name).type)
            for column in self.schema.columns
        }
        for column_id, turn in self.turns(written).items():
            name, old = self.names[column_id], written.names[column_id]
            if found[name] is not None:
                stored = turn(converter(written.arrow.field(old).type)(found[name]))
                found[name] = to_user(stored, self.arrow.field(name).type)
        return found

    def initial(self, column_id: int) -> object:
        """Return the storage value of a column in rows from before it was added."""
        return self._initials.get(column_id)

    def initials(self) -> dict[int, pa.Array]:
        """Return the initial values that are not null, by column id, each as one row."""
        kinds = {i: self.arrow.field(self.names[i]).type for i in self._initials}
        return {i: from_storage_values([self._initials[i]], kind) for i, kind in kinds.items()}

    def fields(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the Arrow schema of some columns, in the given order."""
        if columns is None:
            return self.arrow
        return pa.schema([self.arrow.field(name) for name in columns])


def _named_by_ids(schema: Schema) -> Schema:
    columns = (msgspec.structs.replace(c, name=history_name(c.id)) for c in schema.columns)
    return msgspec.structs.replace(schema, columns=tuple(columns))


def aligned(
    batch: pa.RecordBatch, names: Iterable[str | None], fields: Iterable[pa.Field]
) -> list[pa.Array]:
    """Return the columns of a batch by their names there; what has none has its initial value.

    One that is stored in another type than its field's is turned into that (`widening`).
    """
    return [
        absent(field, batch.num_rows) if name is None else in_type(batch.column(name), field.type)
        for name, field in zip(names, fields, strict=True)
    ]


def whole_table_schema(table: TableDefinition) -> TableSchema:
    """Return a schema with every column of the kept schemas, with their names in history.

    Its id belongs to no schema: all rows read with it are aligned by column id.
    """
    columns = {column.id: column for step in table.schemas for column in step.schema.columns}
    newest = table.schemas[-1].schema
    stored = tuple(
        Column(column_id, history_name(column_id), column.type, initial=column.initial)
        for column_id, column in sorted(columns.items())
    )
    return table_schema_of(Schema(-newest.id, stored, newest.key, secret=newest.secret))


_SEEN_MAX = 4096
_seen: dict[int, tuple[Schema, TableSchema]] = {}


def table_schema_of(schema: Schema) -> TableSchema:
    """Return the shape of a schema; equal schemas share one.

    It looks by identity first: hashing a schema takes microseconds, and every commit calls this.
    """
    found = _seen.get(id(schema))
    if found is not None and found[0] is schema:
        return found[1]
    table_schema = _table_schema_of(schema)
    if len(_seen) >= _SEEN_MAX:
        _seen.clear()
    _seen[id(schema)] = (schema, table_schema)
    return table_schema


_table_schema_of = lru_cache(maxsize=4096)(TableSchema)
