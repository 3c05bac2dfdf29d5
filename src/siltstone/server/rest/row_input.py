"""Row input: the rows of a JSON body, as `spelled` has them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from siltstone.errors import SchemaMismatchError
from siltstone.lance_versions.errors import invalid
from siltstone.text.spelled import AS_THEY_LOOK, has_floats, has_spelled, value_in

_ID = attrgetter("id")


def json_rows(rows: object, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return rows of JSON as rows of Python values.

    Raises:
        Refused: They are no list of objects.
        SchemaMismatchError: A value that its column cannot hold.
    """
    if not isinstance(rows, list) or not {*map(type, rows)} <= {dict}:
        raise invalid("rows is a list of objects")
    types = schema.types
    if AS_THEY_LOOK.issuperset(map(_ID, types)):
        return rows
    if not any(has_spelled(kind) or has_floats(kind) for kind in types):
        return rows
    kinds = {field.name: field.type for field in schema}
    return [_values(row, kinds) for row in rows]


def json_values(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return the values of one row; columns that are not known are left for the store to refuse."""
    return _values(row, {field.name: field.type for field in schema})


def _values(row: dict[str, Any], kinds: dict[str, pa.DataType]) -> dict[str, Any]:
    return {
        name: value_in(name, kinds[name], value) if name in kinds else value
        for name, value in row.items()
    }


def json_key(key: object, schema: pa.Schema, names: Sequence[str]) -> Any:
    """Return a key: a value, a list in key order, or an object by column."""
    if isinstance(key, dict):
        return json_values(key, schema)
    if isinstance(key, list):
        if len(key) != len(names):
            raise SchemaMismatchError(f"a key has the columns {list(names)}, not {key!r:.80}")
        parts = [value_in(n, schema.field(n).type, v) for v, n in zip(key, names, strict=True)]
        return tuple(parts) if len(parts) != 1 else parts[0]
    return value_in(names[0], schema.field(names[0]).type, key) if names else key
