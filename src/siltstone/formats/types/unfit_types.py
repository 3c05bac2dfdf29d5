"""Unfit types: why a column cannot have a type, for messages that name column, type and reason.

Each reason was met: what Lance writes and cannot read again is refused as well as what it does not
write. `tests/formats/test_unfit_types.py` tries them with Lance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.formats.types import extensions
from siltstone.formats.types.layouts import types_in

Refusal = tuple[Callable[[Any], bool], str]


def _is_view(kind: Any) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


def _is_list_view(kind: Any) -> bool:
    return pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)


def _is_unfit_vector(kind: Any) -> bool:
    """Vectors of values of one size each can be written; of others Lance panics at the flush."""
    if not pa.types.is_fixed_size_list(kind):
        return False
    inner = kind.value_type
    if pa.types.is_fixed_size_list(inner):
        return _is_unfit_vector(inner)
    has_one_size = pa.types.is_primitive(inner) or pa.types.is_decimal(inner)
    return not (has_one_size or pa.types.is_fixed_size_binary(inner))


_DICTIONARY = (
    "each file of Lance has its own dictionary, and values come back in many; use the type of"
    " its values, which takes dictionaries as input"
)
_VECTOR = (
    "the values of a vector must have one size each, as numbers, dates and fixed-size binaries"
    " have; use a list"
)
_UNFIT: tuple[Refusal, ...] = (
    (pa.types.is_null, "it holds nothing; name the type that values will have"),
    (_is_view, "Lance gives it back as another type; use string or binary"),
    (_is_list_view, "Lance does not write it; use a list"),
    (pa.types.is_run_end_encoded, "Lance does not write it; use the type of its values"),
    (pa.types.is_interval, "Lance does not write it; use duration"),
    (pa.types.is_union, "Lance does not write it; use a struct with a column for each type"),
    (pa.types.is_decimal32, "Lance does not write it; use decimal128"),
    (pa.types.is_decimal64, "Lance does not write it; use decimal128"),
    (lambda kind: pa.types.is_decimal(kind) and kind.scale > kind.precision,
     "it has more digits behind the point than digits; use as many digits as the scale"),
    (pa.types.is_dictionary, _DICTIONARY),
    (lambda kind: pa.types.is_fixed_size_list(kind) and not kind.list_size,
     "a vector has at least one value"),
    (_is_unfit_vector, _VECTOR),
    (lambda kind: pa.types.is_fixed_size_binary(kind) and not kind.byte_width,
     "a fixed-size binary has at least one byte"),
    (lambda kind: pa.types.is_map(kind) and kind.keys_sorted,
     "the order of its keys is not kept; use a map without keys_sorted"),
    (lambda kind: extensions.is_tensor(kind) and not (kind.shape and all(kind.shape)),
     "a tensor has at least one dimension, and no dimension of size 0"),
)  # fmt: skip


def why_unfit(kind: pa.DataType) -> str | None:
    """Return why no column can have a type, whatever is inside it; None: nothing is known."""
    return next((why for is_of, why in _UNFIT if is_of(kind)), None)


def why_plain_only(kind: Any) -> str | None:
    """Return why a table with a primary key cannot have a type; None: it can."""
    if not extensions.is_json(kind):
        return None
    return "Lance spells JSON anew, so a row would change when it is merged"


def refuse_decimal256(schema: pa.Schema, program: str) -> None:
    """Refuse columns with decimal256 inside, which a program cannot read: it would end the process.

    Raises:
        RequestError: It names the column and its type.
    """
    for field in schema:
        if any(map(pa.types.is_decimal256, types_in(field.type))):
            raise RequestError(
                f"column {field.name!r} has type {field.type}, which {program} does not have; read"
                " it with `to_arrow`, or leave the column out"
            )
