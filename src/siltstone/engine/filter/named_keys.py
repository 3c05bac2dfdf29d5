"""Named keys: the few keys of which each row that a filter keeps must have one.

    id = 3 AND v > 5            3
    id IN (3, 4) AND id <> 4    3, 4
    a = 1 AND b IN (2, 3)       (1, 2), (1, 3)
    a = 1                       of the key (a, b): not known

They come from what a filter says about its columns one by one (`pushed`), so they are more than
those of the rows that match, never less. The reader still applies the whole filter.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence

from siltstone.engine.filter.pushed import All, AnyOf, Atom, FalseIfNull, Implied, Push
from siltstone.formats.keys import Key

_DEPTH_MAX = 32


def keys_named(push: Push | None, columns: Sequence[str], at_most: int) -> Sequence[Key] | None:
    """Return the keys of the rows that a filter may keep; None: it does not say, or too many.

    Args:
        push: What is known of the filter.
        columns: The key columns, in key order.
        at_most: The bound on the number of keys.
    """
    found: list[frozenset[object]] = []
    for name in columns:
        values = _values(push, name, 0)
        if values is None:
            return None
        found.append(values)
    if math.prod(map(len, found)) > at_most:
        return None
    return [*found[0]] if len(found) == 1 else [*itertools.product(*found)]


def _values(node: Push | None, column: str, depth: int) -> frozenset[object] | None:
    """Return the values that a column may have where `node` is true; None: any."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(node, Atom):
        return node.values if node.column == column else None
    if isinstance(node, Implied | FalseIfNull):
        return _values(node.part, column, depth + 1)
    if not isinstance(node, All | AnyOf):
        return None
    parts = [_values(part, column, depth + 1) for part in node.parts]
    known = [part for part in parts if part is not None]
    if not known or (isinstance(node, AnyOf) and len(known) < len(parts)):
        return None
    join = operator.or_ if isinstance(node, AnyOf) else operator.and_
    return functools.reduce(join, known)
