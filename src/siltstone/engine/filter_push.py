"""Pushed filters: the part of a filter that Lance may evaluate before us, as DataFusion SQL.

Lance prefilters with a *superset*: each row that the whole filter keeps, the pushed text keeps. A
node here is a piece of the filter on which Arrow and DataFusion answer alike (true, false and
null), or None where no such piece is known:

    Atom      a column beside constants; exact
    All       AND. A part that is missing widens the answer, so it is dropped
    AnyOf     OR. A missing part could narrow the answer: all or nothing
    Negated   NOT. What is inside must be exact: a superset negated is a subset
    Implied   holds wherever the filter is true, and says nothing about false and null

Floats are never here: Arrow and DataFusion differ on NaN and -0.0. Nor is what cannot be written
as a literal of the column's own type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.engine import filter_literals

_UNIT_NAMES = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_UNKNOWN_TO_LANCE = (
    pa.types.is_unsigned_integer,
    pa.types.is_large_string,
    pa.types.is_large_binary,
    pa.types.is_time,
)
"""Types that pylance 14 does not read from Substrait (`tests/query/test_arrow_filters.py`)."""
_PLAIN_ZONE = re.compile(r"[A-Za-z0-9_/+:-]+")


@dataclass(frozen=True, slots=True)
class Atom:
    column: str
    rest: str  # what follows the column's name


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Push | None, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Push | None, ...]


@dataclass(frozen=True, slots=True)
class Negated:
    part: Push | None


@dataclass(frozen=True, slots=True)
class Implied:
    part: Push | None


Push = Atom | All | AnyOf | Negated | Implied


def render(node: Push | None, names: Mapping[str, str], *, exact: bool = False) -> str | None:
    """Return SQL over the physical `names` that is true wherever `node` is; None if there is none.

    With `exact` it is also false and null wherever `node` is.
    """
    if isinstance(node, Atom):
        name = names.get(node.column)
        return None if name is None or not _is_safe(name) else f"`{name}`{node.rest}"
    if isinstance(node, Negated):
        inside = render(node.part, names, exact=True)
        return None if inside is None else f"NOT ({inside})"
    if isinstance(node, Implied):
        return None if exact else render(node.part, names)
    if isinstance(node, AnyOf):
        return _join(" OR ", [render(part, names, exact=exact) for part in node.parts])
    if isinstance(node, All):
        parts = [render(part, names, exact=exact) for part in node.parts]
        return _join(" AND ", parts if exact else [part for part in parts if part is not None])
    return None


def _join(word: str, parts: list[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return known[0] if len(known) == 1 else word.join(f"({part})" for part in known)


def _is_safe(name: str) -> bool:
    # A dot would be read as a path into a struct, a backtick would end the name.
    return bool(name) and not any(mark in name for mark in "`.\\")


def is_pushable(type_: pa.DataType) -> bool:
    """Say whether Arrow and DataFusion compare columns of this type alike."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_decimal128(type_)
    )


def is_readable_as_substrait(schema: pa.Schema) -> bool:
    """Say whether Lance takes an Arrow expression over a dataset of this schema.

    It gets the types of all columns with it. Of flat ones it leaves out those that it does not
    know, but for one; not of nested ones. What it cannot read it refuses as if it were damaged.
    """
    return all(_is_readable(field.type) for field in schema)


def _is_readable(kind: Any) -> bool:
    if not pa.types.is_nested(kind):
        return kind != pa.time64("us")
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return all(
        _is_readable(each) and not any(is_of(each) for is_of in _UNKNOWN_TO_LANCE) for each in inner
    )


def text_literal(value: str) -> str:
    """Return a string as DataFusion SQL: only the quote is special, a backslash is not."""
    return "'" + value.replace("'", "''") + "'"


def grid_literal(n: int, type_: pa.DataType) -> str | None:
    """Return the n-th value of the grid of `type_` as DataFusion SQL of that very type."""
    if pa.types.is_integer(type_):
        # DataFusion reads the digits first, as u64, and cannot negate 2**63.
        return str(n) if n > -(1 << 63) else None
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        digits = filter_literals.decimal_text(n, type_.scale)
        return f"CAST('{digits}' AS DECIMAL({type_.precision}, {type_.scale}))"
    if pa.types.is_date32(type_):
        return f"arrow_cast(arrow_cast({n}, 'Int32'), 'Date32')"
    if pa.types.is_timestamp(type_) and (not type_.tz or _PLAIN_ZONE.fullmatch(type_.tz)):
        # By number, not by text: DataFusion reads a text in the zone of the column.
        zone = f'Some("{type_.tz}")' if type_.tz else "None"
        return f"arrow_cast({n}, 'Timestamp({_UNIT_NAMES[type_.unit]}, {zone})')"
    return None
