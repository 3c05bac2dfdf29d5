"""Row encoder: a function that is made for one schema, from a user's dict to a storage row.

The general way asks each column by its own function: most of a small row's time. The function
made here has the tests of all columns in one body. It decides nothing by itself: what it does not
take as it is, a row without some column or a value of another type, goes the general way, which
says what is wrong. No name and no value of a user is in the source: names are constants that it is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType

import pyarrow as pa

from siltstone.formats.rows import Row, UnfitError, converter

COLUMNS_MAX = 256
"""Of more columns the general way is as fast, and to compile them takes longer than a row."""

Encode = Callable[[Mapping[str, object]], Row]


def encoders(
    names: Sequence[str], kinds: Sequence[pa.DataType], nullable: Sequence[bool], *ways: Encode
) -> tuple[Encode, ...]:
    """Return a function for each general way, with its results and errors, for these columns."""
    if not 0 < len(names) <= COLUMNS_MAX:
        return ways
    known: dict[str, object] = {"UnfitError": UnfitError}
    known |= {f"n{place}": name for place, name in enumerate(names)}
    known |= {f"c{place}": converter(kind) for place, kind in enumerate(kinds)}
    values = [f"v{place}" for place in range(len(names))]
    body = [f"    v{place} = row[n{place}]" for place in range(len(names))]
    for place, kind in enumerate(kinds):
        body += _checked(f"v{place}", f"c{place}", kind, is_nullable=nullable[place])
    source = "\n".join(
        [
            "def made(row):",
            f"  if type(row) is not dict or len(row) != {len(names)}:",
            "    return general(row)",
            "  try:",
            *body,
            f"    return ({', '.join(values)},)",
            "  except (KeyError, UnfitError, UnicodeEncodeError):",
            "    return general(row)",
        ]
    )
    exec(compile(source, "<row encoder>", "exec"), known)  # noqa: S102 - no text of a user is in it
    code = known.pop("made").__code__  # type: ignore[attr-defined]
    return tuple(FunctionType(code, {**known, "general": general}) for general in ways)


def _checked(value: str, convert: str, kind: pa.DataType, *, is_nullable: bool) -> list[str]:
    """Return the lines that take a value as it is, or convert it; nulls as the column has them."""
    test = _is_storage_value(value, kind)
    if test is None:
        lines = [f"    {value} = {convert}({value})"]
    else:
        lines = [f"    if not ({test}): {value} = {convert}({value})"]
    if is_nullable:
        return [f"    if {value} is not None:", *(f"  {line}" for line in lines)]
    return [f"    if {value} is None: return general(row)", *lines]


def _is_storage_value(value: str, kind: pa.DataType) -> str | None:
    """Return the test that a user's value is its storage value; None: only conversion tells."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (1 << bits - 1,) * 2 if pa.types.is_signed_integer(kind) else (0, 1 << bits)
        return f"type({value}) is int and {-low} <= {value} < {high}"
    if pa.types.is_float64(kind):
        return f"type({value}) is float"
    if pa.types.is_boolean(kind):
        return f"{value} is True or {value} is False"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"type({value}) is str and {value}.isascii()"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"type({value}) is bytes"
    return None
