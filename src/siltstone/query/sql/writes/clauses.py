"""Clauses: the parts that several kinds of statements have."""

from __future__ import annotations

from siltstone.errors import RequestError
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes.constants import constant_of
from siltstone.query.sql.writes.statements import Assignment, Expressions, Target, ValueText
from siltstone.query.sql.writes.words import Words

_BEHIND_A_TABLE = {
    "set", "using", "where", "returning", "values", "select", "from", "with", "default", "by", "on",
    "when", "order", "limit", "add", "alter", "drop", "rename",
}  # fmt: skip


def target_of(
    words: Words, at: int, *, has_alias: bool = True, needs_as: bool = False
) -> tuple[Target, int]:
    """Return the table that is named at a place, with its alias, and the place behind it.

    Raises:
        RequestError: No table is named there.
    """
    begin, parts = at, list[str]()
    while at < len(words):
        name = words.words[at].name
        if name is None:
            raise RequestError(f"a table must be named at {words[at:].sql[:40]!r}")
        parts.append(name)
        at += 1
        if words.low(at) != ".":
            break
        at += 1
    if not parts:
        raise RequestError("the statement ends where a table must be named")
    text = words[begin:at].sql
    alias, at = alias_of(words, at, needs_as=needs_as) if has_alias else ("", at)
    return Target(tuple(parts), text, alias), at


def alias_of(words: Words, at: int, *, needs_as: bool = False) -> tuple[str, int]:
    """Return the alias at a place, else "", and the place behind it; `needs_as`: only with AS."""
    has_as = words.low(at) == "as"
    if needs_as and not has_as:
        return "", at
    place = at + has_as
    if place >= len(words):
        return "", at
    word = words.words[place]
    if word.name is None or (not has_as and word.low in _BEHIND_A_TABLE):
        return "", at
    return word.name, place + 1


def names_in(words: Words) -> list[str]:
    """Return the names of a list.

    Raises:
        RequestError: Something else is in it.
    """
    found = list[str]()
    for part in words.split():
        name = part.words[0].name if len(part) == 1 else None
        if name is None:
            raise RequestError(f"a list of columns has {part.sql[:40]!r}, which is no name")
        found.append(name)
    return found


def assignments_of(words: Words, table: str) -> tuple[Assignment, ...]:
    """Return what SET assigns.

    Raises:
        RequestError: It is not of the form `column = value, ...`, or a column is there twice.
    """
    found = tuple(_assignment(part, table) for part in words.split())
    if not found:
        raise RequestError("SET assigns nothing")
    seen = set[str]()
    for each in found:
        if folded(each.column) in seen:
            raise RequestError(f"SET assigns {each.column!r} twice")
        seen.add(folded(each.column))
    return found


def _assignment(words: Words, table: str) -> Assignment:
    at = 0
    if words.low(1) == "." and folded(words.words[0].name or "") == folded(table):
        at = 2
    name = words.words[at].name if len(words) > at + 2 and words.low(at + 1) == "=" else None
    if name is None:
        raise RequestError(
            f"SET assigns one column at a time, `column = value`; got {words.sql[:40]!r}"
        )
    value = words[at + 2 :]
    return Assignment(name, part_of(value))


def part_of(words: Words) -> ValueText:
    """Return an expression, or DEFAULT."""
    if words.starts("default") and len(words) == 1:
        return ValueText("")
    return ValueText(words.sql, constant_of(words), _excluded(words))


def _excluded(words: Words) -> str:
    names = [word.name or "" for word in words]
    is_one = len(names) == 3 and folded(names[0]) == "excluded" and words.low(1) == "."
    return names[2] if is_one else ""


def returning_of(words: Words) -> Expressions:
    """Return the expressions behind RETURNING.

    Raises:
        RequestError: There are none.
    """
    if not words:
        return ()
    found = tuple(part.sql for part in words[1:].split())
    if not found:
        raise RequestError("RETURNING names nothing")
    return found
