"""Pickled filters: the texts and constants of an Arrow expression.

An expression does not expose its parts, but its pickled form does: pairs of texts in the metadata
of an IPC schema, a call before its arguments, and the constants in a record batch.

    (b > 5) and is_in(c, {..})    call and_kleene  call greater  field_ref b  literal 0  end greater
                                  call is_in  field_ref c  options 1  end is_in  end and_kleene

Arrow may change this form. So a reader must compare the expression that it built with the original.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import RequestError

PAIRS_MAX = 4_096
DEPTH_MAX = 4_096
"""Arrow evaluates by recursion, and overflows a stack of 8 MiB between 10,000 and 20,000."""


class UnreadError(Exception):
    """An expression is too long, or has an unknown part."""


class _ArrowSchema(ctypes.Structure):
    """The begin of `struct ArrowSchema` in Arrow's C data interface, an ABI that stays."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def pickled(expression: pc.Expression) -> tuple[list[tuple[str, str]], pa.RecordBatch]:
    """Return the pairs of an expression's pickled form, in order, and its constants."""
    (buffer,) = cast("tuple[pa.Buffer]", expression.__reduce__()[1])
    with pa.ipc.open_file(buffer) as file:
        batch = file.get_batch(0)
        return list(_pairs(file.schema, PAIRS_MAX)), batch


def refuse_deep(expression: pc.Expression) -> None:
    """Check that Arrow can evaluate an expression without a stack overflow.

    Raises:
        RequestError: It is nested deeper than `DEPTH_MAX`.
    """
    try:
        (buffer,) = cast("tuple[pa.Buffer]", expression.__reduce__()[1])
    except pa.ArrowException:  # a column by its number, for example
        return
    refuse_deep_form(buffer)


def refuse_deep_form(buffer: pa.Buffer) -> None:
    """Check the pickled form, before Arrow reads it, also recursively."""
    with pa.ipc.open_file(buffer) as file:
        depth = 0
        for key, _ in _pairs(file.schema):
            depth += (key == "call") - (key == "end")
            if depth > DEPTH_MAX:
                raise RequestError(
                    f"the filter is nested deeper than {DEPTH_MAX}; use isin(), or join its parts"
                    " as a balanced tree"
                )


def _pairs(schema: pa.Schema, count_max: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a schema, which pyarrow shows as a dict: one pair of each key.

    In memory: int32 the number of pairs, then of each key and value an int32 length and the bytes.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at: int | None = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if at is None:
        return
    count = ctypes.c_int32.from_address(at).value
    if count_max is not None and count > count_max:
        raise UnreadError
    at += 4
    for _ in range(count):
        key, at = _text(at)
        value, at = _text(at)
        yield key, value
    del capsule  # what it points to lives as long


def _text(at: int) -> tuple[str, int]:
    length = ctypes.c_int32.from_address(at).value
    return ctypes.string_at(at + 4, length).decode(errors="surrogateescape"), at + 4 + length
