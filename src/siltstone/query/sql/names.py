"""Names: which tables a statement reads, as they are written in it.

A name that WITH gives to a query stands for a table where it is in scope: in the queries of the
same WITH behind it, and in the statement that the WITH belongs to. In its own query it stands for
itself only behind the UNION of a WITH RECURSIVE; elsewhere there the table is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from siltstone.errors import RequestError
from siltstone.query.sql.allowed import explained
from siltstone.query.sql.dataset import Scannable
from siltstone.query.sql.one_table import one_table
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.shortcuts import ROWS, needed_of, shortened
from siltstone.query.sql.taken.tokens import trees_of

_SHOW = re.compile(r"\s*show\b", re.IGNORECASE)
_FILTERS = re.compile(r"\b(where|join|in|any|exists|qualify|having|order)\b", re.IGNORECASE)
_BY_NAME = re.compile("query_table", re.IGNORECASE)
"""A function that reads a table, whose name is a text."""
_Node: TypeAlias = Any
"""An expression of sqlglot, which is imported late."""
_Step: TypeAlias = tuple[Any, Any]
"""To look at an expression, which may be the query of that name of a WITH RECURSIVE; or a name that
begins (1) or ends (-1) to stand for a query."""


def lists_tables(sql: str) -> bool:
    """Say whether a statement may list all tables; it reads no rows of them."""
    return _SHOW.match(sql) is not None


@dataclass(frozen=True, slots=True)
class Reads:
    """What a statement reads: its text, and the names in it (None: sqlglot cannot read it).

    `short` has, by folded names, those of which it needs few rows: the column whose least and
    greatest value it asks for (folded), or `ROWS` for nothing but the number of rows.
    """

    sql: str
    written: frozenset[str] | None
    short: Mapping[str, str] = field(default_factory=dict[str, str])

    def mentioned(self, names: Sequence[str]) -> list[str]:
        """Return the names of some that the statement mentions, maybe more, never less.

        Raises:
            RequestError: Two of them differ only by case, which DuckDB does not tell apart.
        """
        if lists_tables(self.sql):
            return _distinct(names)
        if self.written is None:  # sqlglot does not know all of DuckDB's language: go by the text
            lowered = self.sql.replace('""', '"').lower()
            return _distinct([name for name in names if _is_in(lowered, name.lower())])
        exact = [name for name in names if name in self.written]
        left = {text.lower() for text in self.written} - {name.lower() for name in exact}
        return _distinct([*exact, *(name for name in names if name.lower() in left)])

    @property
    def may_filter(self) -> bool:
        """Say whether DuckDB may have filters for the tables; a join and a top-n make some, too.

        If it has some nevertheless, rows are only found in the slower way.
        """
        return _FILTERS.search(self.sql) is not None

    def shortened(self, name: str, source: Scannable) -> Scannable:
        """Return what the statement needs to read of a table."""
        return shortened(source, self.short.get(folded(name)))

    def others(self, names: Sequence[str]) -> list[str]:
        """Return the other names that the statement reads from; none if they are unknown."""
        known = {name.lower() for name in names}
        return sorted(text for text in self.written or () if text.lower() not in known)


def reads_of(sql: str) -> Reads:
    """Return what a statement reads."""
    if lists_tables(sql):
        return Reads(sql, frozenset())
    query = explained(sql)
    only = one_table(query)
    if only is not None:
        written = frozenset(_names_of(only.parts))
        short = {folded(name): ROWS for name in written} if only.is_counted else {}
        return Reads(sql, written, short)
    tables = _tables_of(query)
    if tables is None:
        return Reads(sql, None)
    written = frozenset(name for table in tables for name in _names_of(_parts(table)))
    return Reads(sql, written, _short(tables) if not _BY_NAME.search(sql) else {})


def _parts(table: _Node) -> list[str]:
    return [part.name for part in table.parts]


def _names_of(parts: Sequence[str]) -> list[str]:
    """Return a name as it is written, parts joined by dots; and what it may mean."""
    whole = ".".join(parts)
    return [whole, parts[-1]] if parts[0] in ("main", "memory") else [whole]


def _short(tables: Sequence[_Node]) -> dict[str, str]:
    """See `Reads`: of the tables that are read once."""
    times = Counter(folded(table.name) for table in tables)
    once = [table for table in tables if times[folded(table.name)] == 1]
    found = [(_parts(table), needed_of(table)) for table in once]
    return {
        folded(name): needed
        for parts, needed in found
        if needed is not None
        for name in _names_of(parts)
    }


def _tables_of(sql: str) -> list[_Node] | None:
    """Return the tables that a statement reads, as trees; None if it is unreadable."""
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    trees = trees_of(sql)
    if not trees or any(tree is None or isinstance(tree, exp.Command) for tree in trees):
        return None
    return [table for tree in trees for table in _read_by(tree)]


def _read_by(tree: _Node) -> Iterator[_Node]:
    """Yield the tables of a statement for which no query of a WITH stands.

    With its own stack: a statement may be deeper than Python's.
    """
    from sqlglot import exp  # noqa: PLC0415

    in_scope, left = Counter[str](), list[_Step]([(tree, None)])
    while left:
        what, how = left.pop()
        if isinstance(what, str):
            in_scope[what] += how
            continue
        is_table = isinstance(what, exp.Table) and not isinstance(what.this, exp.Func)
        if is_table and (len(what.parts) > 1 or not in_scope[folded(what.name)]):
            yield what
        left.extend(reversed(_steps_in(what, how)))


def _steps_in(node: _Node, own: str | None) -> list[_Step]:
    """Return the steps through an expression; `own`: it is the query of that WITH RECURSIVE."""
    from sqlglot import exp  # noqa: PLC0415

    given = next((value for value in node.args.values() if isinstance(value, exp.With)), None)
    steps, names = list[_Step](), list[str]()
    for cte in given.expressions if given else ():
        names.append(folded(cte.alias))
        is_recursive = given is not None and bool(given.recursive)
        steps += [(cte.this, names[-1] if is_recursive else None), (names[-1], 1)]
    for child in node.iter_expressions():
        if child is given:
            continue
        if own and isinstance(node, exp.Union) and child is node.expression:
            steps += [(own, 1), (child, None), (own, -1)]
        else:  # parentheses change nothing
            steps.append((child, own if isinstance(node, exp.Subquery) else None))
    return [*steps, *((name, -1) for name in names)]


def _is_in(text: str, name: str) -> bool:
    return all(part in text for part in name.split("."))


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise RequestError(
                f"DuckDB does not distinguish {other!r} and {name!r}; rename one, or use scan()"
            )
    return list(seen.values())
