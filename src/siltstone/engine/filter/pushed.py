"""Pushed filters: the part of a filter that Lance may evaluate before us, as DataFusion SQL.

Lance prefilters with a *superset*: each row that the whole filter keeps, the pushed text keeps. A
node here is a piece of the filter on which Arrow and DataFusion answer alike (true, false and
null), or None where no such piece is known:

    Atom      a column and constants; exact. With `values`, it says that the column has one of
              these (storage values); without `rest` that is all that it says, and not to Lance.
              With `bounds`, that it is between these, no more; without `rest` not to Lance
    All       AND. A part that is missing widens the answer, so it is dropped
    AnyOf     OR. A missing part could narrow the answer: all or nothing
    Negated   NOT. What is inside must be exact: a superset negated is a subset
    Implied   holds wherever the filter is true, and says nothing about false and null
    FalseIfNull   false where its part is null: Arrow's `is_in`, which is true or false

Floats are never here, nor among `values`: Arrow and DataFusion differ on NaN and -0.0. Nor is what
cannot be written as a literal of the column's own type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.engine.filter import literals

_UNIT_NAMES = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
# DataFusion's parser refuses what is nested deeper: 24 NOTs, 47 ORs, 16 of both in turn (measured).
_DEPTH_MAX = 10
_PROVEN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
)
_PLAIN_ZONE = re.compile(r"[A-Za-z0-9_/+:-]+")


class KeySpan(msgspec.Struct, frozen=True):
    """Storage values from `low` to `high`, each in it if it is said; None is open.

    It has none if low > high, or if it `is_empty`. `is_all`: the filter keeps all rows in it, if
    the column has no nulls.
    """

    low: Any
    high: Any
    is_all: bool
    has_low: bool = True
    has_high: bool = True
    is_empty: bool = False


class Atom(msgspec.Struct, frozen=True):
    column: str
    rest: str | None  # what follows the column's name
    values: frozenset[object] | None = None
    bounds: KeySpan | None = None


class All(msgspec.Struct, frozen=True):
    parts: tuple[Push | None, ...]


class AnyOf(msgspec.Struct, frozen=True):
    parts: tuple[Push | None, ...]


class Negated(msgspec.Struct, frozen=True):
    part: Push | None


class Implied(msgspec.Struct, frozen=True):
    part: Push | None


class FalseIfNull(msgspec.Struct, frozen=True):
    part: Push | None
    column: str  # the one that `part` reads


Push = Atom | All | AnyOf | Negated | Implied | FalseIfNull


def render(
    node: Push | None, names: Mapping[str, str], *, exact: bool = False, depth: int = 0
) -> str | None:
    """Return SQL over the physical `names` that is true wherever `node` is; None if there is none.

    With `exact` it is also false and null wherever `node` is. `depth`: how many nodes it is in.
    """
    if node is None or depth > _DEPTH_MAX:
        return None
    if isinstance(node, Atom):
        name = names.get(node.column)
        is_known = name is not None and node.rest is not None and _is_safe(name)
        return f"`{name}`{node.rest}" if is_known else None
    if isinstance(node, Implied):
        return None if exact else render(node.part, names, depth=depth)
    if isinstance(node, FalseIfNull):
        known = (Negated(Atom(node.column, " IS NULL")), node.part) if exact else (node.part,)
        return render(All(known), names, exact=exact, depth=depth)
    if isinstance(node, Negated):
        inside = render(node.part, names, exact=True, depth=depth + 1)
        return None if inside is None else f"NOT ({inside})"
    return _rendered_parts(node, names, exact, depth + 1)


def _rendered_parts(
    node: All | AnyOf, names: Mapping[str, str], exact: bool, depth: int
) -> str | None:
    parts = [render(part, names, exact=exact, depth=depth) for part in node.parts]
    if isinstance(node, AnyOf):
        return _join(" OR ", parts)
    return _join(" AND ", parts if exact else [part for part in parts if part is not None])


def _join(word: str, parts: list[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return known[0] if len(known) == 1 else word.join(f"({part})" for part in known)


def _is_safe(name: str) -> bool:
    # A dot would be read as a path into a struct, a backtick would end the name.
    return bool(name) and not any(mark in name for mark in "`.\\")


def is_pushable(type_: pa.DataType) -> bool:
    """Say whether Lance compares columns of this type as Arrow does, with nulls, and by an index.

    Each is here because every comparison was tried: `tests/query/test_filter_matrix.py`.
    """
    return any(is_of(type_) for is_of in _PROVEN)


def text_literal(value: str) -> str:
    """Return a string as DataFusion SQL: only the quote is special, a backslash is not."""
    return "'" + value.replace("'", "''") + "'"


def bytes_literal(value: bytes, type_: pa.DataType) -> str:
    """Return bytes as DataFusion SQL of this type."""
    text = f"X'{value.hex()}'"
    return f"arrow_cast({text}, 'LargeBinary')" if pa.types.is_large_binary(type_) else text


def grid_literal(n: int, type_: pa.DataType) -> str | None:
    """Return the n-th value of the grid of `type_` as DataFusion SQL of that very type."""
    if pa.types.is_integer(type_):
        # DataFusion reads digits first, as u64, and cannot negate 2**63.
        return str(n) if n > -(1 << 63) else f"arrow_cast('{n}', 'Int64')"
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        digits = literals.decimal_text(n, type_.scale)
        return f"CAST('{digits}' AS DECIMAL({type_.precision}, {type_.scale}))"
    return _temporal_literal(n, type_) if pa.types.is_temporal(type_) else None


def _temporal_literal(n: int, type_: Any) -> str | None:
    """Write a date or time by number, not by text: DataFusion reads a text in the column's zone."""
    number = f"arrow_cast({n}, 'Int32')" if type_.bit_width == 32 else str(n)
    if pa.types.is_date32(type_):
        return f"arrow_cast({number}, 'Date32')"
    if pa.types.is_time(type_):
        return f"arrow_cast({number}, 'Time{type_.bit_width}({_UNIT_NAMES[type_.unit]})')"
    if pa.types.is_timestamp(type_) and (not type_.tz or _PLAIN_ZONE.fullmatch(type_.tz)):
        zone = f'Some("{type_.tz}")' if type_.tz else "None"
        return f"arrow_cast({number}, 'Timestamp({_UNIT_NAMES[type_.unit]}, {zone})')"
    return None
