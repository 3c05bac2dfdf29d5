"""Tokens: the words of a statement, as sqlglot tells them apart: no text and no comment is one."""

from __future__ import annotations

from typing import Any

from siltstone.errors import RequestError


def tokens_of(sql: str) -> list[Any]:
    """Return the words of a statement; none of one that sqlglot cannot read."""
    from sqlglot import errors  # noqa: PLC0415 (0.3 s)
    from sqlglot.dialects.duckdb import DuckDB  # noqa: PLC0415

    try:
        return DuckDB().tokenize(sql)
    except errors.SqlglotError:
        return []


def trees_of(sql: str) -> list[Any]:
    """Return the statements of a text as trees; none of a text that sqlglot cannot read."""
    from sqlglot import errors, parse  # noqa: PLC0415 (0.3 s)

    try:
        return [*parse(sql, dialect="duckdb")]
    except (errors.SqlglotError, RecursionError):
        return []


def kind_of(token: Any) -> str:
    """Return what a word is, by the name that sqlglot has for it."""
    return token.token_type.name


def closing(tokens: list[Any], place: int, what: str) -> int:
    """Return where the parenthesis at a place ends; `what` it is, for the error.

    Raises:
        RequestError: It does not.
    """
    depth = 0
    for number in range(place, len(tokens)):
        kind = kind_of(tokens[number])
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if not depth:
            return number
    raise RequestError(f"a parenthesis of {what} is not closed")
