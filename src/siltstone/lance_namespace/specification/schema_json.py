"""Schemas: Arrow types as the JSON of the specification, and as LanceDB's remote client wants it.

The specification names Arrow's own types; the remote client parses Lance's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from siltstone.formats.schema import parse_type
from siltstone.lance_namespace.specification.bodies import (
    JsonField,
    JsonSchema,
    JsonType,
    WantedType,
)

_TEXTS = {"utf8": "string", "large_utf8": "large_string"}
_NUMBERS = {
    "float16": "halffloat",
    "float32": "float",
    "float64": "double",
    "date32": "date32:day",
}
"""Names of the specification, and what Lance calls these types."""
_OF_LANCE = _TEXTS | _NUMBERS
_PLAIN = {lance: name for name, lance in _OF_LANCE.items()} | {"date32[day]": "date32"}
"""The names by those of Arrow, which has Lance's; all others are one and the same."""
_STORED = _TEXTS | {lance: name for name, lance in _NUMBERS.items()}
"""What the store calls types that have another name here, or in Lance."""


def schema_json(schema: pa.Schema) -> JsonSchema:
    """Return a schema as JSON."""
    return JsonSchema(list(map(_field, schema)), _texts(schema.metadata))


def in_words_of_lance(schema: JsonSchema) -> JsonSchema:
    """Return a schema as LanceDB's remote client wants it."""
    return replace(schema, fields=list(map(_renamed, schema.fields)))


def _renamed(field: JsonField) -> JsonField:
    kind, within = field.type, field.type.fields
    within = None if within is None else list(map(_renamed, within))
    return replace(
        field, type=replace(kind, type=_OF_LANCE.get(kind.type, kind.type), fields=within)
    )


def _field(field: pa.Field) -> JsonField:
    metadata = _texts(field.metadata)
    return JsonField(field.name, field.nullable, _type(field.type), metadata or None)


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in (metadata or {}).items()}


def type_named(wanted: WantedType | str) -> pa.DataType:
    """Return the type of a column that JSON names, by the specification's name or by Arrow's.

    Raises:
        RequestError: There is no such type.
    """
    if isinstance(wanted, str):
        return parse_type(_arrow_name(wanted))
    size = "" if wanted.length is None else f"[{wanted.length}]"
    return parse_type(_arrow_name(wanted.type) + size)


def _arrow_name(name: str) -> str:
    if name in _STORED:
        return _STORED[name]
    kind, *rest = name.split(":")
    if kind == "timestamp" and len(rest) >= 2:
        zone = ":".join(rest[1:])
        return f"timestamp[{rest[0]}]" if zone == "-" else f"timestamp[{rest[0]}, tz={zone}]"
    if kind == "decimal" and len(rest) == 3:
        return f"decimal{rest[0]}({rest[1]}, {rest[2]})"
    if kind == "date64":
        return kind
    return f"{kind}[{rest[0]}]" if len(rest) == 1 else name


def _type(kind: pa.DataType) -> JsonType:
    kind = getattr(kind, "storage_type", kind)  # of an extension type: what it lies in
    if pa.types.is_large_list(kind):
        return JsonType("large_list", [_field(kind.value_field)])
    if pa.types.is_map(kind):
        return JsonType("map", [_field(kind.field(0))])
    if pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_binary(kind):
        return _fixed_size(kind)
    if pa.types.is_list(kind):
        return JsonType("list", [_field(kind.value_field)])
    if pa.types.is_struct(kind):
        return JsonType("struct", [_field(field) for field in kind])
    return JsonType(_name(kind))


def _fixed_size(kind: Any) -> JsonType:
    if pa.types.is_fixed_size_binary(kind):
        return JsonType("fixed_size_binary", length=kind.byte_width)
    return JsonType("fixed_size_list", [_field(kind.value_field)], kind.list_size)


def _name(kind: pa.DataType) -> str:
    known = _PLAIN.get(str(kind))
    if known is not None:
        return known
    if pa.types.is_timestamp(kind):
        return f"timestamp:{kind.unit}:{kind.tz}" if kind.tz else f"timestamp:{kind.unit}:-"
    if pa.types.is_time(kind):
        return f"{'time32' if kind.bit_width == 32 else 'time64'}:{kind.unit}"  # type: ignore[attr-defined]
    if pa.types.is_decimal(kind):
        return f"decimal:{kind.bit_width}:{kind.precision}:{kind.scale}"
    return _plain_name(kind)


def _plain_name(kind: Any) -> str:
    if pa.types.is_duration(kind):
        return f"duration:{kind.unit}"
    return "date64:ms" if pa.types.is_date64(kind) else str(kind)
