"""Strict schema: Lance's description of columns, of which some take no null from now on.

Lance itself would look for nulls at the place where a transaction has its manifests, and the files
of a store are elsewhere. So its description is changed instead, as it travels between processes:
one message (lance.file.Field) for each column and each part of one, of which field 6 says whether
it may be null. Who calls it has looked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from siltstone.storage.lance.files.manifest import fields
from siltstone.units import require

_NAME, _PARENT, _NULLABLE = 2, 4, 6
_NO_PARENT = (1 << 64) - 1
"""-1, as an unsigned number."""


def strict_schema(schema: Any, names: Collection[str]) -> Any:
    """Return a `LanceSchema` in which the columns of some names take no null."""
    make, (metadata, *columns) = schema.__reduce__()
    made = make(metadata, *(_strict(column, names) for column in columns))
    found = {field.name for field in made.to_pyarrow() if not field.nullable}
    require(found >= {*names}, f"Lance's description of columns has another form: {made}")
    return made


def _strict(column: bytes, names: Collection[str]) -> bytes:
    about = {number: value for number, value, _ in fields(column)}
    is_one = about.get(_PARENT) == _NO_PARENT and about[_NAME].decode() in names  # type: ignore[union-attr]
    raw = (each for number, _, each in fields(column) if not is_one or number != _NULLABLE)
    return b"".join(raw)
