"""Blobs: columns of large bytes, of which Lance's clients read parts (`take_blobs`).

    in Arrow         large_binary; the field's metadata says `lance-encoding:blob` = true
    in a manifest    "blob"
    in Lance         files of storage format 2.0 or 2.1, which hold the bytes of their rows

From storage format 2.2 on Lance writes another kind, the extension `lance.blob.v2`, with files of
their own next to the data files, or anywhere else. The store keeps no such files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

BLOB = "blob"
MARK = {b"lance-encoding:blob": b"true"}
STORAGE_FORMAT = "2.1"
"""The newest storage format of Lance that has blobs of this kind."""
_STORAGE_FORMATS = ("2.0", STORAGE_FORMAT)
_EXTENSION, _SECOND_KIND = b"ARROW:extension:name", b"lance.blob.v2"
_OTHER_KIND = (
    "its bytes may lie in files next to the data files, which the store does not keep; write"
    " large_binary with the field metadata lance-encoding:blob = true, and from other Lance clients"
    f" data_storage_version = {STORAGE_FORMAT!r}"
)


def is_blob(field: pa.Field) -> bool:
    """Say whether a column is marked as a blob."""
    return MARK.items() <= (field.metadata or {}).items()


def names_of(fields: Iterable[pa.Field]) -> frozenset[str]:
    """Return the names of the columns of blobs."""
    return frozenset(field.name for field in fields if is_blob(field))


def why_unfit(field: pa.Field, *, is_keyed: bool) -> str | None:
    """Return why a column that is marked as a blob cannot be one; None: it can, or is none."""
    if any(is_blob(inner) or _is_second_kind(inner) for inner in _inside(field.type)):
        return "a blob is a whole column, not inside of one"
    if _is_second_kind(field):
        return _OTHER_KIND
    if not is_blob(field):
        return None
    if not pa.types.is_large_binary(field.type):
        return "a blob is a large_binary"
    if is_keyed:
        return (
            "a table with a primary key reads and merges whole rows, so no part of a blob could be"
            " read; use large_binary without the metadata lance-encoding:blob"
        )
    return None


def why_unkept(schema: pa.Schema, storage_format: str) -> tuple[str, str] | None:
    """Return the first column of blobs that other clients wrote and the store does not keep, why.

    `storage_format` is the one of Lance's dataset.
    """
    for field in schema:
        why = why_unfit(field, is_keyed=False)
        if why is None and is_blob(field) and storage_format not in _STORAGE_FORMATS:
            why = f"the dataset has the storage format {storage_format}: {_OTHER_KIND}"
        if why is not None:
            return field.name, why
    return None


def _is_second_kind(field: pa.Field) -> bool:
    """Say whether a column has the extension, whether it is known in this process or not."""
    name = getattr(field.type, "extension_name", "").encode()
    return _SECOND_KIND in (name, (field.metadata or {}).get(_EXTENSION))


def _inside(kind: Any) -> Iterable[pa.Field]:
    if not pa.types.is_nested(kind):
        return
    for place in range(kind.num_fields):
        yield kind.field(place)
        yield from _inside(kind.field(place).type)
