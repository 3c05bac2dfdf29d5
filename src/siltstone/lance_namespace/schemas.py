"""Schemas: a table's columns as the spec writes them in JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def json_schema(schema: pa.Schema) -> dict[str, Any]:
    """Return the Arrow schema as the JSON of the spec."""
    return {"fields": [_field(field) for field in schema]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "nullable": field.nullable, "type": _type(field.type)}


_NAMES = {
    "string": "utf8",
    "large_string": "large_utf8",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
}


def _type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_fixed_size_list(kind):
        return {
            "type": "fixed_size_list",
            "fields": [_field(kind.value_field)],
            "length": kind.list_size,
        }
    if pa.types.is_list(kind):
        return {"type": "list", "fields": [_field(kind.value_field)]}
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {"type": "struct", "fields": [_field(field) for field in fields]}
    return {"type": _NAMES.get(str(kind), str(kind))}
