"""A copy of a store's tables in DuckDB, which says what each statement of SQL leaves of their rows.

DuckDB evaluates expressions and joins; which rows are inserted, changed and deleted, and what is
refused, is worked out here, row by row, as docs/spark.md has it. So the copy has no constraints.

In the text of a statement ⟦t⟧ is a table, ⟦t@5⟧ one as it was at seq 5, and ‹c› a column.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import duckdb
import pyarrow as pa

_TABLE, _COLUMN = re.compile(r"⟦([^@⟧]*)(@\d+)?⟧"), re.compile(r"‹([^›]*)›")
TYPES: dict[str, tuple[str, pa.DataType]] = {
    "bigint": ("BIGINT", pa.int64()),
    "int": ("INT", pa.int32()),
    "double": ("DOUBLE", pa.float64()),
    "decimal": ("DECIMAL(10,2)", pa.decimal128(10, 2)),
    "string": ("STRING", pa.string()),
    "date": ("DATE", pa.date32()),
    "timestamp": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "boolean": ("BOOLEAN", pa.bool_()),
}

Row = tuple[object, ...]


@dataclass(frozen=True)
class Column:
    """A column; `kind` is a name of `TYPES`."""

    name: str
    kind: str
    is_nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table, by the statements that made it."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def kind(self, name: str) -> str:
        return next(column.kind for column in self.columns if column.name == name)

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.names.index(name)] for name in self.key)

    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(c.name, TYPES[c.kind][1], c.is_nullable and c.name not in self.key)
                for c in self.columns
            ]
        )


@dataclass(frozen=True)
class Clause:
    """WHEN `met` AND `condition` THEN `sets`, by name; None is a DELETE, `{}` all (`*`)."""

    met: str
    condition: str | None
    sets: dict[str, str] | None


@dataclass(frozen=True)
class Merge:
    """MERGE INTO `target` t USING `source` s ON `on`."""

    target: str
    source: str
    on: str
    clauses: tuple[Clause, ...]


@dataclass
class Outcome:
    """What a statement does: the rows of its table, unless it is refused for a reason."""

    rows: list[Row] | None = None
    reasons: set[str] = field(default_factory=set)
    shown: list[Row] | None = None


def for_spark(text: str) -> str:
    """Return a statement as Spark's SQL has it."""
    seen = _TABLE.sub(lambda m: f"`{m[1]}`" + (f" VERSION AS OF {m[2][1:]}" if m[2] else ""), text)
    return _COLUMN.sub(r"`\1`", seen)


def same(value: object) -> object:
    """Return a value so that equal ones are those of the same bits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return value


def shown(value: object) -> object:
    """Return a value of a query, where a sum or a group may have either zero."""
    return same(value + 0.0 if isinstance(value, float) else value)


def rows_of(table: pa.Table) -> list[Row]:
    """Return rows of Arrow, times without their zone."""
    naive = pa.schema(
        [
            f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f
            for f in table.schema
        ]
    )
    columns = [column.to_pylist() for column in table.cast(naive).columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def bag(rows: Iterable[Row], form: Callable[[object], object] = same) -> list[str]:
    """Return rows in one order, to be compared."""
    return sorted(repr(tuple(form(value) for value in row)) for row in rows)


class Copy:
    """The tables as they are, and as they were at the seqs that are kept."""

    def __init__(self) -> None:
        self._duck = duckdb.connect()
        self._duck.sql("SET TimeZone = 'UTC'")
        self._duck.sql("CREATE MACRO startswith(a, b) AS starts_with(a, b)")
        self.tables: dict[str, Table] = {}
        self.past: dict[tuple[str, int], Table] = {}
        self._count = 0

    def close(self) -> None:
        self._duck.close()

    # --- the tables

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        """Make a table, or replace it."""
        self.tables[table.name] = table
        self._make(table.name, table, rows)

    def drop(self, name: str) -> None:
        del self.tables[name]
        self._duck.sql(f'DROP TABLE "{name}"')

    def _make(self, name: str, table: Table, rows: Sequence[Row]) -> None:
        columns = ", ".join(f'"{c.name}" {_duck_type(c.kind)}' for c in table.columns)
        self._duck.sql(f'CREATE OR REPLACE TABLE "{name}" ({columns})')
        if rows:
            marks = ", ".join("?" * len(table.columns))
            self._duck.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def rows(self, name: str) -> list[Row]:
        return self._duck.sql(f'SELECT * FROM "{name}"').fetchall()

    def keep(self, seq: int, most: int = 12) -> None:
        """Keep all tables as they are at a seq."""
        for name, table in self.tables.items():
            if (name, seq) not in self.past:
                self._duck.sql(f'CREATE TABLE "{name}@{seq}" AS SELECT * FROM "{name}"')
                self.past[name, seq] = table
        while len({at for _, at in self.past}) > most:
            oldest = min(at for _, at in self.past)
            for name, at in [each for each in self.past if each[1] == oldest]:
                self._duck.sql(f'DROP TABLE "{name}@{at}"')
                del self.past[name, at]

    def alter(self, table: Table, change: str) -> None:
        """Change columns; `table` is what it is then."""
        self._duck.sql(self._text(change))
        self.tables[table.name] = table

    # --- statements

    def _text(self, text: str) -> str:
        found = _TABLE.sub(lambda m: f'"{m[1]}{m[2] or ""}"', text)
        return _COLUMN.sub(r'"\1"', found)

    def ask(self, query: str) -> list[Row]:
        """Return the rows of a query."""
        return self._duck.sql(self._text(query)).fetchall()

    def _cast(self, expression: str, column: Column) -> str:
        return f"CAST({expression} AS {_duck_type(column.kind)})"

    def insert(
        self, name: str, columns: Sequence[str], query: str, *, op: str = "insert"
    ) -> Outcome:
        """Return what an insert of a query leaves: `op` may be upsert, overwrite, or a condition.

        A condition is that of REPLACE WHERE.
        """
        table = self.tables[name]
        cells = [
            self._cast(f"c{columns.index(c.name)}" if c.name in columns else "NULL", c)
            for c in table.columns
        ]
        places = ", ".join(f"c{n}" for n in range(len(columns)))
        new = self.ask(f"SELECT {', '.join(cells)} FROM ({query}) AS q({places})")
        outcome = Outcome(reasons=self.refusals(table, new))
        old = [] if op == "overwrite" else self.rows(name)
        if op not in {"insert", "upsert", "overwrite"}:
            old = self._outside(table, op)
            if self._unfit(table, new, op):
                outcome.reasons.add("unfit")
        taken = {table.key_of(row) for row in old} if table.key else set()
        keys = {table.key_of(row) for row in new}
        if op == "insert" and taken & keys:
            outcome.reasons.add("duplicate")
        if table.key:
            old = [row for row in old if table.key_of(row) not in keys]
        return Outcome([*old, *new], outcome.reasons)

    def _outside(self, table: Table, condition: str) -> list[Row]:
        return self.ask(f"SELECT * FROM ⟦{table.name}⟧ WHERE ({condition}) IS NOT TRUE")

    def _unfit(self, table: Table, new: Sequence[Row], condition: str) -> bool:
        self._make("fresh rows", table, new)
        return bool(self._outside(replace(table, name="fresh rows"), condition))

    def refusals(self, table: Table, new: Sequence[Row]) -> set[str]:
        found = set[str]()
        for place, column in enumerate(table.columns):
            is_open = column.is_nullable and column.name not in table.key
            if not is_open and any(row[place] is None for row in new):
                found.add("null")
        counts = Counter(table.key_of(row) for row in new)
        if table.key and max(counts.values(), default=0) > 1:
            found.add("duplicate")
        return found

    def update(self, name: str, sets: dict[str, str], condition: str | None) -> Outcome:
        """Return what UPDATE leaves."""
        table = self.tables[name]
        where = f" WHERE {condition}" if condition else ""
        changed = self.ask(
            f"SELECT {self._new_cells(table, sets)}, {self._own(table, '')} FROM ⟦{name}⟧ t{where}"
        )
        pairs = [(row[: len(table.names)], row[len(table.names) :]) for row in changed]
        return self._changed(table, pairs, set(), [])

    def _own(self, table: Table, prefix: str = "t.") -> str:
        return ", ".join(f"{prefix}‹{name}›" for name in table.names)

    def _new_cells(self, table: Table, sets: dict[str, str], prefix: str = "t.") -> str:
        return ", ".join(
            self._cast(sets.get(c.name, f"{prefix}‹{c.name}›"), c) for c in table.columns
        )

    def delete(self, name: str, condition: str | None) -> Outcome:
        """Return what DELETE leaves."""
        return Outcome(self._outside(self.tables[name], condition or "TRUE"))

    def merge(self, asked: Merge) -> Outcome:
        """Return what MERGE leaves."""
        table = self.tables[asked.target]
        updated, deleted, inserted = list[tuple[Row, Row]](), set[Row](), list[Row]()
        for clause, rows in self._met(table, asked):
            width = len(table.names)
            if clause.met == "NOT MATCHED":
                inserted += [row[:width] for row in rows]
            elif clause.sets is None:
                deleted |= {table.key_of(row[width:]) for row in rows}
            else:
                updated += [(row[:width], row[width:]) for row in rows]
        outcome = self._changed(table, updated, deleted, inserted)
        if self._is_ambiguous(table, asked):
            outcome.reasons.add("cardinality")
        return outcome

    def _met(self, table: Table, asked: Merge) -> list[tuple[Clause, list[Row]]]:
        """Return of each clause the new rows, and behind each, if there is one, the old row."""
        target, source, found = f"⟦{asked.target}⟧ t", f"({asked.source}) s", []
        forms = {
            "MATCHED": f"FROM {target} JOIN {source} ON {asked.on}",
            "NOT MATCHED": f"FROM {source} WHERE NOT EXISTS (FROM {target} WHERE {asked.on})",
            "NOT MATCHED BY SOURCE": f"FROM {target} WHERE NOT EXISTS"
            f" (FROM {source} WHERE {asked.on})",
        }
        for met, form in forms.items():
            mine = [clause for clause in asked.clauses if clause.met == met]
            for number, clause in enumerate(mine):
                earlier = [f"({c.condition}) IS NOT TRUE" for c in mine[:number]]
                wanted = " AND ".join([*earlier, f"({clause.condition or 'TRUE'})"])
                word = "WHERE" if met == "MATCHED" else "AND"
                cells = self._clause_cells(table, clause)
                found.append((clause, self.ask(f"SELECT {cells} {form} {word} {wanted}")))
        return found

    def _clause_cells(self, table: Table, clause: Clause) -> str:
        sets = clause.sets or {}
        if clause.sets == {}:
            sets = {name: f"s.‹{name}›" for name in table.names}
        if clause.met == "NOT MATCHED":
            return ", ".join(self._cast(sets.get(c.name, "NULL"), c) for c in table.columns)
        return f"{self._new_cells(table, sets)}, {self._own(table)}"

    def _is_ambiguous(self, table: Table, asked: Merge) -> bool:
        """Return whether two source rows match one row, where that matters to Spark."""
        matched = [clause for clause in asked.clauses if clause.met == "MATCHED"]
        if not matched or (matched[0].sets is None and matched[0].condition is None):
            return False
        keys = ", ".join(f"t.‹{name}›" for name in table.key)
        return bool(
            self.ask(
                f"SELECT {keys} FROM ⟦{asked.target}⟧ t JOIN ({asked.source}) s ON {asked.on}"
                f" GROUP BY {keys} HAVING count(*) > 1"
            )
        )

    def _changed(
        self,
        table: Table,
        updated: Sequence[tuple[Row, Row]],
        deleted: set[Row],
        inserted: Sequence[Row],
    ) -> Outcome:
        old = self.rows(table.name)
        outcome = Outcome(reasons=self.refusals(table, inserted))
        outcome.reasons |= self.refusals(table, [new for new, _ in updated]) - {"duplicate"}
        if any(table.key_of(new) != table.key_of(before) for new, before in updated):
            outcome.reasons.add("key")
        if {table.key_of(row) for row in old} & {table.key_of(row) for row in inserted}:
            outcome.reasons.add("duplicate")
        gone = deleted | {table.key_of(before) for _, before in updated}
        kept = [row for row in old if table.key_of(row) not in gone]
        return Outcome([*kept, *(new for new, _ in updated), *inserted], outcome.reasons)


def _duck_type(kind: str) -> str:
    return "VARCHAR" if kind == "string" else TYPES[kind][0]
