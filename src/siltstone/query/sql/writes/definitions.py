"""Definitions: CREATE, DROP and ALTER of tables, CREATE and DROP of indexes, taken apart."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from siltstone.errors import RequestError
from siltstone.query.sql.writes.clauses import names_in, target_of
from siltstone.query.sql.writes.statements import (
    Alteration,
    AlterStatement,
    ColumnDefinition,
    CreateIndexStatement,
    CreateStatement,
    Definition,
    DropIndexStatement,
    DropStatement,
    IfExists,
    IndexStatement,
    Target,
)
from siltstone.query.sql.writes.words import Word, Words

_OFFERED = "tables and indexes are created, dropped and altered"
_CONSTRAINTS = {
    "check": "there are no CHECK constraints",
    "unique": "only the primary key is unique",
    "references": "there are no foreign keys",
    "foreign": "there are no foreign keys",
    "generated": "there are no generated columns",
    "as": "there are no generated columns",
    "collate": "texts have no collations",
    "constraint": "constraints have no names",
}
_ENDS = ("not", "null", "primary", *_CONSTRAINTS)
"""What ends the type of a column, or its default."""
_CASTS = {"cast", "decimal", "numeric", "varchar", "char", "timestamp", "time"}
_MOMENTS = ("current_", "localtime", "today", "now", "user", "session_user", "nextval")
_KINDS = {"": "btree", "art": "btree", "btree": "btree", "bitmap": "bitmap"}


def definition_of(words: Words) -> Definition | IndexStatement:
    """Return the statement.

    Raises:
        RequestError: It is not offered.
    """
    verb, what = words.low(0), words.low(1)
    if verb == "create":
        return _create(words)
    if verb == "drop" and what == "table":
        return _drop_table(words)
    if verb == "drop" and what == "index":
        return _drop_index(words)
    if verb != "alter" or what != "table":
        _refuse(words)
    return _alter(words)


def _refuse(words: Words) -> NoReturn:
    raise RequestError(f"{words[:2].sql.upper()} is not offered: {_OFFERED}")


def _skipped(words: Words, at: int, *lows: str) -> tuple[bool, int]:
    """Say whether some words stand at a place, and return the place behind them."""
    is_there = words.starts(*lows, at=at)
    return is_there, at + (len(lows) if is_there else 0)


def _end(words: Words, at: int) -> None:
    if at < len(words):
        raise RequestError(f"{words[:2].sql.upper()} ... {words[at:].sql[:60]!r} is not offered")


# CREATE


def _create(words: Words) -> Definition | IndexStatement:
    is_replaced, at = _skipped(words, 1, "or", "replace")
    if words.low(at) == "index":
        return _create_index(words)
    if words.low(at) != "table":
        if words.low(at) == "unique":
            raise RequestError("CREATE UNIQUE INDEX is not offered: only the primary key is unique")
        _refuse(words[:1] if at > 1 else words)
    may_exist, at = _skipped(words, at + 1, "if", "not", "exists")
    if_exists = IfExists.REPLACE if is_replaced else IfExists.REFUSE
    target, at = target_of(words, at, has_alias=False)
    definition = words.inside(at)
    has_list, at = words.low(at) == "(", words.bracketed(at)
    if_exists = IfExists.KEEP if may_exist else if_exists
    if words.low(at) == "as":
        names = tuple(names_in(definition)) if has_list else ()
        return _create_as(words, at + 1, CreateStatement(target, names=names, if_exists=if_exists))
    _end(words, at)
    if not has_list:
        raise RequestError(f"CREATE TABLE {target.text} names no columns")
    columns, key = _columns(definition)
    return CreateStatement(target, columns, key, if_exists=if_exists)


def _create_as(words: Words, at: int, made: CreateStatement) -> CreateStatement:
    end = words.find(_is_with_data, at)
    has_none = words.starts("with", "no", "data", at=end)
    return replace(made, query=words[at:end].sql, with_rows=not has_none)


def _is_with_data(words: Words, at: int) -> bool:
    return words.starts("with", "data", at=at) or words.starts("with", "no", "data", at=at)


def _columns(words: Words) -> tuple[tuple[ColumnDefinition, ...], tuple[str, ...]]:
    columns, key = list[ColumnDefinition](), tuple[str, ...]()
    for part in words.split():
        if part.starts("primary", "key") and part.low(2) == "(":
            found = tuple(names_in(part.inside(2)))
        elif part.low(0) in {"check", "unique", "foreign", "constraint"} and len(part) > 2:
            _refuse_constraint(part.low(0))
        else:
            column, is_key = _column(part)
            columns.append(column)
            found = (column.name,) if is_key else ()
        if key and found:
            raise RequestError("a table has one primary key; of two columns: PRIMARY KEY (a, b)")
        key = key or found
    return tuple(columns), key


def _column(words: Words) -> tuple[ColumnDefinition, bool]:
    name = words.words[0].name
    if name is None or len(words) < 2:
        raise RequestError(f"{words.sql[:40]!r} defines no column: a name and a type")
    at = end = words.find_low("default", *_ENDS, at=1)
    may_be_null, is_key, default = True, False, ""
    while at < len(words):
        if words.starts("not", "null", at=at):
            may_be_null, at = False, at + 2
        elif words.starts("null", at=at):
            at += 1
        elif words.starts("primary", "key", at=at):
            is_key, at = True, at + 2
        elif words.starts("default", at=at):
            behind = words.find_low(*_ENDS, at=at + 2)
            default, at = _default(words[at + 1 : behind]), behind
        elif words.low(at) in _CONSTRAINTS:
            _refuse_constraint(words.low(at))
        else:
            _end(words, at)
    return ColumnDefinition(name, words[1:end].sql, may_be_null, default), is_key


def _default(words: Words) -> str:
    """Return the expression of a constant behind DEFAULT.

    Raises:
        RequestError: There is none, or it may have another value each time.
    """
    if not words or any(map(_is_no_constant, words, (*words.words[1:], None))):
        raise RequestError(
            f"DEFAULT {words.sql[:40]} is not offered: a default is a constant, as 5, 'x' or"
            " DATE '2026-01-31'; what is made for each row is given with the row"
        )
    return words.sql


def _is_no_constant(word: Word, following: Word | None) -> bool:
    is_call = word.name is not None and following is not None and following.low == "("
    return (
        word.kind == "parameter"
        or (is_call and word.low not in _CASTS)
        or word.low.startswith(_MOMENTS)
        or word.low == "select"
    )


def _refuse_constraint(word: str) -> NoReturn:
    raise RequestError(f"{word.upper()} is not offered: {_CONSTRAINTS[word]}")


def _create_index(words: Words) -> CreateIndexStatement:
    may_exist, at = _skipped(words, 2, "if", "not", "exists")
    name = words.words[at].name if at < len(words) else None
    at += 1
    if name is None or words.low(at) != "on":
        raise RequestError("CREATE INDEX is written as CREATE INDEX name ON table (column)")
    target, at = target_of(words, at + 1, has_alias=False)
    kind = ""
    if words.low(at) == "using":
        kind, at = words.low(at + 1), at + 2
    columns = names_in(words.inside(at))
    _end(words, words.bracketed(at))
    if len(columns) != 1:
        raise RequestError("an index is of one column")
    if kind not in _KINDS:
        raise RequestError(f"USING {kind} is not offered: btree or bitmap, else create_index()")
    return CreateIndexStatement(target, columns[0], name, _KINDS[kind], may_exist=may_exist)


# DROP and ALTER


def _drop_table(words: Words) -> DropStatement:
    may_lack, at = _skipped(words, 2, "if", "exists")
    target, at = target_of(words, at, has_alias=False)
    _end(words, at)
    return DropStatement(target, may_lack=may_lack)


def _drop_index(words: Words) -> DropIndexStatement:
    may_lack, at = _skipped(words, 2, "if", "exists")
    name = words.words[at].name if at < len(words) else None
    if name is None:
        raise RequestError("DROP INDEX names the index")
    _end(words, at + 1)
    return DropIndexStatement(name, may_lack=may_lack)


def _alter(words: Words) -> AlterStatement:
    may_lack, at = _skipped(words, 2, "if", "exists")
    target, at = target_of(words, at, has_alias=False)
    return replace(_alteration(words, at, target), may_lack=may_lack)


def _alteration(words: Words, at: int, target: Target) -> AlterStatement:
    verb, what = words.low(at), words.low(at + 1)
    if verb == "rename" and what == "to":
        return AlterStatement(target, Alteration.RENAME_TABLE, _name(words, at + 2))
    has_column = what == "column"
    place = at + 1 + has_column
    if verb == "rename":
        old = _name(words, place, is_last=False)
        if words.low(place + 1) != "to":
            raise RequestError("ALTER TABLE is written as RENAME COLUMN name TO name")
        return AlterStatement(target, Alteration.RENAME_COLUMN, old, _name(words, place + 2))
    if verb == "add":
        return _add_column(words, place, target)
    if verb == "drop":
        is_lenient, place = _skipped(words, place, "if", "exists")
        name = _name(words, place)
        return AlterStatement(target, Alteration.DROP_COLUMN, name, is_lenient=is_lenient)
    changed = _altered_column(words, place, target) if verb == "alter" else None
    if changed is None:
        raise RequestError(
            f"ALTER TABLE ... {words[at:].sql[:60]} is not offered: columns are added, dropped,"
            " renamed, get another type, get and lose a default and NOT NULL, and tables are"
            " renamed"
        )
    return changed


def _altered_column(words: Words, at: int, target: Target) -> AlterStatement | None:
    """Return what becomes of a column behind ALTER COLUMN; None: it is not offered."""
    name, rest = _name(words, at, is_last=False), words[at + 1 :]
    if rest.starts("set", "default"):
        default = _default(rest[2:])
        return AlterStatement(target, Alteration.SET_DEFAULT, name, default)
    type_at = next((len(lows) for lows in _TYPE if rest.starts(*lows)), 0)
    if type_at:
        return AlterStatement(target, Alteration.SET_TYPE, name, _new_type(rest[type_at:]))
    for alteration, lows in _OF_COLUMN.items():
        if rest.starts(*lows) and len(rest) == len(lows):
            return AlterStatement(target, alteration, name)
    return None


def _new_type(words: Words) -> str:
    """Return the type behind ALTER COLUMN .. TYPE, as it is written."""
    extra = next((w for w in ("using", "collate") if w in [each.low for each in words.words]), None)
    if extra is not None:
        raise RequestError(
            f"ALTER COLUMN .. TYPE .. {extra.upper()} is not offered: add a column, UPDATE it, and"
            " drop the other"
        )
    if not words.sql.strip():
        raise RequestError("ALTER COLUMN .. TYPE names a type")
    return words.sql


_TYPE = (("set", "data", "type"), ("set", "type"), ("type",))
_OF_COLUMN = {
    Alteration.DROP_DEFAULT: ("drop", "default"),
    Alteration.SET_NOT_NULL: ("set", "not", "null"),
    Alteration.DROP_NOT_NULL: ("drop", "not", "null"),
}


def _add_column(words: Words, at: int, target: Target) -> AlterStatement:
    is_lenient, at = _skipped(words, at, "if", "not", "exists")
    column, is_key = _column(words[at:])
    if is_key:
        raise RequestError("a column that is added is no part of the key")
    made = AlterStatement(target, Alteration.ADD_COLUMN, column.name, column=column)
    return replace(made, is_lenient=is_lenient)


def _name(words: Words, at: int, *, is_last: bool = True) -> str:
    name = words.words[at].name if at < len(words) else None
    if name is None:
        raise RequestError(f"{words.sql[:60]!r} names no column there")
    if is_last:
        _end(words, at + 1)
    return name
