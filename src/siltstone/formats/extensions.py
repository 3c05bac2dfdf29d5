"""Extensions: the extension types of Arrow that a column may have, and what they lie in.

    arrow.uuid                  fixed_size_binary[16]
    arrow.json                  string
    arrow.fixed_shape_tensor    a fixed-size list of numbers

Arrow computes with what they lie in, and with nothing of theirs: filters, keys and casts unwrap a
column first.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID  # a value: nothing here makes a random one

import pyarrow as pa

UUID_BYTES = len(UUID(int=0).bytes)


def is_extension(kind: pa.DataType) -> bool:
    """Say whether a type is an extension type, of Arrow or of anybody else."""
    return isinstance(kind, pa.BaseExtensionType)


def is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def is_json(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.JsonType)


def is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values of `kind` lie in; of a plain type itself."""
    return cast("Any", kind).storage_type if is_extension(kind) else kind


def unwrapped(column: pa.Array) -> pa.Array:
    """Return the values that an extension column lies in; a plain column unchanged."""
    return cast("Any", column).storage if is_extension(column.type) else column


def wrapped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of `kind` over values that it lies in; the inverse of `unwrapped`."""
    if not is_extension(kind):
        return column
    return pa.ExtensionArray.from_storage(cast("Any", kind), column)
