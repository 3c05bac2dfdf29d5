"""A life of a store under random statements of SQL, beside a copy that says what each must do."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame

import siltstone as st
from tests.spark.random_sql import Queries, Value, Words, columns_of
from tests.spark.sql_copy import (
    TYPES,
    Clause,
    Column,
    Copy,
    Merge,
    Outcome,
    Row,
    Table,
    bag,
    for_spark,
    rows_of,
    shown,
)

KEYED = Table(
    "one",
    (
        Column("id", "bigint"),
        Column("c", "int"),
        Column("x", "double"),
        Column("total", "decimal"),
        Column("s", "string"),
        Column("d", "date"),
        Column("at", "timestamp"),
        Column("yes", "boolean"),
    ),
    ("id",),
)
PAIRS = Table(
    "two",
    (
        Column("größe", "string"),
        Column("a", "bigint"),
        Column("two words", "int", is_nullable=False),
        Column("s", "string"),
        Column("at", "timestamp"),
        Column("yes", "boolean"),
    ),
    ("a", "größe"),
)
PLAIN = Table(
    "plain",
    (
        Column("id", "bigint"),
        Column("s", "string"),
        Column("x", "double"),
        Column("total", "decimal"),
        Column("d", "date"),
    ),
)
SAID = {
    "duplicate": r"exists already|DuplicateKey|twice|more than one|equal keys",
    "null": r"(?i)null",
    "key": "would get the key",
    "cardinality": "MERGE_CARDINALITY_VIOLATION",
    "unknown": r"UNRESOLVED_COLUMN|AMBIGUOUS_REFERENCE|(?i:cannot.*resolve|no column|cannot find)",
    "no key": r"by their key",
    "unfit": "match",
    "unanswered": r"does not support overwrite|cannot translate expression",
    # A statement with a frame of the past counts from there: a key of then exists already.
    "conflict": r"was written at seq|has changed at seq|exists already.* has a frame of seq",
    "key column": "key",
}
# Spark 4.3.0 fails at an aggregate of a condition that is partly a constant null.
OF_SPARK = "V2ExpressionBuilder.generateExpression"


@dataclass
class Step:
    """A statement, and what must come of it: `may` are reasons that its text does not decide."""

    text: str
    table: str = ""
    outcome: Outcome = field(default_factory=Outcome)
    may: set[str] = field(default_factory=set)
    is_ordered: bool = False
    then: Callable[[], None] | None = None


class Life:
    """A store with a key of one column, one of two, and none; and its copy."""

    def __init__(self, db: st.Store, sql: Callable[[str], DataFrame], seed: str) -> None:
        self._db, self._sql, self._seed = db, sql, seed
        self._chance = random.Random(seed)
        self._words = Words(self._chance)
        self._queries = Queries(self._words)
        self._copy = Copy()
        self._log: list[str] = []
        self._made = 0
        for table in (KEYED, PAIRS, PLAIN):
            db.create_table(table.name, table.schema(), table.key)
            self._copy.put(table, [])
            self._write(table, self._random_rows(table, 12))
        self._copy.keep(db.seq)

    def close(self) -> None:
        self._copy.close()

    def run(self, count: int) -> None:
        """Run so many statements, with other work of the store between them."""
        steps = self._steps()
        for _ in range(count):
            make = self._chance.choices([*steps], [*steps.values()])[0]
            try:
                step = make()
            except duckdb.Error as error:
                if "verflow" not in str(error) and "out of range" not in str(error):
                    raise AssertionError(self._said(f"DuckDB: {error}")) from error
                continue
            if step is not None:
                self._check(step)
            if self._words.odds(0.3):
                self._work()

    def _said(self, what: str) -> str:
        return "\n".join([f"{self._seed}: {what}", "after", *self._log[-12:]])

    # --- a step

    def _check(self, step: Step) -> None:
        text = for_spark(step.text)
        before, shown_rows, said = self._db.seq, None, ""
        self._log.append(f"[{before}] {text}")
        try:
            found = self._sql(text).toArrow()
            shown_rows = rows_of(found)
        except Exception as error:  # noqa: BLE001 - what it says is looked at
            said = str(error)
        if said:
            self._check_refusal(step, said, before)
        else:
            self._check_success(step, shown_rows or [])
        self._compare()
        self._copy.keep(self._db.seq)

    def _check_refusal(self, step: Step, said: str, before: int) -> None:
        reasons = step.outcome.reasons | step.may
        head = "\n".join(line for line in said.splitlines() if not line.startswith("\tat"))
        is_known = OF_SPARK in said or any(re.search(SAID[each], head) for each in reasons)
        assert is_known, self._said(f"refused, but for {reasons or 'nothing'}: {head}")
        assert self._db.seq == before, self._said(f"refused, and changed something: {head}")

    def _check_success(self, step: Step, rows: Sequence[Row]) -> None:
        wanted = step.outcome
        assert not wanted.reasons, self._said(f"not refused for {wanted.reasons}")
        if wanted.shown is not None:
            form = (lambda r, f: [repr(tuple(map(f, x))) for x in r]) if step.is_ordered else bag
            found, expected = form(rows, shown), form(wanted.shown, shown)
            assert found == expected, self._said(f"shows {found}, not {expected}")
        if wanted.rows is not None:
            self._copy.put(self._copy.tables[step.table], wanted.rows)
        if step.then is not None:
            step.then()

    def _compare(self) -> None:
        """Compare all tables with the copy, as Python reads them."""
        assert sorted(self._db.tables()) == sorted(self._copy.tables), self._said("tables")
        for name, table in self._copy.tables.items():
            stored = self._db[name].to_arrow()
            assert stored.schema.names == table.names, self._said(f"columns of {name}")
            found, wanted = bag(rows_of(stored)), bag(self._copy.rows(name))
            assert found == wanted, self._said(
                f"{name} has {sorted({*found} - {*wanted})}, not {sorted({*wanted} - {*found})}"
            )

    # --- what the statements are about

    def _any(self) -> Table:
        return self._chance.choice([*self._copy.tables.values()])

    def _keyed(self) -> Table:
        return self._chance.choice([each for each in self._copy.tables.values() if each.key])

    def _source(self, past: float = 0.15) -> tuple[str, Table]:
        """Return a table, sometimes as it was, and its mark in SQL."""
        if self._copy.past and self._words.odds(past):
            (name, seq), table = self._chance.choice([*self._copy.past.items()])
            return f"⟦{name}@{seq}⟧", table
        table = self._any()
        return f"⟦{table.name}⟧", table

    def _rows_for(self, table: Table) -> str:
        """Return a query with the columns of a table, of rows of another, or of new ones."""
        if self._words.odds(0.5):
            return self._queries.rows_like(table, *self._source())
        rows = ", ".join(
            f"({', '.join(self._new_cell(table, c) for c in table.columns)})"
            for _ in range(self._chance.randrange(1, 5))
        )
        names = ", ".join(f"‹{name}›" for name in table.names)
        return f"SELECT * FROM (VALUES {rows}) AS v({names})"

    def _new_cell(self, table: Table, column: Column) -> str:
        is_open = column.is_nullable and column.name not in table.key
        text = self._words.literal(column.kind, 0.25 if is_open else 0.01)
        if column.name in table.key and column.kind == "bigint" and self._words.odds(0.7):
            text = f"CAST({self._chance.randrange(10, 400)} AS BIGINT)"
        return text if text.startswith("CAST") else f"CAST({text} AS {TYPES[column.kind][0]})"

    def _condition(self, table: Table, prefix: str = "") -> str:
        found = self._words.condition(columns_of(table, prefix))
        if not prefix and self._words.odds(0.15):
            mark, source = self._source(0)
            column = self._chance.choice(columns_of(table))
            fits = [each for each in columns_of(source, "q.") if each.kind == column.kind]
            if fits and column.kind != "double":
                inner = self._words.condition(columns_of(source, "q."))
                word = self._chance.choice(("IN", "IN", "NOT IN"))
                found += (
                    f" AND {column.text} {word} (SELECT {fits[0].text} FROM {mark} q WHERE {inner})"
                )
        return found

    # --- the statements

    def _steps(self) -> dict[Callable[[], Step | None], int]:
        return {
            self._select: 10,
            self._insert: 5,
            self._upsert: 2,
            self._overwrite: 2,
            self._replace_where: 3,
            self._delete: 4,
            self._update: 6,
            self._merge: 8,
            self._create: 1,
            self._replace_table: 1,
            self._alter: 2,
            self._truncate: 1,
            self._unknown: 1,
            self._wrong: 1,
        }

    def _select(self) -> Step:
        text, is_ordered = self._queries.any([self._source(0.3) for _ in range(2)])
        return Step(text, outcome=Outcome(shown=self._copy.ask(text)), is_ordered=is_ordered)

    def _insert(self) -> Step:
        table = self._any()
        query, columns, names = self._rows_for(table), table.names, ""
        if self._words.odds(0.2):
            columns = self._chance.sample(columns, self._chance.randrange(1, len(columns) + 1))
            columns = [*columns, *(name for name in table.key if name not in columns)]
            cells = ", ".join(f"‹{name}›" for name in columns)
            query, names = f"SELECT {cells} FROM ({query}) w", f" ({cells})"
        outcome = self._copy.insert(table.name, columns, query)
        lacking = {c.name for c in table.columns if not c.is_nullable} - {*columns}
        if lacking:
            outcome.reasons.add("null")
        may = {"unknown"} if lacking else set[str]()
        if f"⟦{table.name}@" in query:
            may.add("conflict")  # a key of then that was deleted since
        return Step(f"INSERT INTO ⟦{table.name}⟧{names} {query}", table.name, outcome, may)

    def _upsert(self) -> Step:
        table = self._keyed()
        query = self._rows_for(table)
        outcome = self._copy.insert(table.name, table.names, query, op="upsert")
        options, may = "op = 'upsert', missing = 'null'", set[str]()
        if self._words.odds(0.5):
            options += f", expectSeq = {self._db.seq}"
        elif f"⟦{table.name}@" in query:
            may.add("conflict")
        text = f"INSERT INTO ⟦{table.name}⟧ WITH ({options}) {query}"
        return Step(text, table.name, outcome, may)

    def _overwrite(self) -> Step:
        table = self._any()
        query = self._rows_for(table)
        outcome = self._copy.insert(table.name, table.names, query, op="overwrite")
        text = f"INSERT OVERWRITE ⟦{table.name}⟧ WITH (expectSeq = {self._db.seq}) {query}"
        return Step(text, table.name, outcome)

    def _replace_where(self) -> Step:
        table = self._any()
        condition = self._words.condition(columns_of(table), 1)
        query = self._rows_for(table)
        if self._words.odds(0.7):
            query = f"SELECT * FROM ({query}) w WHERE {condition}"
        outcome = self._copy.insert(table.name, table.names, query, op=condition)
        target = f"⟦{table.name}⟧ WITH (expectSeq = {self._db.seq})"
        text = f"INSERT INTO {target} REPLACE WHERE {condition} {query}"
        return Step(text, table.name, outcome, {"unanswered"})

    def _delete(self) -> Step:
        table = self._any()
        condition = None if self._words.odds(0.02) else self._condition(table)
        where = f" WHERE {condition}" if condition else ""
        outcome = self._copy.delete(table.name, condition)
        may = set[str]() if table.key else {"no key"}
        return Step(f"DELETE FROM ⟦{table.name}⟧{where}", table.name, outcome, may)

    def _update(self) -> Step:
        table = self._any()
        sets = self._sets(table, columns_of(table, "t."), subqueries=True)
        condition = None if self._words.odds(0.1) else self._condition(table)
        where = f" WHERE {condition}" if condition else ""
        text = f"UPDATE ⟦{table.name}⟧ t SET {_assigned(sets)}{where}"
        if not table.key:
            return Step(text, table.name, Outcome(reasons={"no key"}))
        return Step(text, table.name, self._copy.update(table.name, sets, condition))

    def _sets(
        self, table: Table, columns: Sequence[Value], *, subqueries: bool = False
    ) -> dict[str, str]:
        others = [column for column in table.columns if column.name not in table.key]
        chosen = self._chance.sample(others, self._chance.randrange(1, min(4, len(others)) + 1))
        if self._words.odds(0.1):
            chosen.append(next((c for c in table.columns if c.name in table.key), chosen[0]))
        found = dict[str, str]()
        for column in chosen:
            text = self._words.expression(column.kind, columns)
            if column.name in table.key and self._words.odds(0.6):
                text = next(c.text for c in columns if c.text.endswith(f"‹{column.name}›"))
            elif not column.is_nullable:
                text = f"coalesce({text}, 3)"
            elif subqueries and self._words.odds(0.1):
                text = self._of_another(column) or text
            found[column.name] = f"CAST({text} AS {TYPES[column.kind][0]})"
        return found

    def _of_another(self, column: Column) -> str | None:
        mark, source = self._source(0)
        fits = [each for each in columns_of(source, "q.") if each.kind == column.kind]
        if not fits or column.kind in {"boolean", "double"}:
            return None
        return f"(SELECT max({fits[0].text}) FROM {mark} q)"

    def _merge(self) -> Step:
        table = self._keyed()
        asked = Merge(table.name, self._source_rows(table), self._on(table), self._clauses(table))
        options, may = "", set[str]()
        if self._words.odds(0.5):
            options = f" WITH (expectSeq = {self._db.seq})"
        elif f"⟦{table.name}@" in asked.source:
            may.add("conflict")
        text = (
            f"MERGE INTO ⟦{table.name}⟧ t{options} USING ({asked.source}) s ON {asked.on}"
            + "".join(map(_clause_text, asked.clauses))
        )
        return Step(text, table.name, self._copy.merge(asked), may)

    def _source_rows(self, table: Table) -> str:
        query = self._rows_for(table)
        if self._words.odds(0.6):  # each key once
            keys = ", ".join(f"‹{name}›" for name in table.key)
            cells = ", ".join(
                f"‹{name}›" if name in table.key else f"max(‹{name}›) AS ‹{name}›"
                for name in table.names
            )
            query = f"SELECT {cells} FROM ({query}) w GROUP BY {keys}"
        return query

    def _on(self, table: Table) -> str:
        found = " AND ".join(f"t.‹{name}› = s.‹{name}›" for name in table.key)
        if self._words.odds(0.15):
            one = self._chance.choice(columns_of(table, "t.") + columns_of(table, "s."))
            return f"{found} AND {self._words.condition([one], 0)}"
        return f"t.‹{table.key[0]}› = s.‹{table.key[0]}›" if self._words.odds(0.1) else found

    def _clauses(self, table: Table) -> tuple[Clause, ...]:
        both = [*columns_of(table, "t."), *columns_of(table, "s.")]
        sides = {
            "MATCHED": both,
            "NOT MATCHED": columns_of(table, "s."),
            "NOT MATCHED BY SOURCE": columns_of(table, "t."),
        }
        found = list[Clause]()
        for met, columns in sides.items():
            count = self._chance.choice((0, 1, 1, 2) if met != "NOT MATCHED" else (0, 1, 1))
            for number in range(count):
                is_last = number == count - 1
                condition = None
                if not is_last or self._words.odds(0.4):
                    condition = self._words.condition(columns)
                found.append(Clause(met, condition, self._action(table, met, columns)))
        return tuple(found) or (Clause("MATCHED", None, {}),)

    def _action(self, table: Table, met: str, columns: list[Value]) -> dict[str, str] | None:
        if met == "NOT MATCHED":
            if self._words.odds(0.5):
                return {}
            keys = {name: f"s.‹{name}›" for name in table.key}
            rest = self._sets(table, columns)
            must = {c.name: "CAST(3 AS INT)" for c in table.columns if not c.is_nullable}
            return {**must, **rest, **keys}
        if self._words.odds(0.3):
            return None
        if met == "MATCHED" and self._words.odds(0.3):
            return {}
        return self._sets(table, columns)

    def _new_table(self, name: str) -> tuple[Table, str]:
        mark, source = self._source()
        columns = self._chance.sample(source.columns, min(len(source.columns), 4))
        kinds = {"bigint", "string", "int", "date"}
        keys = [c.name for c in columns if c.kind in kinds]
        key = tuple(keys[:1]) if keys and self._words.odds(0.6) else ()
        made = Table(name, tuple(Column(c.name, c.kind) for c in columns), key)
        where = self._words.condition(columns_of(source))
        cells = ", ".join(f"‹{column.name}›" for column in columns)
        return made, f"SELECT {cells} FROM {mark} WHERE {where}"

    def _create(self) -> Step:
        if len(self._copy.tables) > 4:
            name = [*self._copy.tables][-1]
            return Step(f"DROP TABLE ⟦{name}⟧", then=lambda: self._copy.drop(name))
        self._made += 1
        made, query = self._new_table(f"made{self._made}")
        return self._made_by("CREATE TABLE", made, query)

    def _replace_table(self) -> Step | None:
        if len(self._copy.tables) < 4:
            return None
        name = [*self._copy.tables][-1]
        made, query = self._new_table(name)
        return self._made_by("CREATE OR REPLACE TABLE", made, query)

    def _made_by(self, verb: str, made: Table, query: str) -> Step:
        rows = self._copy.ask(query)
        reasons = self._copy.refusals(made, rows)
        key = ",".join(made.key)
        properties = f" TBLPROPERTIES ('primaryKey' = '{key}')" if key else ""
        return Step(
            f"{verb} ⟦{made.name}⟧{properties} AS {query}",
            outcome=Outcome(reasons=reasons),
            may={"conflict"},
            then=lambda: self._copy.put(made, rows),
        )

    def _alter(self) -> Step:
        table = self._any()
        name, column = f"⟦{table.name}⟧", self._chance.choice(table.columns)
        what = self._chance.choice(("ADD", "ADD", "RENAME", "DROP"))
        if what == "ADD" or len(table.columns) < 4:
            self._made += 1
            kind = self._chance.choice([*TYPES])
            added = Column(f"new{self._made}", kind)
            text = f"ALTER TABLE {name} ADD COLUMN ‹{added.name}› {TYPES[kind][0]}"
            return self._altered(text, replace(table, columns=(*table.columns, added)))
        if what == "RENAME":
            return self._renamed(table, column)
        rest = tuple(each for each in table.columns if each != column)
        text = f"ALTER TABLE {name} DROP COLUMN ‹{column.name}›"
        if column.name in table.key:
            return Step(text, outcome=Outcome(reasons={"key column"}))
        return self._altered(text, replace(table, columns=rest))

    def _renamed(self, table: Table, column: Column) -> Step:
        self._made += 1
        to = replace(column, name=f"{column.name[:8]}{self._made}")
        columns = tuple(to if each == column else each for each in table.columns)
        key = tuple(to.name if name == column.name else name for name in table.key)
        text = f"ALTER TABLE ⟦{table.name}⟧ RENAME COLUMN ‹{column.name}› TO ‹{to.name}›"
        return self._altered(text, replace(table, columns=columns, key=key))

    def _altered(self, text: str, table: Table) -> Step:
        change = text.replace("STRING", "VARCHAR")
        return Step(text, then=lambda: self._copy.alter(table, change))

    def _truncate(self) -> Step:
        table = self._any()
        return Step(f"TRUNCATE TABLE ⟦{table.name}⟧", table.name, Outcome([]))

    def _unknown(self) -> Step:
        table = self._keyed()
        name, some = f"⟦{table.name}⟧", self._chance.choice(table.names)
        text = self._chance.choice(
            (
                f"SELECT nope FROM {name}",
                f"UPDATE {name} SET nope = 1",
                f"UPDATE {name} SET ‹{some}› = nope",
                f"DELETE FROM {name} WHERE nope = 1",
                f"INSERT INTO {name} (‹{table.key[0]}›, nope) VALUES (1, 2)",
                f"ALTER TABLE {name} DROP COLUMN nope",
                f"ALTER TABLE {name} RENAME COLUMN nope TO other",
                f"MERGE INTO {name} t USING {name} s ON s.nope = 1 WHEN MATCHED THEN DELETE",
            )
        )
        return Step(text, outcome=Outcome(reasons={"unknown"}))

    def _wrong(self) -> Step:
        """Return a statement that gives a key null, or another value."""
        table = self._keyed()
        column = next(c for c in table.columns if c.name in table.key)
        kind = TYPES[column.kind][0]
        value = self._chance.choice((f"CAST(NULL AS {kind})", self._words.literal(column.kind, 0)))
        sets, condition = {column.name: f"CAST({value} AS {kind})"}, self._condition(table)
        text = f"UPDATE ⟦{table.name}⟧ t SET {_assigned(sets)} WHERE {condition}"
        outcome = self._copy.update(table.name, sets, condition)
        return Step(text, table.name, outcome, {"null"} if "NULL" in value else set())

    # --- between the statements

    def _work(self) -> None:
        self._chance.choice((self._upkeep, self._upkeep, self._commit, self._commit, self._both))()

    def _upkeep(self) -> None:
        db = self._db
        tasks = {
            "checkpoint": db.checkpoint,
            "merge": db.merge,
            "optimize": db.optimize,
            "vacuum": lambda: db.vacuum(dry_run=False, grace_s=0),
        }
        name = self._chance.choice([*tasks])
        self._log.append(name)
        tasks[name]()
        self._compare()

    def _commit(self) -> None:
        table = self._any()
        rows = self._random_rows(table, self._chance.randrange(1, 5))
        if table.key and self._words.odds(0.3):
            self._delete_keys(table)
        else:
            self._write(table, rows)
        self._compare()
        self._copy.keep(self._db.seq)

    def _both(self) -> None:
        """Commit to two tables in one transaction."""
        tables = self._chance.sample([*self._copy.tables.values()], 2)
        with self._db.transaction() as tx:
            for table in tables:
                self._write(table, self._random_rows(table, 2), tx)
        self._compare()
        self._copy.keep(self._db.seq)

    def _write(self, table: Table, rows: list[Row], into: Any = None) -> None:
        self._log.append(f"Python writes {rows} into {table.name}")
        data = pa.Table.from_pylist(
            [dict(zip(table.names, row, strict=True)) for row in rows], table.schema()
        )
        handle = (self._db if into is None else into)[table.name]
        if table.key:
            handle.upsert(data)
        else:
            handle.append(data)
        keys = {table.key_of(row) for row in rows} if table.key else set()
        old = [
            row for row in self._copy.rows(table.name) if not keys or table.key_of(row) not in keys
        ]
        self._copy.put(table, [*old, *rows])

    def _delete_keys(self, table: Table) -> None:
        old = self._copy.rows(table.name)
        keys = [table.key_of(row) for row in old][:2]
        self._log.append(f"Python deletes {keys} of {table.name}")
        if keys:
            given: Any = [key[0] if len(key) == 1 else key for key in keys]
            self._db[table.name].delete(given)
        self._copy.put(table, [row for row in old if table.key_of(row) not in keys])

    def _random_rows(self, table: Table, count: int) -> list[Row]:
        """Return rows, each with a key of its own, also of values that no statement writes."""
        found = dict[Row, Row]()
        for number in range(count):
            cells = ", ".join(self._new_cell(table, column) for column in table.columns)
            with contextlib.suppress(duckdb.Error):
                (row,) = self._copy.ask(f"SELECT {cells}")
                if self._fits(table, row):
                    found[table.key_of(row) if table.key else (number,)] = row
        return [self._odd(table, row) for row in found.values()]

    def _fits(self, table: Table, row: Row) -> bool:
        return all(
            value is not None or (column.is_nullable and column.name not in table.key)
            for column, value in zip(table.columns, row, strict=True)
        )

    def _odd(self, table: Table, row: Row) -> Row:
        odd = ("back\\slash", "nul\0", "e\u0301", "\U0010ffff", "%", "_", '"', "`")
        is_odd = [
            c.kind == "string" and c.name not in table.key and self._words.odds(0.2)
            for c in table.columns
        ]
        return tuple(
            self._chance.choice(odd) if now else value
            for now, value in zip(is_odd, row, strict=True)
        )


def _assigned(sets: dict[str, str]) -> str:
    return ", ".join(f"‹{name}› = {text}" for name, text in sets.items())


def _clause_text(clause: Clause) -> str:
    condition = f" AND {clause.condition}" if clause.condition else ""
    head = f" WHEN {clause.met}{condition} THEN"
    if clause.sets is None:
        return f"{head} DELETE"
    if clause.met == "NOT MATCHED":
        if not clause.sets:
            return f"{head} INSERT *"
        names = ", ".join(f"‹{name}›" for name in clause.sets)
        return f"{head} INSERT ({names}) VALUES ({', '.join(clause.sets.values())})"
    return f"{head} UPDATE SET {_assigned(clause.sets) or '*'}"
