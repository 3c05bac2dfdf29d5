"""Schemas: Arrow types as the JSON of the specification, and as LanceDB's remote client wants it.

The specification names Arrow's own types; the remote client parses Lance's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from siltstone.lance_namespace.specification.bodies import JsonField, JsonSchema, JsonType

_PLAIN: dict[str, str] = {
    "bool": "bool",
    "string": "utf8",
    "large_string": "large_utf8",
    "binary": "binary",
    "large_binary": "large_binary",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
}


def schema_json(schema: pa.Schema, *, is_remote: bool = False) -> JsonSchema:
    """Return a schema as JSON; `is_remote`: for LanceDB's remote client."""
    name = _lance_name if is_remote else _name
    return JsonSchema([_field(field, name) for field in schema], _texts(schema.metadata))


def _field(field: pa.Field, name: Callable[[pa.DataType], str]) -> JsonField:
    metadata = _texts(field.metadata)
    return JsonField(field.name, field.nullable, _type(field.type, name), metadata or None)


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in (metadata or {}).items()}


def _type(kind: pa.DataType, name: Callable[[pa.DataType], str]) -> JsonType:
    kind = getattr(kind, "storage_type", kind)  # of an extension type: what it lies in
    if pa.types.is_large_list(kind):
        return JsonType("large_list", [_field(kind.value_field, name)])
    if pa.types.is_map(kind):
        return JsonType("map", [_field(kind.field(0), name)])
    if pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_binary(kind):
        return _fixed_size(kind, name)
    if pa.types.is_list(kind):
        return JsonType("list", [_field(kind.value_field, name)])
    if pa.types.is_struct(kind):
        return JsonType("struct", [_field(field, name) for field in kind])
    return JsonType(name(kind))


def _fixed_size(kind: Any, name: Callable[[pa.DataType], str]) -> JsonType:
    if pa.types.is_fixed_size_binary(kind):
        return JsonType("fixed_size_binary", length=kind.byte_width)
    return JsonType("fixed_size_list", [_field(kind.value_field, name)], kind.list_size)


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


def _lance_name(kind: pa.DataType) -> str:
    if pa.types.is_date32(kind):
        return "date32:day"
    text = str(kind)
    if text in {"halffloat", "float", "double", "string", "large_string", "binary", "bool"}:
        return text
    return _name(kind)
