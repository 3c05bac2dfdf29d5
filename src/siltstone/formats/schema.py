"""Schema: the column types of tables, and the Arrow and Lance columns of columns with ids.

A type is stored as a string ("int64", "timestamp[us, tz=UTC]", "decimal128(10, 2)", "blob") or,
when it has others inside, as a list: ["list", T], ["large_list", T], ["vector", T, size],
["struct", [[name, T, nullable], ...]], ["map", key, value] and ["tensor", T, shape, names of
dimensions, permutation].

A column has an id that is never reused. Users see names; in history the column is named `c<id>`, so
that a rename, or a dropped and re-added name, never affects it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa

from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.formats.manifest import Column, Schema
from siltstone.formats.types import blobs
from siltstone.formats.types.defaults import DEFAULT, INITIAL, carrying, default_in
from siltstone.formats.types.extensions import (
    is_extension,
    is_tensor,
    is_uuid,
    unknown_in,
    why_unknown,
)
from siltstone.formats.types.unfit_types import why_plain_only, why_unfit

SEQ_COLUMN, OP_COLUMN = "_seq", "_op"
COLUMNS_MAX = 4_000
NAME_CHARACTERS_MAX = 128
NESTED_MAX = 32
"""Arrow writes to the log what is nested up to 64 times."""

_SIMPLE = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "string", "large_string", "binary", "large_binary",
    "date32", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]",
    "date64", "duration[s]", "duration[ms]", "duration[us]", "duration[ns]",
)  # fmt: skip
_EXTENSIONS = {"uuid": pa.uuid(), "json": pa.json_(pa.string())}
_ALIASES = {
    "boolean": "bool",
    "int": "int64",
    "float": "float64",
    "double": "float64",
    "str": "string",
    "text": "string",
    "bytes": "binary",
    "date": "date32",
    "time": "time64[us]",
    "timestamp": "timestamp[us]",
    "duration": "duration[us]",
    "arrow.uuid": "uuid",
    "arrow.json": "json",
}
_ARROW_NAMES = {  # "float" is a float64 to users and a float32 to Arrow
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, ?tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(128|256)?\((\d+), ?(-?\d+)\)")
_FIXED_BINARY = re.compile(r"(?:fixed_size_)?binary[\[(](\d+)[\])]")
_VECTOR = re.compile(r"(?:vector|fixed_size_list)\((\w+), ?(\d+)\)")
_TABLE_NAME = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_.-]*")


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of `text`, from a user or a stored schema."""
    name = _ALIASES.get(text, text)
    if name in _SIMPLE:
        return pa.type_for_alias(name)
    if name in _EXTENSIONS:
        return _EXTENSIONS[name]
    for pattern, make in _PATTERNS:
        found = pattern.fullmatch(name)
        kind = None if found is None else make(found)
        if kind is not None:
            return kind
    known = (*_SIMPLE, *_EXTENSIONS, "fixed_size_binary[16]", "timestamp[us]", "decimal128(10, 2)")
    raise RequestError(f"unknown type {text!r}; one of {', '.join(known)}, ...")


def _decimal(found: re.Match[str]) -> pa.DataType | None:
    make, most = (pa.decimal256, 76) if found[1] == "256" else (pa.decimal128, 38)
    digits, scale = int(found[2]), int(found[3])
    return make(digits, scale) if 1 <= digits <= most else None


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], pa.DataType | None]], ...] = (
    (_TIMESTAMP, lambda found: pa.timestamp(cast("Any", found[1]), tz=found[2])),
    (_DECIMAL, _decimal),
    (_FIXED_BINARY, lambda found: pa.binary(int(found[1]))),
    (_VECTOR, lambda found: pa.list_(parse_type(found[1]), int(found[2]))),
)


def encode_column(field: pa.Field, *, is_keyed: bool) -> object:
    """Return the type of a new column as the JSON value in a manifest.

    Raises:
        RequestError: The column cannot have this type; the message says why.
    """
    name, kind = field.name, field.type
    if _is_deep(kind):
        raise RequestError(f"column {name!r} is nested more than {NESTED_MAX} times")
    why_no_blob = blobs.why_unfit(field, is_keyed=is_keyed)
    if why_no_blob is not None:
        raise RequestError(f"column {name!r} cannot be a blob column: {why_no_blob}")
    if blobs.is_blob(field):
        return blobs.BLOB
    unknown = unknown_in(field)
    if unknown is not None:
        raise RequestError(f"column {name!r} cannot have type {kind}: {why_unknown(unknown)}")
    try:
        stored = encode_type(kind)
    except UnfitTypeError as unfit:
        inside = "" if unfit.kind == kind else f": {unfit.kind}"
        raise RequestError(
            f"column {name!r} cannot have type {kind}{inside}: {unfit.why}"
        ) from None
    why = why_plain_only(kind) if is_keyed else None
    if why is not None:
        raise RequestError(
            f"column {name!r} of a table with a primary key cannot have type {kind}: {why}"
        )
    return stored


def _is_deep(kind: Any) -> bool:
    """Say whether a type is nested too often; level by level, however deep it is."""
    level = [kind]
    for _ in range(NESTED_MAX + 1):
        nested = [each for each in level if pa.types.is_nested(each)]
        level = [each.field(place).type for each in nested for place in range(each.num_fields)]
        if not level:
            return False
    return True


class UnfitTypeError(RequestError):
    """A column cannot have the type `kind`; `why`: the reason."""

    def __init__(self, kind: pa.DataType, why: str) -> None:
        self.kind, self.why = kind, why
        super().__init__(f"a column cannot have type {kind}: {why}")


def encode_type(kind: pa.DataType) -> object:
    """Return `kind` as the JSON value in a manifest.

    Raises:
        UnfitTypeError: A table cannot have a column of this type.
    """
    why = why_unfit(kind)
    if why is not None:
        raise UnfitTypeError(kind, why)
    if is_extension(kind):
        return _encode_extension(kind)
    return _encode_nested(kind) if pa.types.is_nested(kind) else _encode_simple(kind)


def _encode_extension(kind: Any) -> object:
    if is_tensor(kind):
        value = encode_type(kind.value_type)
        return ["tensor", value, list(kind.shape), kind.dim_names, kind.permutation]
    for text, known in _EXTENSIONS.items():
        if kind.extension_name == known.extension_name:
            return text
    raise UnfitTypeError(kind, why_unknown(kind.extension_name))


def _encode_inner(kind: pa.DataType) -> object:
    if is_extension(kind):
        raise UnfitTypeError(kind, "an extension type must be that of a whole column")
    return encode_type(kind)


def _encode_nested(kind: Any) -> object:
    if pa.types.is_fixed_size_list(kind):
        return ["vector", _encode_inner(kind.value_type), kind.list_size]
    if pa.types.is_list(kind):
        return ["list", _encode_inner(kind.value_type)]
    if pa.types.is_large_list(kind):
        return ["large_list", _encode_inner(kind.value_type)]
    if pa.types.is_map(kind):
        return ["map", _encode_inner(kind.key_type), _encode_inner(kind.item_type)]
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        if not fields or len({f.name for f in fields}) < len(fields):
            raise UnfitTypeError(kind, "the fields of a struct must have different names")
        for name in (f.name for f in fields if "\0" in f.name):
            # Lance ends the name there: no row of the store could be flushed any more.
            raise UnfitTypeError(kind, f"the name of field {name[:40]!r} may have no NUL")
        return ["struct", [[f.name, _encode_inner(f.type), f.nullable] for f in fields]]
    raise UnfitTypeError(kind, "it is unknown here")


def _encode_simple(kind: Any) -> str:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        _check_zone(kind)
    text = _ARROW_NAMES.get(str(kind), str(kind))
    if text in _SIMPLE or _TIMESTAMP.fullmatch(text) or _FIXED_BINARY.fullmatch(text):
        return text
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return text
    raise UnfitTypeError(kind, "it is unknown here")


def _check_zone(kind: pa.TimestampType) -> None:
    """Refuse an unknown zone: rows could be written, and never be shown."""
    try:
        pa.scalar(0, pa.timestamp("s", tz=kind.tz)).as_py()
    except Exception:  # noqa: BLE001 - what is raised depends on the zone database
        raise UnfitTypeError(
            kind, f"unknown time zone {kind.tz!r}; it is like 'UTC' or '+02:00'"
        ) from None


def decode_type(stored: object) -> pa.DataType:
    """Return the Arrow type of a stored type."""
    if stored == blobs.BLOB:
        return pa.large_binary()
    if isinstance(stored, str):
        return parse_type(stored)
    if isinstance(stored, list | tuple) and stored[0] in _DECODERS:
        return _DECODERS[stored[0]](*stored[1:])
    raise RequestError(f"unknown stored type {stored!r}")


def _decode_tensor(
    value: object, shape: Sequence[int], names: Sequence[str] | None, order: Sequence[int] | None
) -> pa.DataType:
    return pa.fixed_shape_tensor(
        decode_type(value),
        list(shape),
        dim_names=None if names is None else list(names),
        permutation=None if order is None else list(order),
    )


_DECODERS: dict[str, Callable[..., pa.DataType]] = {
    "vector": lambda value, size: pa.list_(decode_type(value), size),
    "list": lambda value: pa.list_(decode_type(value)),
    "large_list": lambda value: pa.large_list(decode_type(value)),
    "map": lambda key, value: pa.map_(decode_type(key), decode_type(value)),
    "struct": lambda fields: pa.struct(
        [pa.field(name, decode_type(kind), nullable=null) for name, kind, null in fields]
    ),
    "tensor": _decode_tensor,
}


def check_table_name(name: object) -> str:
    """Return `name` if it is valid for a table (a path of namespaces like `a/b` is not)."""
    return check_name(name, "table")


def check_name(name: object, what: str) -> str:
    """Return `name` if it is valid for a table or a namespace, which `what` says."""
    if not isinstance(name, str) or not name:
        raise RequestError(f"a {what} name must be a non-empty string; got {name!r}")
    if len(name) > NAME_CHARACTERS_MAX:
        raise RequestError(
            f"{what} name of {len(name)} characters; at most {NAME_CHARACTERS_MAX} are allowed"
        )
    if not _TABLE_NAME.fullmatch(name):
        raise RequestError(
            f"{what} name {name!r}: letters, digits, '_', '-' and '.' only, not starting with"
            " '.' or '_'"
        )
    return name


def check_column_name(name: object) -> str:
    """Return `name` if it is valid for a column."""
    if not isinstance(name, str) or not name:
        raise RequestError(f"a column name must be a non-empty string; got {name!r}")
    if name.startswith("_"):
        raise RequestError(f"column name {name!r}: names starting with '_' are reserved")
    # Lance cannot write a column with a backtick, and takes `*` for all: its table, once written,
    # could not be merged.
    if len(name) > NAME_CHARACTERS_MAX or name == "*" or any(mark in name for mark in "\0.`"):
        raise RequestError(
            f"column name {name[:40]!r}: at most {NAME_CHARACTERS_MAX} characters, no NUL, no '.',"
            " no '`', and not '*' alone"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"column name {name[:40]!r}: half a surrogate pair is no character"
        ) from None
    return name


def new_schema(table_schema: pa.Schema, key: Sequence[str], *, schema_id: int) -> Schema:
    """Return the first schema of a table; column ids are 1, 2, 3, ...

    Raises:
        RequestError: A name is invalid or double, or a table cannot have a type or the key.
    """
    if not 1 <= len(table_schema) <= COLUMNS_MAX:
        raise RequestError(f"a table must have 1 to {COLUMNS_MAX} columns; got {len(table_schema)}")
    names = [check_column_name(field.name) for field in table_schema]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise RequestError(f"columns {sorted(doubled)} appear twice")
    for name in key:
        if name not in names:
            raise SchemaMismatchError(f"the key is {no_such('column', name, names)}")
        check_key_type(name, table_schema.field(name).type)
    if len(set(key)) != len(key):
        raise RequestError(f"key {list(key)} names a column twice")
    columns = tuple(
        Column(
            number,
            f.name,
            encode_column(f, is_keyed=bool(key)),
            f.nullable and f.name not in key,
            default=_default_of(f, key),
        )
        for number, f in enumerate(table_schema, start=1)
    )
    ids = {column.name: column.id for column in columns}
    return Schema(id=schema_id, columns=columns, key=tuple(ids[name] for name in key))


def _default_of(field: pa.Field, key: Sequence[str]) -> str | None:
    text = default_in(field)
    if text is not None and field.name in key:
        raise RequestError(f"column {field.name!r} is part of the key, which has no default")
    return text


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Check the type of a key column: floats compare unlike their bytes, nested values not at all.

    Raises:
        RequestError: A key cannot have this type.
    """
    if not any(allowed(kind) for allowed in _KEY_TYPES):
        raise RequestError(
            f"column {name!r} of type {kind} cannot be a key: int, string, binary (also of a fixed"
            " size), uuid, date32, timestamp, decimal128 or bool can"
        )


_KEY_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    is_uuid,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
    pa.types.is_boolean,
)


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the schema as users see it."""
    return pa.schema([_to_field(column) for column in schema.columns])


def _to_field(column: Column) -> pa.Field:
    marks = blobs.MARK if column.type == blobs.BLOB else None
    kind = decode_type(column.type)
    field = pa.field(column.name, kind, nullable=column.nullable, metadata=marks)
    if column.default is None and column.initial is None:
        return field
    return carrying(carrying(field, DEFAULT, column.default), INITIAL, column.initial)


def column_named(schema: Schema, name: str) -> Column:
    """Return the column with the name `name`.

    Raises:
        SchemaMismatchError: There is no such column.
    """
    found = next((column for column in schema.columns if column.name == name), None)
    if found is None:
        raise SchemaMismatchError(no_such("column", name, [c.name for c in schema.columns]))
    return found


def key_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of the key columns, in key order."""
    names = {column.id: column.name for column in schema.columns}
    return tuple(names[column_id] for column_id in schema.key)


def history_name(column_id: int) -> str:
    """Return a column's name in history: its id, because names change and ids do not."""
    return f"c{column_id}"


def history_field(column: Column) -> pa.Field:
    """Return the column as in history: nullable, because a delete has only the key."""
    field = pa.field(history_name(column.id), decode_type(column.type), nullable=True)
    return field if column.initial is None else carrying(field, INITIAL, column.initial)


def history_schema(schema: Schema) -> pa.Schema:
    """Return the schema of a new history: every column by id, then `_seq` and `_op`."""
    return pa.schema(
        [
            *map(history_field, schema.columns),
            pa.field(SEQ_COLUMN, pa.int64(), nullable=False),
            pa.field(OP_COLUMN, pa.int8(), nullable=False),
        ]
    )
