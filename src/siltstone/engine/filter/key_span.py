"""Key span: between which values of a column lie all rows that a filter keeps.

    id > 3 AND id <= 9           4 to 9, and the filter says nothing else
    id BETWEEN 4 AND 9 AND v > 5     4 to 9, and more
    id < 3 OR id = 9             up to 9, and more
    id > 3 OR v > 5              not known

Of columns whose values are whole numbers as they are stored (integers, dates, timestamps, bools,
decimals), texts and bytes. It comes from what a filter says about its columns one by one
(`pushed`).
"""

from __future__ import annotations

import functools
from typing import Any, cast

from msgspec.structs import replace

from siltstone.engine.filter import pushed
from siltstone.engine.filter.pushed import KeySpan, Push

_DEPTH_MAX = 32
_IS_NULL = " IS NULL"


ALL_KEYS = KeySpan(None, None, is_all=True)


def span_of(node: Push | None, column: str, depth: int = 0) -> KeySpan | None:
    """Return the span of a key column where `node` is true; None: it says nothing about it."""
    if node is None or depth > _DEPTH_MAX:
        return None
    if isinstance(node, pushed.Atom):
        return _of_atom(node) if node.column == column else None
    if isinstance(node, pushed.Implied):
        found = span_of(node.part, column, depth + 1)
        return None if found is None else replace(found, is_all=False)
    if isinstance(node, pushed.FalseIfNull):
        return span_of(node.part, column, depth + 1)
    if isinstance(node, pushed.Negated):
        return ALL_KEYS if node.part == pushed.Atom(column, _IS_NULL) else None
    return _of_parts(node, column, depth + 1)


def _of_atom(atom: pushed.Atom) -> KeySpan | None:
    if atom.bounds is not None:
        return atom.bounds
    if atom.values is None:
        return None
    values = cast("frozenset[Any]", atom.values)
    if not values:
        return KeySpan(None, None, is_all=True, is_empty=True)
    if not all(isinstance(value, int | str | bytes) for value in values):
        return None
    return KeySpan(min(values), max(values), is_all=len(values) == 1)


def _of_parts(node: pushed.All | pushed.AnyOf, column: str, depth: int) -> KeySpan | None:
    found = [span_of(part, column, depth) for part in node.parts]
    known = [span for span in found if span is not None]
    if not known or (isinstance(node, pushed.AnyOf) and len(known) < len(found)):
        return None
    if isinstance(node, pushed.AnyOf):
        return replace(functools.reduce(_either, known), is_all=False)
    is_all = len(known) == len(found) and all(span.is_all for span in known)
    return replace(functools.reduce(_both, known), is_all=is_all)


def _either(one: KeySpan, other: KeySpan) -> KeySpan:
    """Return a span with all values of two."""
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    low = min(_low(one), _low(other)) if None not in (one.low, other.low) else (None, False)
    high = max(_high(one), _high(other)) if None not in (one.high, other.high) else (None, True)
    return KeySpan(low[0], high[0], is_all=False, has_low=not low[1], has_high=high[1])


def _both(one: KeySpan, other: KeySpan) -> KeySpan:
    """Return the values that two spans share."""
    low = max((_low(span) for span in (one, other) if span.low is not None), default=(None, False))
    high = min((_high(s) for s in (one, other) if s.high is not None), default=(None, True))
    found = KeySpan(low[0], high[0], is_all=False, has_low=not low[1], has_high=high[1])
    return replace(found, is_empty=one.is_empty or other.is_empty)


def _low(span: KeySpan) -> tuple[Any, bool]:
    return span.low, not span.has_low


def _high(span: KeySpan) -> tuple[Any, bool]:
    return span.high, span.has_high
