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

_NAME = b"ARROW:extension:name"
_KNOWN = frozenset({"arrow.uuid", "arrow.json", "arrow.fixed_shape_tensor"})
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


def unknown_in(field: pa.Field) -> str | None:
    """Return the name of an extension type in a column, at any depth, other than these three.

    Arrow gives values of a type that it does not know as those that they lie in; its name is left
    in the metadata of the field.
    """
    open_fields = [field]
    while open_fields:
        each = open_fields.pop()
        kind: Any = each.type
        if is_extension(kind):
            name = kind.extension_name
        else:
            name = (each.metadata or {}).get(_NAME, b"").decode(errors="replace")
        if name and name not in _KNOWN:
            return name
        if pa.types.is_dictionary(kind):
            open_fields.append(pa.field("", kind.value_type))
        elif pa.types.is_nested(kind):
            open_fields += [kind.field(place) for place in range(kind.num_fields)]
    return None


def why_unknown(name: str) -> str:
    """Return the reason for which values of an extension type are refused."""
    return (
        f"the extension {name!r} is unknown here, and would lose its name; use the type that it"
        " lies in, without the metadata ARROW:extension:name"
    )


def is_other_tensor(given: Any, wanted: Any) -> bool:
    """Say whether both are tensors, and the same values would be at other places in them."""
    if not (is_tensor(given) and is_tensor(wanted)):
        return False
    return (given.shape, given.permutation) != (wanted.shape, wanted.permutation)


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
