"""Random SQL that means the same to Spark and to DuckDB: expressions, conditions and queries.

What the two evaluate differently is left out: texts of doubles, division by zero, sums of doubles,
decimals and doubles as integers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.spark.sql_copy import TYPES, Column, Table

LITERALS: dict[str, tuple[str, ...]] = {
    "bigint": (*(f"{n}" for n in range(-2, 14)), "9007199254740993", "9223372036854775807"),
    "int": ("0", "1", "2", "3", "4", "-7", "2147483647"),
    "double": ("0.0", "-0.0", "1.5", "0.25", "-3.0", "NaN", "Infinity", "-Infinity", "1e300"),
    "decimal": ("0", "1.5", "-0.01", "12.34", "99999999.99", "-99999999.99"),
    "string": ("", "a", "ab", "aB", "b", "ü€", "😀", "it''s", "a%b", "a_c", " a", "x" * 40),
    "date": ("0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2026-02-28", "2399-12-31"),
    "timestamp": (
        "1500-01-01 00:00:00Z",
        "1969-12-31 23:59:59.999999Z",
        "2026-03-29 01:30:00Z",
        "2026-11-01 05:30:00.000001Z",
        "2026-11-01 06:30:00Z",
    ),
    "boolean": ("TRUE", "FALSE"),
}
_COMPARED = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


@dataclass(frozen=True)
class Value:
    """An expression of a query, and its kind."""

    text: str
    kind: str


def columns_of(table: Table, prefix: str = "") -> list[Value]:
    return [Value(f"{prefix}‹{column.name}›", column.kind) for column in table.columns]


class Words:
    """Expressions and conditions by a source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def odds(self, share: float) -> bool:
        return self.chance.random() < share

    def literal(self, kind: str, nulls: float = 0.1) -> str:
        if self.odds(nulls):
            return f"CAST(NULL AS {TYPES[kind][0]})"
        text = self.chance.choice(LITERALS[kind])
        if kind in {"boolean", "int"}:
            return text
        if kind in {"date", "timestamp"}:
            return f"{kind.upper()} '{text}'"
        if kind == "string":
            return f"'{text}'"
        return f"CAST('{text}' AS {TYPES[kind][0]})"

    def expression(self, kind: str, columns: Sequence[Value], depth: int = 2) -> str:
        """Return an expression of a kind that no value makes fail."""
        mine = [each.text for each in columns if each.kind == kind]
        if depth == 0 or self.odds(0.4):
            return self.chance.choice(mine) if mine and self.odds(0.8) else self.literal(kind)
        if self.odds(0.3):
            then, other = (self.expression(kind, columns, depth - 1) for _ in range(2))
            return f"CASE WHEN {self.condition(columns, 1)} THEN {then} ELSE {other} END"
        if self.odds(0.2):
            return f"coalesce({self.expression(kind, columns, depth - 1)}, {self.literal(kind)})"
        return self._computed(kind, columns, depth - 1)

    def _computed(self, kind: str, columns: Sequence[Value], depth: int) -> str:
        def one(of: str) -> str:
            return self.expression(of, columns, depth)

        forms = {
            "bigint": (
                lambda: f"(({one('bigint')}) % 1000 + {self.chance.randrange(9)})",
                lambda: f"CAST({one('int')} AS BIGINT)",
                lambda: f"CAST(length({one('string')}) AS BIGINT)",
            ),
            "int": (
                lambda: f"CAST(({one('int')}) % 100 * 3 - 1 AS INT)",
                lambda: f"CAST(({one('bigint')}) % 100 AS INT)",
                lambda: f"CAST(year({one('date')}) AS INT)",
            ),
            "double": (
                lambda: f"(({one('double')}) * 2)",
                lambda: f"CAST({one('int')} AS DOUBLE)",
                lambda: f"CAST({one('decimal')} AS DOUBLE)",
            ),
            "decimal": (
                lambda: f"CAST(({one('decimal')}) % 1000 + 1.25 AS DECIMAL(10,2))",
                lambda: f"CAST(({one('int')}) % 1000 AS DECIMAL(10,2))",
            ),
            "string": (
                lambda: f"substr(({one('string')}) || 'q', 1, 3)",
                lambda: f"CAST({one('bigint')} AS STRING)",
                lambda: f"CAST({one('date')} AS STRING)",
                lambda: f"CAST({one('boolean')} AS STRING)",
                lambda: f"CAST({one('decimal')} AS STRING)",
            ),
            "date": (lambda: f"CAST(({one('date')}) + INTERVAL '1' DAY AS DATE)",),
            "timestamp": (lambda: f"CAST({one('date')} AS TIMESTAMP)",),
            "boolean": (lambda: f"({self.condition(columns, depth)})",),
        }
        return self.chance.choice(forms[kind])()

    def condition(self, columns: Sequence[Value], depth: int = 2) -> str:
        if depth and self.odds(0.4):
            one, other = (self.condition(columns, depth - 1) for _ in range(2))
            return self.chance.choice(
                (f"({one} AND {other})", f"({one} OR {other})", f"(NOT ({one}))")
            )
        return f"({self._simple(columns)})"

    def _simple(self, columns: Sequence[Value]) -> str:
        column = self.chance.choice(columns)
        text, kind = column.text, column.kind
        forms = [
            lambda: f"{text} {self.chance.choice(_COMPARED)} {self.literal(kind)}",
            lambda: f"{text} IN ({self._list(kind)})",
            lambda: f"{text} NOT IN ({self._list(kind)})",
            lambda: f"{text} BETWEEN {self.literal(kind)} AND {self.literal(kind)}",
            lambda: f"{text} IS {self.chance.choice(('', 'NOT '))}NULL",
            lambda: f"{text} {self.chance.choice(_COMPARED)} {self.expression(kind, columns, 1)}",
        ]
        if kind == "string":
            forms += [
                lambda: f"{text} LIKE '{self.chance.choice(('a%', '%b', '%a%', 'ü%', '_', '%'))}'",
                lambda: f"startswith({text}, '{self.chance.choice(('a%', 'a_', 'ü', '', 'it'))}')",
            ]
        if kind in {"bigint", "int"}:
            forms.append(lambda: f"{text} % {self.chance.choice((2, 3))} = 1")
            forms.append(lambda: f"{text} > 1.5")
        return self.chance.choice(forms)()

    def _list(self, kind: str) -> str:
        count = self.chance.randrange(1, 5)
        return ", ".join(self.literal(kind, 0.05) for _ in range(count))


class Queries:
    """Queries over tables, each by its mark in SQL."""

    def __init__(self, words: Words) -> None:
        self._words, self._chance = words, words.chance

    def rows_like(self, table: Table, mark: str, source: Table, condition: str = "") -> str:
        """Return a query with the columns of `table`, by name, of the rows of another."""
        columns = columns_of(source)
        cells = ", ".join(f"{self._cell(c, columns)} AS ‹{c.name}›" for c in table.columns)
        where = f" WHERE {condition or self._words.condition(columns)}"
        return f"SELECT {cells} FROM {mark}{where}"

    def _cell(self, column: Column, columns: Sequence[Value]) -> str:
        same = [each.text for each in columns if each.kind == column.kind]
        if same and self._words.odds(0.7):
            return same[0]
        text = self._words.expression(column.kind, columns)
        return f"CAST({text} AS {TYPES[column.kind][0]})"

    def any(self, tables: Sequence[tuple[str, Table]]) -> tuple[str, bool]:
        """Return a query, and whether its rows have an order."""
        return self._chance.choice((self._plain, self._plain, self._joined, self._grouped))(tables)

    def _plain(self, tables: Sequence[tuple[str, Table]]) -> tuple[str, bool]:
        mark, table = self._chance.choice(tables)
        columns = columns_of(table)
        cells = self._cells(columns)
        text = f"SELECT {', '.join(each.text for each in cells)} FROM {mark}"
        if self._words.odds(0.9):
            text += f" WHERE {self._words.condition(columns)}"
        if self._words.odds(0.3) and all(each.kind != "double" for each in cells):
            orders = ("ASC NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST", "DESC NULLS FIRST")
            order = (f"{n + 1} {self._chance.choice(orders)}" for n in range(len(cells)))
            return f"{text} ORDER BY {', '.join(order)} LIMIT {self._chance.randrange(1, 12)}", True
        return text, False

    def _cells(self, columns: Sequence[Value]) -> list[Value]:
        found = self._chance.sample(columns, self._chance.randrange(1, len(columns) + 1))
        for _ in range(self._chance.randrange(2)):
            kind = self._chance.choice([*TYPES])
            found.append(Value(self._words.expression(kind, columns), kind))
        return found

    def _joined(self, tables: Sequence[tuple[str, Table]]) -> tuple[str, bool]:
        (one, left), (other, right) = (self._chance.choice(tables) for _ in range(2))
        mine, theirs = columns_of(left, "a."), columns_of(right, "b.")
        pairs = [
            (x.text, y.text)
            for x in mine
            for y in theirs
            if x.kind == y.kind and x.kind not in {"double", "boolean"}
        ]
        x, y = self._chance.choice(pairs or [("1", "1")])
        cells = ", ".join(each.text for each in self._cells([*mine, *theirs]))
        kind = self._chance.choice(("INNER", "LEFT", "RIGHT", "FULL"))
        text = f"SELECT {cells} FROM {one} a {kind} JOIN {other} b ON {x} = {y}"
        if self._words.odds(0.7):
            text += f" WHERE {self._words.condition([*mine, *theirs])}"
        return text, False

    def _grouped(self, tables: Sequence[tuple[str, Table]]) -> tuple[str, bool]:
        mark, table = self._chance.choice(tables)
        columns = columns_of(table)
        group = self._chance.choice([each for each in columns if each.kind != "double"])
        some = self._chance.choice(columns)
        number = self._words.expression("int", columns)
        made = [
            "count(*)",
            f"count({some.text})",
            f"sum(CAST({number} AS BIGINT))",
            f"count(DISTINCT {self._chance.choice(columns).text})",
        ]
        if some.kind != "boolean":
            made += [f"min({some.text})", f"max({some.text})"]
        cells = self._chance.sample(made, 3)
        where = f" WHERE {self._words.condition(columns)}" if self._words.odds(0.6) else ""
        if self._words.odds(0.2):
            return f"SELECT {', '.join(cells)} FROM {mark}{where}", False
        having = " HAVING count(*) > 1" if self._words.odds(0.3) else ""
        cells = [group.text, *cells]
        return f"SELECT {', '.join(cells)} FROM {mark}{where} GROUP BY {group.text}{having}", False
