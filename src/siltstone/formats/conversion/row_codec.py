"""Row codec: rows of one schema, between users' dicts, storage rows and Arrow (see `rows`).

A dict may lack columns. What that means is the caller's word:

    from_user   they have their defaults, else null (insert, append, `missing="null"`)
    whole       it is refused (`missing="refuse"`)
    part        they have no value yet: what the row has is kept (`missing="keep"`, an update)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from siltstone.errors import SchemaMismatchError, listed, no_such
from siltstone.formats.conversion.row_encoder import Encode, encoders
from siltstone.formats.manifest import Schema
from siltstone.formats.rows import (
    Row,
    UnfitError,
    batch_of,
    converter,
    from_storage_values,
    is_plain,
    short,
    storage_values,
    stored_check,
    to_user,
)
from siltstone.formats.schema import decode_type, to_arrow
from siltstone.formats.types import extensions
from siltstone.formats.types.defaults import stored_of
from siltstone.formats.types.layouts import types_in

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
        self._defaults = {
            column.name: stored_of(column.default, kind)
            for column, kind in zip(schema.columns, self._kinds, strict=True)
            if column.default is not None
        }
        self._plain = tuple(map(is_plain, self._kinds))
        self._is_plain = all(self._plain)
        checks = [stored_check(kind) for kind in self._kinds]
        self._checks = [check for check in checks if check is not None]
        self.is_checkable: bool = len(self._checks) == len(checks)
        """Whether `check_stored` can look at storage values."""
        self.is_packable: bool = not any(_is_unpackable(kind) for kind in self._kinds)
        # Python's `time` cuts at the microsecond.
        self.has_nanosecond_times: bool = any(
            each == pa.time64("ns") for kind in self._kinds for each in types_in(kind)
        )
        self.is_patchable: bool = self.is_packable and not self.has_nanosecond_times
        """Whether a user's dict of a row, changed, is the changed row: nothing of it is lost."""

        ids = {column.id: column.name for column in schema.columns}
        self._key = frozenset(ids[column_id] for column_id in schema.key)
        nullable = tuple(column.nullable for column in schema.columns)
        self.from_user: Encode
        """See `encode`; made for this schema, and faster where a row has all columns."""
        self.whole: Encode
        """See `_encode_whole`; made in the same way."""
        self.from_user, self.whole = encoders(
            self.names, self._kinds, nullable, self.encode, self._encode_whole
        )

    def encode(self, row: Mapping[str, object]) -> Row:
        """Return the storage row of a user's dict; missing columns have their default, else null.

        Raises:
            SchemaMismatchError: A column is unknown or has the wrong type, or a null is not
                allowed.
        """
        values: list[object] = []
        found = 0
        for name, convert, required in self._columns:
            value = row.get(name, _MISSING)
            if value is _MISSING and name in self._defaults:
                values.append(self._defaults[name])
                continue
            if value is _MISSING or value is None:
                if required:
                    if not self._by_name.keys() >= row.keys():  # its name, in other letters
                        self._refuse_unknown(row)
                    raise _no_null(name)
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

    def _encode_whole(self, row: Mapping[str, object]) -> Row:
        """Return the storage row of a user's dict that has all columns.

        Raises:
            SchemaMismatchError: As `encode`; or a column is missing.
        """
        if len(row) < len(self.names):
            self.part(row)  # what else is wrong comes first
            self.refuse_lacking(row)
        return self.encode(row)

    def part(self, row: Mapping[str, object]) -> Row:
        """Return a storage row with null for what a dict does not name, also where none may be.

        Raises:
            SchemaMismatchError: As `check`; or a column of the key is missing.
        """
        self.check(row)
        self._require_key(row)
        return tuple(
            None if row.get(name) is None else convert(row[name])
            for name, convert, _ in self._columns
        )

    def refuse_lacking(self, given: Collection[str]) -> None:
        """Refuse rows that do not name all columns, where nothing says what becomes of those.

        Rows that name an unknown column are left alone: the caller refuses them by that name. So is
        a frame without columns, which has no rows, either.

        Raises:
            SchemaMismatchError: They lack a column.
        """
        if not given or not self._by_name.keys() >= set(given):
            return
        self._require_key(given)
        lacking = [name for name in self.names if name not in given]
        if lacking:
            raise lacks(lacking)

    def check_names(self, given: Collection[str]) -> None:
        """Check the names of some columns, the key among them.

        Raises:
            SchemaMismatchError: One is unknown, or of the key one is missing.
        """
        self.check_known(given)
        self._require_key(given)

    def check_known(self, given: Collection[str]) -> None:
        """Check the names of some columns.

        Raises:
            SchemaMismatchError: One is unknown.
        """
        if not self._by_name.keys() >= set(given):
            self._refuse_unknown(given)

    def _require_key(self, given: Collection[str]) -> None:
        for name in self.names:
            if name in self._key and name not in given:
                raise _no_null(name)

    def check(self, values: Mapping[str, object]) -> None:
        """Check values of some columns.

        Raises:
            SchemaMismatchError: As `from_user`.
        """
        self.check_known(values)
        for name, value in values.items():
            _, convert, required = self._by_name[name]
            if value is None and required:
                raise _no_null(name)
            try:
                if value is not None:
                    convert(value)
            except UnfitError:
                raise self._unfit(name, value) from None

    def _unfit(self, name: str, value: object) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"column {name!r} is {self.arrow.field(name).type}, not {short(value)}"
        )

    def _refuse_unknown(self, given: Collection[str]) -> None:
        unknown = [name for name in given if name not in self.names]
        raise SchemaMismatchError(no_such("column", unknown, self.names))

    def to_user(self, row: Row) -> dict[str, object]:
        """Return a row as the user's dict."""
        if self._is_plain:
            return dict(zip(self.names, row, strict=True))
        columns = zip(self.names, row, self._plain, self._kinds, strict=True)
        return {
            name: value if plain else to_user(value, kind) for name, value, plain, kind in columns
        }

    def check_stored(self, rows: Sequence[Row]) -> None:
        """Look whether storage rows fit the columns, without an array of Arrow.

        Raises:
            UnfitError: A value does not.
        """
        for row in rows:
            for value, check in zip(row, self._checks, strict=True):
                if value is not None:
                    check(value)

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


def lacks(columns: Sequence[str]) -> SchemaMismatchError:
    """Return the refusal of rows without some columns, where nothing says what becomes of those."""
    several, named = len(columns) > 1, listed(map(repr, columns))
    return SchemaMismatchError(
        f"the rows have no column{'s' if several else ''} {named}, and an upsert replaces whole"
        ' rows. Give all columns, or say missing="keep" (rows that exist keep their values) or'
        ' missing="null" (the values become null); insert adds new rows without'
        f" {'them' if several else 'it'}"
    )


def _no_null(name: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"column {name!r} may not be null or missing")


def _is_unpackable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return kind.precision > _PACKED_DECIMAL_DIGITS_MAX
    return pa.types.is_nested(kind) or extensions.is_tensor(kind)
