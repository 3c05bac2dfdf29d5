"""Metadata: what clients note of a table and of its columns, as texts by name.

It is a part of the table's schema, and of nothing else: no row, type or file of Lance has it. Names
that say to Arrow, Lance, Spark, pandas or this store what a column is are not for notes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from siltstone.arguments import is_text
from siltstone.errors import RequestError
from siltstone.formats.manifest import Column, Metadata, Schema

METADATA_BYTES_MAX = 65_536
"""Of a table with all its columns, names and texts as UTF-8: every record has all of it."""
NAME_CHARACTERS_MAX = 256
_RESERVED = ("arrow:", "parquet:", "spark::", "lance:", "lance-", "siltstone")
_RESERVED_NAMES = ("pandas",)


def noted(old: Metadata, given: Mapping[str, str | None], *, replaces: bool) -> Metadata:
    """Return metadata with what is given laid over it, or in its place; None removes a name.

    Raises:
        RequestError: A name or a text that metadata cannot have.
    """
    for name, text in given.items():
        _check(name, text)
    found = given if replaces else {**dict(old), **given}
    return tuple(sorted((name, text) for name, text in found.items() if text is not None))


def _check(name: object, text: object) -> None:
    if not is_text(name) or not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise RequestError(
            f"a name in metadata must be a text of 1 to {NAME_CHARACTERS_MAX} characters;"
            f" got {name!r:.80}"
        )
    if name.lower().startswith(_RESERVED) or name.lower() in _RESERVED_NAMES:
        raise RequestError(
            f"the name {name!r:.80} in metadata is reserved: it says what a column is, or how it"
            " is stored; choose another"
        )
    if text is not None and not is_text(text):
        raise RequestError(f"the metadata {name!r:.80} must be a text; got {text!r:.80}")


def check_size(schema: Schema) -> None:
    """Check that the metadata of a table is not too large.

    Raises:
        RequestError: It is more than `METADATA_BYTES_MAX`.
    """
    nbytes = sum(_nbytes(part.metadata) for part in (schema, *schema.columns))
    texts = (text for each in schema.columns for text in (each.default, each.initial))
    nbytes += sum(len(text.encode()) for text in texts if text is not None)
    if nbytes > METADATA_BYTES_MAX:
        raise RequestError(
            "the metadata of a table with its columns, and their defaults, are at most"
            f" {METADATA_BYTES_MAX} bytes; this would be {nbytes}"
        )


def _nbytes(metadata: Metadata) -> int:
    return sum(len(name.encode()) + len(text.encode()) for name, text in metadata)


def with_metadata(arrow: pa.Schema, schema: Schema) -> pa.Schema:
    """Return a table's schema in Arrow with its metadata and that of its columns."""
    if not schema.metadata and not any(column.metadata for column in schema.columns):
        return arrow
    fields = [_field(field, column) for field, column in zip(arrow, schema.columns, strict=True)]
    return pa.schema(fields, dict(schema.metadata) or None)


def _field(field: pa.Field, column: Column) -> pa.Field:
    if not column.metadata:
        return field
    notes = {name.encode(): text.encode() for name, text in column.metadata}
    marks: Mapping[bytes, bytes] = field.metadata or {}
    return field.with_metadata({**marks, **notes})
