"""Partial rows: rows of users that name some columns, and what they make of the rows that exist.

    given     ──▶ PartialRows     each key once: of equal keys the later row lies over the earlier
    existing  ──▶ over(existing)  whole rows: what is given, else what exists, else the default

Rows given as dicts name their columns each by itself; those of Arrow have all the same. A null that
is given is a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.choices import MISSINGS, Missing
from siltstone.engine.catalog.row_input import conformed_part, dicts_of, one_batch, stream_of
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import RequestError, not_one_of
from siltstone.formats.conversion.conform import conform
from siltstone.formats.keys import Key, newest_rows
from siltstone.formats.types.defaults import repeated

Named = np.ndarray | bool
"""Which rows name a column."""


def check_missing(missing: object) -> Missing:
    """Return a word for what becomes of missing columns.

    Raises:
        RequestError: It is another one.
    """
    for word in MISSINGS:
        if type(missing) is str and missing == word:
            return word
    raise RequestError(not_one_of("missing", missing, MISSINGS))


class PartialRows(msgspec.Struct, frozen=True):
    """See the module. `batch` has all columns, with null for what a row does not name."""

    table_schema: TableSchema
    keys: list[Key]
    batch: pa.RecordBatch
    named: Mapping[str, Named]

    @property
    def are_whole(self) -> bool:
        """Whether each row names all columns, so that it does not matter what exists."""
        return all(each is True for each in self.named.values())

    def over(self, existing: pa.Table, *, creates: bool) -> pa.RecordBatch:
        """Return whole rows; with `creates` also those whose key has no row yet.

        Raises:
            SchemaMismatchError: A new row has no value of a column that takes no null.
        """
        schema = self.table_schema
        at = {key: place for place, key in enumerate(schema.codec.keys(existing))}
        places = np.array([at.get(key, -1) for key in self.keys], np.int64)
        rows = np.arange(len(places)) if creates else np.flatnonzero(places >= 0)
        columns = [
            _merged(
                self.batch.column(column.name),
                existing.column(column.name),
                self.named[column.name],
                rows,
                places,
                repeated(column.default, self.batch.column(column.name).type, 1),
            )
            for column in schema.schema.columns
        ]
        made = pa.RecordBatch.from_arrays(columns, names=schema.arrow.names)
        return conform(made, schema.schema, schema.arrow)


def _merged(
    given: pa.Array,
    existing: pa.ChunkedArray,
    named: Named,
    rows: np.ndarray,
    places: np.ndarray,
    default: pa.Array,
) -> pa.Array:
    """Return one column of some rows: what is given where it is named, else what is at `places`.

    A row at no place has the default.
    """
    is_given = np.broadcast_to(named, len(places))[rows]
    at = np.where(is_given, rows, places[rows] + len(given))
    at[~is_given & (places[rows] < 0)] = len(given) + len(existing)
    all_of_them = pa.chunked_array([given, *existing.chunks, default], given.type)
    found = all_of_them.take(pa.array(at, pa.int64()))
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def partial_rows(given: object, table_schema: TableSchema) -> PartialRows:
    """Return rows that name some columns, at least the key.

    Raises:
        SchemaMismatchError: A column is unknown, a column of the key is missing, or a value does
            not fit.
    """
    stream = stream_of(given)
    if stream is None:
        return _of_dicts(dicts_of(given), table_schema)
    if not stream.schema.names:
        return _of_dicts([{}] * stream.read_all().num_rows, table_schema)
    return _of_stream(stream, table_schema)


def _of_dicts(dicts: Sequence[Mapping[str, object]], table_schema: TableSchema) -> PartialRows:
    codec, keys = table_schema.rows, table_schema.codec
    whole: dict[Key, Mapping[str, object]] = {}
    for row in dicts:
        key = keys.key_of(codec.part(row))
        earlier = whole.get(key)
        whole[key] = row if earlier is None else {**earlier, **row}
    rows = list(whole.values())
    named: dict[str, Named] = {}
    for name in codec.names:
        has = np.array([name in row for row in rows], bool)
        named[name] = True if has.all() else has
    batch = codec.to_batch([codec.part(row) for row in rows])
    return PartialRows(table_schema, list(whole), batch, named)


def _of_stream(stream: pa.RecordBatchReader, table_schema: TableSchema) -> PartialRows:
    codec, names = table_schema.codec, stream.schema.names
    table_schema.rows.check_names(names)
    fields = pa.schema([field for field in table_schema.arrow if field.name in names])
    some = one_batch(list(conformed_part(stream, table_schema, fields)), fields)
    kept = newest_rows(codec, codec.codes(some), lambda at: codec.columns(_taken(some, at)))
    kept.sort()
    some = _taken(some, kept) if len(kept) < some.num_rows else some
    arrays = [
        some.column(field.name) if field.name in names else pa.nulls(some.num_rows, field.type)
        for field in table_schema.arrow
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=table_schema.arrow.names)
    named: dict[str, Named] = {name: name in names for name in table_schema.arrow.names}
    return PartialRows(table_schema, codec.keys(batch), batch, named)


def _taken(batch: pa.RecordBatch, at: np.ndarray) -> pa.RecordBatch:
    return batch.take(pa.array(at, pa.int64()))
