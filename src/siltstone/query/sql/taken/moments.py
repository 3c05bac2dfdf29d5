"""Moments: `orders at (version => 41)` in a statement, where it names a table.

DuckDB knows the form, and asks the catalog of a table for it; tables of Python have none. So it is
taken out of the text, and a table of its own, in a schema of its own, stands for the one of then:

    FROM orders o AT (VERSION => 41)   ─▶   FROM "_at_1"."orders" o

The last part of the name stays, so columns are called as they would be: `orders.id`. An alias may
stand before AT, as in DuckDB, or behind it. The value is a constant or a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NoReturn

from siltstone.errors import RequestError
from siltstone.query.sql.allowed import explained
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.taken.tokens import closing, kind_of, tokens_of
from siltstone.query.sql.taken.values import Parameters, TakenValues, constant

MOMENTS_MAX = 16
"""Of one statement."""
_MAY_HAVE = re.compile(r"\bat\b.*=>", re.IGNORECASE | re.DOTALL)
_WHAT = "at (version => ...) or at (timestamp => ...)"
_KINDS = {"version", "timestamp"}
_SCHEMA = "_at_"
SEARCH = "_search_"
"""How the names begin that stand for searches; no table of a user begins so."""
_BEFORE = {"FROM", "JOIN", "COMMA", "L_PAREN", "USING"}
"""What a table may follow in a statement."""


@dataclass(frozen=True, slots=True)
class AtMoment:
    """A seq (`is_version`), or a time, as the statement has it."""

    is_version: bool
    value: object


@dataclass(frozen=True, slots=True)
class PastName:
    """One table of the past: the schema that stands for its moment, its parts, and the moment."""

    schema: str
    parts: tuple[str, ...]
    moment: AtMoment

    @property
    def written(self) -> str:
        """The name that the statement has now, parts joined by dots."""
        return f"{self.schema}.{self.parts[-1]}"

    @property
    def table(self) -> str:
        """The name that the table had then."""
        parts = self.parts
        is_of_duckdb = len(parts) > 1 and parts[0].lower() in {"main", "memory"}
        return ".".join(parts[-1:] if is_of_duckdb else parts)

    def among(self, names: Sequence[str]) -> str:
        """Return the one of some names that it means, as DuckDB tells names apart; else it itself.

        Raises:
            RequestError: It means several.
        """
        if self.table in names:
            return self.table
        found = [name for name in names if folded(name) == folded(self.table)]
        if len(found) > 1:
            raise RequestError(
                f"DuckDB does not distinguish {found[0]!r} and {found[1]!r}; write the name as the"
                " table has it"
            )
        return found[0] if found else self.table


def without_past(named: PastName) -> NoReturn:
    """Refuse a table of the past, where there is none.

    Raises:
        RequestError: Always.
    """
    raise RequestError(f"{named.table!r} is read as it is: what runs this statement has no past")


def parts_of(name: str) -> tuple[str, str]:
    """Return the schema that a statement finds a table in, and its name there; "": in none."""
    if name.startswith(_SCHEMA):  # the name of then may have dots, too
        schema, _, last = name.partition(".")
        return schema if last else "", last
    namespace, _, last = name.rpartition(".")
    return (namespace, last) if last and "." not in namespace else ("", name)


def moments_out(sql: str, parameters: Parameters) -> tuple[str, Parameters, list[PastName]]:
    """Return a statement without its moments, the parameters that are left, and the tables of then.

    Raises:
        RequestError: A moment is no constant and no parameter, or there are too many.
    """
    if not _MAY_HAVE.search(sql):
        return sql, parameters, []
    query = explained(sql)
    if query != sql:  # sqlglot knows no words behind EXPLAIN
        taken, left, found = moments_out(query, parameters)
        return sql.removesuffix(query) + taken, left, found
    tokens = tokens_of(sql)
    found = list(islice(_named(tokens), MOMENTS_MAX + 1))
    if len(found) > MOMENTS_MAX:
        raise RequestError(f"a statement has at most {MOMENTS_MAX} tables at a moment")
    names, pieces, start = list[PastName](), list[str](), 0
    values, taken = TakenValues(tokens, parameters, _WHAT), {token.text.lower() for token in tokens}
    schemas = (name for number in count(1) if (name := f"{_SCHEMA}{number}") not in taken)
    for each in found:
        moment = _moment(sql, tokens, each, values)
        parts = tuple(token.text for token in tokens[each.first : each.last + 1 : 2])
        if parts[-1].startswith(SEARCH):
            raise RequestError(f"search(...) has no {_WHAT}: search a snapshot of then")
        names.append(PastName(next(schemas), parts, moment))
        last = tokens[each.last]
        stands = f'"{names[-1].schema}".{sql[last.start : last.end + 1]}'
        between = sql[last.end + 1 : tokens[each.at].start]
        pieces += [sql[start : tokens[each.first].start], stands, between]
        start = tokens[each.end].end + 1
    spans = [(each.at, each.end) for each in found]
    return "".join([*pieces, sql[start:]]), values.left(spans), names


@dataclass(frozen=True, slots=True)
class _AtPlace:
    """The tokens of one: the first and the last of the name, AT, and the closing parenthesis."""

    first: int
    last: int
    at: int
    end: int


def _named(tokens: list[Any]) -> Iterator[_AtPlace]:
    for at in range(2, len(tokens) - 3):
        if not _is_moment(tokens, at):
            continue
        name = _name_before(tokens, at)
        if name is not None:
            yield _AtPlace(*name, at, closing(tokens, at + 1, _WHAT))


def _is_moment(tokens: list[Any], at: int) -> bool:
    return (
        (kind_of(tokens[at]), tokens[at].text.lower()) == ("VAR", "at")
        and kind_of(tokens[at + 1]) == "L_PAREN"
        and tokens[at + 2].text.lower() in _KINDS
        and kind_of(tokens[at + 3]) == "FARROW"
    )


def _name_before(tokens: list[Any], at: int) -> tuple[int, int] | None:
    """Return the first and the last token of the name before AT, or before its alias."""
    last = at - 1
    if not _is_word(tokens[last]):
        return None
    if kind_of(tokens[last - 1]) not in {*_BEFORE, "DOT"}:  # an alias
        last -= 2 if kind_of(tokens[last - 1]) == "ALIAS" else 1
    first = last
    while first >= 2 and kind_of(tokens[first - 1]) == "DOT":
        first -= 2
    is_table = first >= 1 and kind_of(tokens[first - 1]) in _BEFORE
    return (first, last) if is_table and all(map(_is_word, tokens[first : last + 1 : 2])) else None


def _is_word(token: Any) -> bool:
    kind = kind_of(token)
    return kind == "IDENTIFIER" or (token.text.isidentifier() and not kind.endswith("STRING"))


def _moment(sql: str, tokens: list[Any], place: _AtPlace, values: TakenValues) -> AtMoment:
    from sqlglot import errors, parse_one  # noqa: PLC0415 (0.3 s)

    text = sql[tokens[place.at + 3].end + 1 : tokens[place.end].start]
    try:
        given: Sequence[Any] = parse_one(f"select {text}\n", dialect="duckdb").expressions
    except (errors.SqlglotError, RecursionError) as error:
        raise RequestError(f"{text.strip()!r:.200} of {_WHAT} cannot be read") from error
    if len(given) != 1:
        raise RequestError(f"{_WHAT} has one value; got {text.strip()!r:.200}")
    value = constant(given[0], values.within(place.at, place.end), _WHAT)
    return AtMoment(tokens[place.at + 2].text.lower() == "version", value)
