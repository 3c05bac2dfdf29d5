"""Merge clauses: MERGE INTO table USING source ON condition WHEN ..., taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from siltstone.errors import RequestError
from siltstone.query.sql.writes.clauses import (
    alias_of,
    assignments_of,
    names_in,
    part_of,
    returning_of,
    target_of,
)
from siltstone.query.sql.writes.statements import Action, Assignment, Clause, MergeStatement, When
from siltstone.query.sql.writes.words import Words


def merge_of(words: Words, given: str) -> MergeStatement:
    """Return a MERGE.

    Raises:
        RequestError: It is of another form.
    """
    if words.low(1) != "into":
        raise RequestError(
            "MERGE is written as MERGE INTO table USING source ON condition WHEN ..."
        )
    target, at = target_of(words, 2)
    if words.low(at) != "using":
        raise RequestError(f"MERGE INTO {target.text} is followed by USING, a table or a query")
    source, alias, at = _source(words, at + 1)
    end = words.find_low("returning", at=at)
    clauses = _clauses(words[at:end])
    first = end - sum(map(len, clauses))
    on, using = "", tuple[str, ...]()
    if words.low(at) == "on":
        on = words[at + 1 : first].sql
    elif words.low(at) == "using":
        using = tuple(names_in(words.inside(at + 1)))
    if not (on or using) or first == end:
        raise RequestError("MERGE needs ON condition (or USING (columns)), and WHEN ... THEN ...")
    read = tuple(_clause(each, target.name) for each in clauses)
    _refuse_unreachable(read)
    return MergeStatement(target, given, source, alias, on, using, read, returning_of(words[end:]))


def _refuse_unreachable(clauses: tuple[Clause, ...]) -> None:
    """Refuse a clause that never acts; DuckDB lets it act before the one in front of it."""
    always = set[When]()
    for each in clauses:
        if each.when in always:
            when = each.when.name.replace("_", " ")
            raise RequestError(
                f"MERGE has a clause behind WHEN {when} without a condition, which takes all rows:"
                " it would never act"
            )
        if not each.condition:
            always.add(each.when)


def _source(words: Words, at: int) -> tuple[str, str, int]:
    """Return the tables or the query of the source, its alias, and the place behind both."""
    begin = at
    name = "source"
    if words.low(at) == "(":
        at = words.bracketed(at)
    else:
        while at < len(words) and words.words[at].name is not None:
            name = str(words.words[at].name)
            at += 1
            if words.low(at) == "(":  # a function that gives rows
                at = words.bracketed(at)
            if words.low(at) != ".":
                break
            at += 1
    at = _behind_moment(words, at)
    alias, end = alias_of(words, at)
    if alias and words.low(end) == "(":
        end = words.bracketed(end)
    end = _behind_moment(words, end)
    text = words[begin:end].sql
    return text, alias or name, end


def _behind_moment(words: Words, at: int) -> int:
    """Return the place behind AT (VERSION => ..), if that is here."""
    is_there = words.starts("at", "(", at=at) and words.low(at + 2) in {"version", "timestamp"}
    return words.bracketed(at + 1) if is_there else at


def _clauses(words: Words) -> list[Words]:
    """Return the clauses, each of which begins with WHEN."""
    starts = [*_outside_of_cases(words, "when")]
    ends = [*starts, len(words)][1:]
    return [words[start:end] for start, end in zip(starts, ends, strict=True)]


def _outside_of_cases(words: Words, low: str) -> Iterator[int]:
    """Yield the places of a keyword that is in no brackets, and no part of a CASE."""
    cases = 0
    for at, word in enumerate(words):
        if word.depth != words.depth:
            continue
        cases += {"case": 1, "end": -1}.get(word.low, 0) if cases or word.low == "case" else 0
        if word.low == low and not cases:
            yield at


_WHENS = (
    (("when", "matched"), When.MATCHED),
    (("when", "not", "matched", "by", "source"), When.NOT_MATCHED_BY_SOURCE),
    (("when", "not", "matched", "by", "target"), When.NOT_MATCHED),
    (("when", "not", "matched"), When.NOT_MATCHED),
)


def _clause(words: Words, table: str) -> Clause:
    then = next(_outside_of_cases(words, "then"), len(words))
    for lows, when in _WHENS:
        if not words.starts(*lows):
            continue
        rest = words[len(lows) : then]
        if rest and rest.low(0) != "and":
            break
        return _acting(when, rest[1:].sql, words[then + 1 :], table)
    raise RequestError(f"MERGE has no clause {words.sql[:60]!r}")


def _acting(when: When, condition: str, words: Words, table: str) -> Clause:
    if words.starts("delete") and len(words) == 1:
        found = Clause(when, Action.DELETE, condition)
    elif words.starts("do", "nothing") and len(words) == 2:
        found = Clause(when, Action.NOTHING, condition)
    elif words.starts("error"):
        found = Clause(when, Action.ERROR, condition, message=words[1:].sql)
    elif words.starts("update"):
        found = _updating(when, condition, words, table)
    elif words.starts("insert"):
        found = _inserting(when, condition, words)
    else:
        raise RequestError(f"MERGE has no action {words.sql[:40]!r}")
    is_insert = found.action is Action.INSERT
    if when is When.NOT_MATCHED and found.action in {Action.UPDATE, Action.DELETE}:
        raise RequestError("WHEN NOT MATCHED has no row to update or to delete: it inserts one")
    if when is not When.NOT_MATCHED and is_insert:
        raise RequestError("only WHEN NOT MATCHED inserts a row")
    return found


def _updating(when: When, condition: str, words: Words, table: str) -> Clause:
    is_whole = len(words) == 1 or words.starts("update", "set", "*")
    if is_whole or words.starts("update", "by"):
        if when is When.NOT_MATCHED_BY_SOURCE:
            raise RequestError("WHEN NOT MATCHED BY SOURCE has no source row to update by")
        is_by_name = words.starts("update", "by", "name")
        return Clause(when, Action.UPDATE, condition, is_whole=True, is_by_name=is_by_name)
    if words.low(1) != "set":
        raise RequestError(f"MERGE has no action {words.sql[:40]!r}")
    return Clause(when, Action.UPDATE, condition, assignments_of(words[2:], table))


def _inserting(when: When, condition: str, words: Words) -> Clause:
    is_by_name = words.starts("insert", "by", "name")
    is_by_position = words.starts("insert", "by", "position")
    if is_by_name or is_by_position or len(words) == 1 or words.starts("insert", "*"):
        return Clause(when, Action.INSERT, condition, is_whole=True, is_by_name=is_by_name)
    at, names = 1, list[str]()
    if words.low(at) == "(":
        names, at = names_in(words.inside(at)), words.bracketed(at)
    if words.starts("default", "values", at=at):
        return Clause(when, Action.INSERT, condition)
    if words.low(at) != "values" or words.bracketed(at + 1) != len(words):
        raise RequestError(f"MERGE inserts VALUES (...); got {words.sql[:60]!r}")
    values = tuple(map(part_of, words.inside(at + 1).split()))
    if not names:
        return Clause(when, Action.INSERT, condition, values=values)
    if len(names) != len(values):
        raise RequestError(f"INSERT names {len(names)} columns, and gives {len(values)} values")
    sets = tuple(Assignment(name, value) for name, value in zip(names, values, strict=True))
    return Clause(when, Action.INSERT, condition, sets)
