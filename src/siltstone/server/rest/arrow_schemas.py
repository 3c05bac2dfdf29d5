"""Schemas: Arrow types as the JSON of the specification, and as LanceDB's remote client wants it.

The specification names Arrow's own types; the remote client parses Lance's names.
"""

from __future__ import annotations

import pyarrow as pa

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


def schema_json(schema: pa.Schema, *, is_remote: bool) -> dict[str, object]:
    """Return a schema as JSON: `{"fields": [{"name", "nullable", "type"}]}`."""
    return {"fields": [_field(field, is_remote=is_remote) for field in schema], "metadata": {}}


def _field(field: pa.Field, *, is_remote: bool) -> dict[str, object]:
    kind = _type(field.type, is_remote=is_remote)
    return {"name": field.name, "nullable": field.nullable, "type": kind}


def _type(kind: pa.DataType, *, is_remote: bool) -> dict[str, object]:
    if pa.types.is_fixed_size_list(kind):
        item = _field(kind.value_field, is_remote=is_remote)
        return {"type": "fixed_size_list", "fields": [item], "length": kind.list_size}
    if pa.types.is_list(kind):
        return {"type": "list", "fields": [_field(kind.value_field, is_remote=is_remote)]}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(f, is_remote=is_remote) for f in kind]}
    return {"type": _lance_name(kind) if is_remote else _name(kind)}


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
    return str(kind)


def _lance_name(kind: pa.DataType) -> str:
    if pa.types.is_date32(kind):
        return "date32:day"
    text = str(kind)
    if text in {"halffloat", "float", "double", "string", "large_string", "binary", "bool"}:
        return text
    return _name(kind)
