"""Parse: a statement that writes, taken apart into its value; one that only reads is None.

    words ─▶ WITH ─▶ the clauses of INSERT, UPDATE, DELETE, MERGE, TRUNCATE, or a definition

Only what is between the parts is read here. The parts go to DuckDB as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from siltstone.arguments import is_text
from siltstone.errors import RequestError
from siltstone.query.sql.allowed import TEXT_BYTES_MAX
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes.clauses import (
    assignments_of,
    names_in,
    part_of,
    returning_of,
    target_of,
)
from siltstone.query.sql.writes.conditions import Condition, condition_of
from siltstone.query.sql.writes.definitions import definition_of
from siltstone.query.sql.writes.merge_clauses import merge_of
from siltstone.query.sql.writes.queries import ACTIONS, EXISTING, ROWS
from siltstone.query.sql.writes.statements import (
    Assignment,
    Change,
    DeleteStatement,
    Expressions,
    InsertStatement,
    OnConflict,
    Target,
    TruncateStatement,
    UpdateStatement,
    ValueText,
    Write,
)
from siltstone.query.sql.writes.words import Words, first_of, words_of

KEPT_MAX = 256
"""So many statements are kept as they were taken apart, each at most so long:"""
_KEPT_LENGTH_MAX = 4_096
_FIRST = re.compile(
    r"(?:insert|update|delete|merge|truncate|create|drop|alter|(with))\b", re.IGNORECASE
)
_IN_WITH = re.compile(r"\b(?:insert|update|delete|merge)\b", re.IGNORECASE)
_QUERIES = ("select", "from", "values", "with", "table", "pivot", "unpivot", "(")
"""What a query within brackets begins with; a list of columns does not."""
_READS = ("select", "from", "values", "pivot", "unpivot")
_MAIN = (*_READS, "insert", "update", "delete", "merge")


def write_of(sql: object) -> Write | None:
    """Return the statement if it writes; None if it reads, or is none.

    Raises:
        RequestError: It writes, but in a form that is not offered.
    """
    if not isinstance(sql, str):
        return None
    found = _FIRST.match(sql, first_of(sql))
    if found is None or (found[1] and not _IN_WITH.search(sql)):
        return None
    if len(sql) > TEXT_BYTES_MAX or not is_text(sql):
        return None  # refused as any statement
    return kept(sql) if len(sql) <= _KEPT_LENGTH_MAX else _parsed(sql)


def _parsed(sql: str) -> Write | None:
    words = words_of(sql)
    given, main = _without_with(words)
    read = _READERS.get(main.low(0))
    statement = definition_of(words) if read is None else read(main, given)
    if statement is None:
        return None
    if len(main) < len(words):
        _refuse_queries_as(statement, words[: len(words) - len(main)])
    names = frozenset(folded(each.text[1:]) for each in words if each.kind == "parameter")
    return Write(statement, names)


def _refuse_queries_as(statement: object, given: Words) -> None:
    """Refuse a WITH that names a query as the table, or as rows that are given to DuckDB.

    The statement would read it as its own. An INSERT may: it reads no table by that name itself.
    """
    names = {folded(part.words[0].name or "") for part in given[1:].split()}
    if given.low(1) == "recursive":
        names.add(folded(given.words[2].name or ""))
    for made in names.intersection((ROWS, EXISTING, ACTIONS)):
        raise RequestError(f"WITH names a query {made!r}, as rows that the statement is given")
    target = None if isinstance(statement, InsertStatement) else getattr(statement, "target", None)
    if isinstance(target, Target) and folded(target.parts[-1]) in names:
        raise RequestError(f"WITH names a query {target.parts[-1]!r}, as the table that is written")


kept = lru_cache(maxsize=KEPT_MAX)(_parsed)


def _without_with(words: Words) -> tuple[str, Words]:
    if words.low(0) != "with":
        return "", words
    # The statement behind a WITH begins where a query of the WITH ends.
    at = words.find(lambda here, at: here.low(at) in _MAIN and here.low(at - 1) == ")")
    return words[:at].sql, words[at:]


# INSERT


def _insert(words: Words, given: str) -> Change:
    at, on_conflict = 1, OnConflict.REFUSE
    if words.starts("or", "replace", at=1):
        at, on_conflict = 3, OnConflict.REPLACE
    elif words.starts("or", "ignore", at=1):
        at, on_conflict = 3, OnConflict.NOTHING
    if words.low(at) != "into":
        raise RequestError("INSERT is written as INSERT INTO table ...")
    target, at = target_of(words, at + 1, needs_as=True)
    columns = list[str]()
    if words.low(at) == "(" and words.low(at + 1) not in _QUERIES:
        columns, at = names_in(words.inside(at)), words.bracketed(at)
    is_by_name = words.starts("by", "name", at=at)
    at += 2 if is_by_name or words.starts("by", "position", at=at) else 0
    end = words.find_low("returning", at=at)
    conflict = words.find(_is_on_conflict, at)
    source, rest = words[at : min(conflict, end)], words[conflict:end]
    if rest and on_conflict is not OnConflict.REFUSE:
        raise RequestError("INSERT OR REPLACE and OR IGNORE have no ON CONFLICT")
    conflicting, action, sets, where = _on_conflict(rest, target.name)
    values = _values(source)
    return InsertStatement(
        target,
        given,
        tuple(columns),
        "" if values is not None else source.sql,
        "" if given else _copied(source),
        values or (),
        is_by_name=is_by_name,
        on_conflict=action if rest else on_conflict,
        conflicting=conflicting,
        sets=sets,
        where=where,
        returning=returning_of(words[end:]),
    )


def _is_on_conflict(words: Words, at: int) -> bool:
    return words.starts("on", "conflict", at=at) and words.low(at + 2) in {"(", "do", "on"}


_Conflict: TypeAlias = tuple[tuple[str, ...], OnConflict, tuple[Assignment, ...], str]


def _on_conflict(words: Words, table: str) -> _Conflict:
    at = 2
    if words.starts("on", "constraint", at=at):
        raise RequestError("ON CONFLICT names the columns of the key, not a constraint")
    conflicting = tuple(names_in(words.inside(at))) if words.low(at) == "(" else ()
    at = words.bracketed(at)
    if not words or words.starts("do", "nothing", at=at):
        return conflicting, OnConflict.NOTHING, (), ""
    if not words.starts("do", "update", "set", at=at):
        raise RequestError("ON CONFLICT is followed by DO NOTHING or DO UPDATE SET ...")
    where = words.find_low("where", at=at)
    sets = assignments_of(words[at + 3 : where], table)
    return conflicting, OnConflict.UPDATE, sets, words[where + 1 :].sql


def _values(words: Words) -> tuple[tuple[ValueText, ...], ...] | None:
    """Return the rows of VALUES; None: the rows come from a query."""
    if words.starts("default", "values") and len(words) == 2:
        return ((),)
    if words.low(0) != "values" or words.find_low(*_BEHIND_VALUES) < len(words):
        return None
    rows = list[tuple[ValueText, ...]]()
    for row in words[1:].split():
        if row.low(0) != "(" or row.bracketed() != len(row):
            return None
        rows.append(tuple(map(part_of, row.inside().split())))
    return tuple(rows)


def _copied(words: Words) -> str:
    """Return the name in `SELECT * FROM name` or `FROM name`; of other queries ""."""
    at = 2 if words.starts("select", "*") else 0
    is_one = words.low(at) == "from" and len(words) == at + 2
    return (words.words[at + 1].name or "") if is_one else ""


_BEHIND_VALUES = ("order", "limit", "offset", "union", "intersect", "except")


# UPDATE, DELETE, TRUNCATE


def _update(words: Words, given: str) -> Change | None:
    if words.find_low("set") == len(words):
        return None  # DuckDB has an UPDATE EXTENSIONS
    target, at = target_of(words, 1)
    if words.low(at) != "set":
        raise RequestError("UPDATE is followed by a table and SET column = value, ...")
    source, rest = _rows_meant(words, at, target, given, _is_from)
    return UpdateStatement(
        target, given, assignments_of(words[at + 1 : source], target.name), *rest
    )


def _rows_meant(
    words: Words, at: int, target: Target, given: str, is_source: Callable[[Words, int], bool]
) -> tuple[int, tuple[str, str, Condition | None, Expressions]]:
    """Return where FROM or USING begins, else WHERE; and what these and RETURNING say."""
    end = words.find_low("returning", at=at)
    where = min(words.find_low("where", at=at), end)
    source = min(words.find(is_source, at), where)
    said = words[where + 1 : end]
    condition = None if given or source < where else condition_of(said, target.name)
    return source, (words[source + 1 : where].sql, said.sql, condition, returning_of(words[end:]))


def _is_from(words: Words, at: int) -> bool:
    """Say whether a FROM is the clause, and no part of IS DISTINCT FROM."""
    return words.low(at) == "from" and words.low(at - 1) != "distinct"


def _delete(words: Words, given: str) -> Change:
    if words.low(1) != "from":
        raise RequestError("DELETE is written as DELETE FROM table ...")
    target, at = target_of(words, 2)
    source, rest = _rows_meant(words, at, target, given, lambda here, n: here.low(n) == "using")
    if source != at:
        raise RequestError(f"{words[:at].sql} is followed by {words[at:].sql[:40]!r}")
    return DeleteStatement(target, given, *rest)


def _truncate(words: Words, _: str) -> Change:
    target, at = target_of(words, 2 if words.low(1) == "table" else 1)
    if at != len(words):
        raise RequestError(f"TRUNCATE {target.text} is followed by {words[at:].sql[:40]!r}")
    return TruncateStatement(target)


_READERS: dict[str, Callable[[Words, str], Change | None]] = {
    "insert": _insert,
    "update": _update,
    "delete": _delete,
    "merge": merge_of,
    "truncate": _truncate,
    **dict.fromkeys(_READS, lambda _, __: None),
}
