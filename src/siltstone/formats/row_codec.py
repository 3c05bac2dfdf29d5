"""Row codec: rows of one schema, between users' dicts, storage rows and Arrow (see `rows`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from siltstone.errors import SchemaMismatchError, no_such
from siltstone.formats import extensions
from siltstone.formats.manifest import Schema
from siltstone.formats.row_encoder import encoder
from siltstone.formats.rows import (
    Row,
    UnfitError,
    batch_of,
    converter,
    from_storage_values,
    is_plain,
    short,
    storage_values,
    to_user,
)
from siltstone.formats.schema import decode_type, to_arrow

_PACKED_DECIMAL_DIGITS_MAX = 18
_MISSING = object()


class RowCodec:
    """Rows of one schema: from dicts, to dicts, to Arrow. Immutable."""

    def __init__(self, schema: Schema) -> None:
        self.arrow: pa.Schema = to_arrow(schema)
        self.names: tuple[str, ...] = tuple(c.name for c in schema.columns)
        self._kinds = tuple(decode_type(c.type) for c in schema.columns)
        self._columns = tuple(
            (column.name, converter(kind), not column.nullable)
            for column, kind in zip(schema.columns, self._kinds, strict=True)
        )
        self._by_name = {column[0]: column for column in self._columns}
        self._plain = tuple(map(is_plain, self._kinds))
        self._is_plain = all(self._plain)
        self.is_packable: bool = not any(_is_unpackable(kind) for kind in self._kinds)
        self.has_nanosecond_times: bool = any(_has_nanosecond_times(kind) for kind in self._kinds)
        self.is_patchable: bool = self.is_packable and not self.has_nanosecond_times
        """Whether a user's dict of a row, changed, is the changed row: nothing of it is lost."""

        self.from_user: Callable[[Mapping[str, object]], Row] = encoder(
            self.names, self._kinds, tuple(c.nullable for c in schema.columns), self.encode
        )
        """See `encode`; made for this schema, and faster where a row has all columns."""

    def encode(self, row: Mapping[str, object]) -> Row:
        """Return the storage row of a user's dict; missing nullable columns are null.

        Raises:
            SchemaMismatchError: A column is unknown or has the wrong type, or a null is not
                allowed.
        """
        values: list[object] = []
        found = 0
        for name, convert, required in self._columns:
            value = row.get(name, _MISSING)
            if value is _MISSING or value is None:
                if required:
                    if not self._by_name.keys() >= row.keys():  # its name, in other letters
                        self._refuse_unknown(row)
                    raise SchemaMismatchError(f"column {name!r} may not be null or missing")
                found += value is None
                values.append(None)
                continue
            found += 1
            try:
                values.append(convert(value))
            except UnfitError:
                raise self._unfit(name, value) from None
        if found != len(row):
            self._refuse_unknown(row)
        return tuple(values)

    def check(self, values: Mapping[str, object]) -> None:
        """Check values of some columns.

        Raises:
            SchemaMismatchError: As `from_user`.
        """
        if not self._by_name.keys() >= values.keys():
            self._refuse_unknown(values)
        for name, value in values.items():
            _, convert, required = self._by_name[name]
            if value is None and required:
                raise SchemaMismatchError(f"column {name!r} may not be null or missing")
            try:
                if value is not None:
                    convert(value)
            except UnfitError:
                raise self._unfit(name, value) from None

    def _unfit(self, name: str, value: object) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"column {name!r} is {self.arrow.field(name).type}, not {short(value)}"
        )

    def _refuse_unknown(self, row: Mapping[str, object]) -> None:
        unknown = [name for name in row if name not in self.names]
        raise SchemaMismatchError(no_such("column", unknown, self.names))

    def to_user(self, row: Row) -> dict[str, object]:
        """Return a row as the user's dict."""
        if self._is_plain:
            return dict(zip(self.names, row, strict=True))
        columns = zip(self.names, row, self._plain, self._kinds, strict=True)
        return {
            name: value if plain else to_user(value, kind) for name, value, plain, kind in columns
        }

    def to_batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return the rows as Arrow. Nulls are allowed: deletes have only their key."""
        return batch_of(list(zip(*rows, strict=True)), self.names, self._kinds)

    def patched(self, rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
        """Return `rows` with these checked values in each row, and all other values unchanged."""
        for name, value in values.items():
            place = self.names.index(name)
            stored = None if value is None else self._columns[place][1](value)
            column = from_storage_values([stored] * rows.num_rows, self._kinds[place])
            rows = rows.set_column(place, self.arrow.field(place), pa.chunked_array([column]))
        return rows

    def rows_of(self, batch: pa.RecordBatch) -> list[Row]:
        """Return the rows of a batch of this schema; finds columns by name."""
        return list(zip(*(storage_values(batch.column(name)) for name in self.names), strict=True))


def _is_unpackable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return kind.precision > _PACKED_DECIMAL_DIGITS_MAX
    return pa.types.is_nested(kind) or extensions.is_tensor(kind)


def _has_nanosecond_times(kind: Any) -> bool:
    """Say whether a type holds times of day that Python's `time` cuts at the microsecond."""
    if pa.types.is_nested(kind):
        return any(_has_nanosecond_times(kind.field(n).type) for n in range(kind.num_fields))
    return pa.types.is_time64(kind) and kind.unit == "ns"
