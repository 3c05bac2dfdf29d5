"""Ids: what the id of a namespace or a table in a request is in the store.

A table `t` in the namespace `a.b` is the table `a.b.t` of the store, and has the id
`["a", "b", "t"]`. An id of one word is the whole name of a table, whatever namespace it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from siltstone.engine.catalog import namespaces as spaces
from siltstone.errors import RequestError, TableNotFoundError

_LEVELS_MAX = spaces.LEVELS_MAX + 1
"""Of a table, which is one level below its namespace."""
_WORD_MAX = 128


class HasId(Protocol):
    """A request that is about a namespace, or a table."""

    id: list[str] | None


def namespace_of(asked: HasId) -> str:
    """Return the name of the namespace that a request is about; "" is the root.

    Raises:
        RequestError: No namespace can have such an id.
    """
    return ".".join(_levels(asked.id or []))


def table_of(asked: HasId) -> str:
    """Return the store's name of the table that a request is about.

    Raises:
        RequestError, TableNotFoundError: No table can have such an id.
    """
    return name_of(asked.id or [])


def name_of(ids: Sequence[str]) -> str:
    """Return the store's name of the table with an id.

    Raises:
        RequestError, TableNotFoundError: No table can have it; it is the id of the root.
    """
    if not ids:
        raise TableNotFoundError("$")
    return _word(ids[0]) if len(ids) == 1 else ".".join(_levels(ids))


def _levels(ids: Sequence[str]) -> list[str]:
    """Return the levels of an id; one with a dot in it would be two levels of the store."""
    if len(ids) > _LEVELS_MAX:
        raise RequestError(f"an id must have at most {_LEVELS_MAX} levels; got {len(ids)}")
    words = [_word(part) for part in ids]
    dotted = next((word for word in words if "." in word), None)
    if dotted is not None:
        raise RequestError(
            f"a level of an id may have no '.', which separates levels; got {dotted!r} in"
            f" {words!r:.400}"
        )
    return words


def ids_of(name: str) -> list[str]:
    """Return the id of a table or a namespace: its levels."""
    return spaces.levels_of(name)


def _word(part: str) -> str:
    if not 0 < len(part) <= _WORD_MAX:
        raise RequestError(
            f"a part of an id must be a string of 1 to {_WORD_MAX} characters; got {part!r:.160}"
        )
    return part
