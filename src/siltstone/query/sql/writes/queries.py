"""Queries: what DuckDB is asked for a statement: the rows, cast to the columns that they are for.

    INSERT   the new rows                     UPDATE   the keys and the new values
    DELETE   the keys                         MERGE    the clause that acts, and its values

Casts are those of DuckDB's own assignments. A value that none takes is found by `unfit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from siltstone.query.sql.shielded import quoted

ROWS = "siltstone rows"
"""The name of rows in memory in a query: no table has a blank in its name."""
EXISTING = "siltstone existing rows"
"""The name of those that the table has already."""
ACTIONS = "siltstone actions"
"""The name of what became of them."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column that is written, and its type as DuckDB writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Values:
    """A query for values of columns: expressions, cast, over what `behind` says, FROM and WHERE."""

    columns: tuple[TypedColumn, ...]
    expressions: tuple[str, ...]
    behind: str = ""
    given: str = ""
    """The WITH in front."""
    also: tuple[str, ...] = field(default=())
    """Expressions that are returned behind the values, as they are."""

    @property
    def sql(self) -> str:
        """The query, whose columns are in this order; their names are numbers."""
        values = [
            cast(expression, column.type)
            for expression, column in zip(self.expressions, self.columns, strict=True)
        ]
        named = [f'{each} AS "_{place}"' for place, each in enumerate(values)]
        return f"{self.given} SELECT {', '.join([*named, *self.also])} {self.behind}"

    @property
    def width(self) -> int | None:
        """How many columns it gives; None: those that a source has."""
        return None if self.also else len(self.columns)

    def unfit(self, place: int) -> str:
        """Return a query for the first row whose value a column does not take, and the value."""
        expression, kind = self.expressions[place], self.columns[place].type
        inner = f"SELECT row_number() OVER () AS r, ({expression}) AS v {self.behind}"
        unfit = f"WHERE {_is_unfit('v', kind)} LIMIT 1"
        return f"{self.given} SELECT r, {_shown('v')} FROM ({inner}) AS q {unfit}"


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of VALUES, each value cast by itself, as an INSERT of DuckDB does."""

    columns: tuple[TypedColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    given: str = ""

    @property
    def sql(self) -> str:
        """The query, as that of `Values`."""
        rows = ", ".join(
            f"({', '.join(cast(e, c.type) for e, c in zip(row, self.columns, strict=True))})"
            for row in self.rows
        )
        names = ", ".join(f'"_{place}"' for place in range(len(self.columns)))
        return f"{self.given} SELECT * FROM (VALUES {rows}) AS q({names})"

    @property
    def width(self) -> int:
        """How many columns it gives."""
        return len(self.columns)

    def unfit(self, place: int) -> str:
        """Return a query for the first row whose value a column does not take, and the value."""
        kind = self.columns[place].type
        rows = ", ".join(
            f"({number + 1}, {_shown(row[place])}, {_is_unfit(row[place], kind)})"
            for number, row in enumerate(self.rows)
        )
        return f"{self.given} SELECT r, v FROM (VALUES {rows}) AS q(r, v, u) WHERE u LIMIT 1"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A query for one struct of each row: the values by the first of some cases that is true.

    One CASE makes all of it, so a condition is evaluated once: it may be another one each time.
    """

    plain: Values
    """The same in columns of their own, in which the misfits are looked for."""
    cases: tuple[tuple[str, Mapping[int, str]], ...]
    """A condition, and the expressions of columns by their places; the others are null."""
    also: tuple[str, ...] = ()
    """Expressions that are returned behind it, as they are."""

    @property
    def columns(self) -> tuple[TypedColumn, ...]:
        """The members of the struct."""
        return self.plain.columns

    @property
    def sql(self) -> str:
        """The query; the names of the members are numbers, in the order of the columns."""
        cases = " ".join(f"WHEN {test} THEN {self._struct(made)}" for test, made in self.cases)
        chosen = (f"CASE {cases} END AS chosen",) if cases else ()
        every = ", ".join([*chosen, *self.also])
        return f"{self.plain.given} SELECT {every} {self.plain.behind}"

    @property
    def width(self) -> int:
        """How many columns it gives."""
        return bool(self.cases) + len(self.also)

    def unfit(self, place: int) -> str:
        """Return a query for the first row whose value a column does not take, and the value."""
        return self.plain.unfit(place)

    def _struct(self, made: Mapping[int, str]) -> str:
        members = ", ".join(
            f'"_{place}": {cast(made.get(place, "NULL"), column.type)}'
            for place, column in enumerate(self.columns)
        )
        return f"{{{members}}}"


def cast(expression: str, kind: str) -> str:
    """Return an expression as a value of a type.

    Arrow gets the hours of an interval as nanoseconds, of which 292 years wrap around: so whole
    days of them are days.
    """
    found = f"CAST(({expression}) AS {kind})"
    if kind != "INTERVAL":
        return found
    days = "CAST(extract('hour' FROM x) // 24 AS INTEGER)"
    return f"[x - to_hours(24 * {days}) + to_days({days}) FOR x IN [{found}]][1]"


def too_long(source: str, names: Sequence[str], given: str = "") -> str:
    """Return a query for the first of some intervals of which Arrow cannot have the hours."""
    found = [f"max(abs(extract('hour' FROM {quoted(name)})) > {_HOURS_MAX})" for name in names]
    return f"{given} SELECT {', '.join(found)} FROM {source}"


_HOURS_MAX = (1 << 63) // 3_600_000_000_000 - 1


def _shown(expression: str) -> str:
    return f"left(CAST(({expression}) AS VARCHAR), 60)"


def _is_unfit(expression: str, kind: str) -> str:
    return f"({expression}) IS NOT NULL AND TRY_CAST(({expression}) AS {kind}) IS NULL"


def from_source(
    query: str, names: Sequence[str], columns: tuple[TypedColumn, ...], given: str
) -> Values:
    """Return the query for the rows of an INSERT, whose query gives `names` in their order.

    If it gives more columns, so does the query.
    """
    places = [quoted(f"_{place} of source") for place in range(len(names))]
    rest = f"* EXCLUDE ({', '.join(places)})"
    return Values(
        columns, tuple(places), f"FROM ({query}) AS q({', '.join(places)})", given, also=(rest,)
    )


def types_query(names: Sequence[str]) -> str:
    """Return a query for the types of the columns of `ROWS`, which has one row."""
    types = ", ".join(f"typeof({quoted(name)})" for name in names)
    return f"SELECT {types} FROM {quoted(ROWS)}"


def behind_update(table: str, sources: str, where: str) -> str:
    """Return FROM and WHERE of what an UPDATE or a DELETE reads; `table` with its alias."""
    tables = f"{table}, {sources}" if sources else table
    return f"FROM {tables}" + (f" WHERE ({where})" if where else "")


def as_written(text: str, alias: str) -> str:
    """Return a table of FROM, as it is written, with its alias."""
    return f"{text} AS {quoted(alias)}" if alias else text


def every_row(source: str, given: str = "", limit: int | None = None) -> str:
    """Return a query for all rows of tables or of a query behind FROM, or for so many."""
    end = "" if limit is None else f" LIMIT {limit}"
    return f"{given} SELECT * FROM {source}{end}"


def nulls_of(types: Sequence[str]) -> str:
    """Return a query for no row, whose columns have some types."""
    nulls = ", ".join(f'CAST(NULL AS {kind}) AS "_{place}"' for place, kind in enumerate(types))
    return f"SELECT {nulls} LIMIT 0"


def behind_conflict(key: Sequence[str], names: Sequence[str], table: str, where: str) -> str:
    """Return FROM and WHERE of what DO UPDATE reads: the new rows, each as `excluded`, and the old.

    Args:
        key: The columns of the key.
        names: All columns.
        table: The name by which expressions call the table.
        where: The condition of DO UPDATE.
    """
    members = ", ".join(f"{quoted(n)}: {quoted(n)}" for n in names)
    on = " AND ".join(f"{quoted(table)}.{quoted(n)} = new.excluded.{quoted(n)}" for n in key)
    new = f"(SELECT {{{members}}} AS excluded FROM {quoted(ROWS)}) AS new"
    old = f"{quoted(EXISTING)} AS {quoted(table)}"
    return f"FROM {new} JOIN {old} ON {on}" + (f" WHERE ({where})" if where else "")


def of_rows(expressions: Sequence[str], name: str, given: str = "", beside: str = "") -> str:
    """Return a query for expressions over `ROWS`, which they call `name`.

    `beside`: rows of which each stands beside one of these.
    """
    rows = f"{quoted(ROWS)} AS {quoted(name)}"
    both = f"{rows} POSITIONAL JOIN {quoted(beside)}" if beside else rows
    return f"{given} SELECT {', '.join(expressions)} FROM {both}"
