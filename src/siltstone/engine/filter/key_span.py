"""Key span: between which values of a column lie all rows that a filter keeps.

    id > 3 AND id <= 9           4 to 9, and the filter says nothing else
    id BETWEEN 4 AND 9 AND v > 5     4 to 9, and more
    id < 3 OR id = 9             up to 9, and more
    id > 3 OR v > 5              not known

Of columns whose values are whole numbers as they are stored (integers, dates, moments, bools,
decimals), texts or bytes. It comes from what a filter says about its columns one by one (`pushed`).
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from siltstone.engine.filter.pushed import All, AnyOf, Atom, FalseIfNull, Implied, Negated, Push

_DEPTH_MAX = 32
_IS_NULL = " IS NULL"


class KeySpan(msgspec.Struct, frozen=True):
    """Storage values from `low` to `high`, both in it; None is open. Without any if low > high.

    `is_all`: the filter keeps all rows in it, if the column has no nulls; of whole numbers alone.
    """

    low: Any
    high: Any
    is_all: bool

    @property
    def is_empty(self) -> bool:
        """Whether no value is in it."""
        return self.low is not None and self.high is not None and self.high < self.low


_EMPTY = KeySpan(1, 0, is_all=True)
"""Of any type: the filter keeps no row."""
ALL_KEYS = KeySpan(None, None, is_all=True)


def span_of(node: Push | None, column: str, depth: int = 0) -> KeySpan | None:
    """Return the span of a key column where `node` is true; None: it says nothing about it."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(node, Atom):
        return _of_atom(node) if node.column == column else None
    if isinstance(node, Implied):
        found = span_of(node.part, column, depth + 1)
        return None if found is None else KeySpan(found.low, found.high, is_all=False)
    if isinstance(node, FalseIfNull):
        return span_of(node.part, column, depth + 1)
    if isinstance(node, Negated):
        return ALL_KEYS if node.part == Atom(column, _IS_NULL) else None
    return _of_parts(node, column, depth + 1) if isinstance(node, All | AnyOf) else None


def _of_atom(atom: Atom) -> KeySpan | None:
    if atom.bounds is not None:
        low, high = atom.bounds
        return KeySpan(low, high, is_all=isinstance(high if low is None else low, int))
    if atom.values is None:
        return None
    values = cast("frozenset[Any]", atom.values)
    if not values:
        return _EMPTY
    return KeySpan(min(values), max(values), is_all=len(values) == 1)


def _of_parts(node: All | AnyOf, column: str, depth: int) -> KeySpan | None:
    found = [span_of(part, column, depth) for part in node.parts]
    known = [span for span in found if span is not None]
    if not known or (isinstance(node, AnyOf) and len(known) < len(found)):
        return None
    some = [span for span in known if not span.is_empty]
    if not some or (isinstance(node, All) and len(some) < len(known)):
        return _EMPTY
    lows, highs = [span.low for span in some], [span.high for span in some]
    if isinstance(node, AnyOf):
        low = None if None in lows else min(lows)
        high = None if None in highs else max(highs)
        return KeySpan(low, high, is_all=False)
    low = max((value for value in lows if value is not None), default=None)
    high = min((value for value in highs if value is not None), default=None)
    is_all = len(some) == len(found) and all(span.is_all for span in some)
    return KeySpan(low, high, is_all)
