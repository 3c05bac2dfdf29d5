"""Merges: MERGE: a query says for each row of the join which clause acts, and its values.

    source    read once, under its alias
    join      the table and the source; outer, as far as a clause is for rows without a partner
    actions   keys that are deleted; keys and new values that are updated; rows that are inserted

All that can be refused is, before the first row is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.tables import TransactionTable
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.local.statements.defaults import completed, in_sets
from siltstone.local.statements.exact import refuse_cut
from siltstone.local.statements.fitted import fitted
from siltstone.local.statements.keys import first_twice, keys_of, refuse_changed, without
from siltstone.local.statements.running import (
    STAGED_BYTES_MIN,
    Running,
    Written,
    columns_of,
    refuse_nulls,
    require_key,
)
from siltstone.local.statements.updates import refuse_twice
from siltstone.query.sql.shielded import folded, quoted
from siltstone.query.sql.writes.merge_clauses import joined_by
from siltstone.query.sql.writes.queries import (
    ROWS,
    Chosen,
    TypedColumn,
    Values,
    as_written,
    every_row,
)
from siltstone.query.sql.writes.statements import (
    Action,
    Assignment,
    Clause,
    MergeStatement,
    ValueText,
    When,
)

_MARK = "siltstone source"
_ACTS = "siltstone clause"
_INTEGER = "INTEGER"
_WORDS = {Action.UPDATE: "UPDATE", Action.DELETE: "DELETE", Action.INSERT: "INSERT"}


def merge(run: Running, statement: MergeStatement) -> Written:
    """Run a MERGE."""
    table = run.table(statement.target)
    key, fields = require_key(table, "MERGE"), table.schema
    source = run.rows(every_row(statement.source, statement.given))
    names = source.column_names
    whole = (_whole(each, statement, names, fields) for each in statement.clauses)
    clauses = [replace(each, sets=in_sets(each.sets, fields)) for each in whole]
    mark = pa.repeat(pa.scalar(True), source.num_rows)
    plan = _Plan(run, statement, table, key, fields, clauses)
    return plan.run_it(source.append_column(_MARK, mark))


def _whole(
    clause: Clause, statement: MergeStatement, names: Sequence[str], fields: pa.Schema
) -> Clause:
    """Return a clause with its assignments written out."""
    if clause.values:
        if len(clause.values) != len(fields):
            raise SchemaMismatchError(
                f"MERGE inserts {len(clause.values)} values for {len(fields)} columns"
            )
        return _with(clause, zip(fields.names, clause.values, strict=True))
    if not clause.is_whole:
        return clause
    same = [folded(each) for each in names] == [folded(each) for each in fields.names]
    if not clause.is_by_name and not same:
        raise SchemaMismatchError(
            f"the columns of the source are {', '.join(names)}, and those of the table"
            f" {', '.join(fields.names)}: say BY NAME, or name the columns"
        )
    source = quoted(statement.alias)
    return _with(clause, ((name, ValueText(f"{source}.{quoted(name)}")) for name in names))


def _with(clause: Clause, values: Iterator[tuple[str, ValueText]]) -> Clause:
    sets = tuple(Assignment(name, part) for name, part in values)
    return Clause(clause.when, clause.action, clause.condition, sets)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The clauses of a statement over one table."""

    run: Running
    statement: MergeStatement
    table: TransactionTable
    key: tuple[str, ...]
    fields: pa.Schema
    clauses: list[Clause]

    def run_it(self, source: pa.Table) -> Written:
        """Read, and write what the clauses say."""
        carried = [*self.key, *(name for each in self.clauses for name in self._assigned(each))]
        refuse_cut("MERGE", carried, self.fields, "upsert(), update_many() and delete()")
        found = self.run.rows_of(self._query(), self.fields, {ROWS: source}).flatten()
        acts = found.column(0)
        self._refuse_errors(acts)
        parts = [self._rows_of(found, acts, place) for place in range(len(self.clauses))]
        changed = [
            keys_of(rows.select(list(self.key)), self.key, self.fields)
            for clause, rows in zip(self.clauses, parts, strict=True)
            if clause.action in {Action.UPDATE, Action.DELETE}
        ]
        if changed:
            refuse_twice("MERGE", pa.concat_tables(changed))
        self._refuse_existing(parts)
        acts_too = self.fields.append(pa.field("merge_action", pa.string()))
        self.run.check_returned(
            self._without_action(), acts_too, self.statement.target, self.statement.given
        )
        gone = self._before(parts)
        count = self._write(parts)
        return Written(count, self._returned(parts, gone))

    # the query

    def _query(self) -> Chosen:
        target, source = quoted(self.statement.target.name), quoted(self.statement.alias)
        is_there = f"{target}.{quoted(self.key[0])} IS NOT NULL"
        has_source = f"{source}.{quoted(_MARK)} IS NOT NULL"
        tests = {
            When.MATCHED: f"{is_there} AND {has_source}",
            When.NOT_MATCHED: f"NOT ({is_there})",
            When.NOT_MATCHED_BY_SOURCE: f"NOT ({has_source})",
        }
        whens = [f"{tests[each.when]}{_and(each.condition)}" for each in self.clauses]
        cases = " ".join(f"WHEN {test} THEN {place}" for place, test in enumerate(whens))
        types = self.run.columns(self.fields)
        columns = [TypedColumn(_ACTS, _INTEGER), *(types[name] for name in self.key)]
        values = [f"CASE {cases} END", *(f"{target}.{quoted(name)}" for name in self.key)]
        keys, made = dict(enumerate(values[1:], 1)), list[dict[int, str]]()
        for place, clause in enumerate(self.clauses):
            made.append({0: str(place), **keys})
            for name, each in zip(self._assigned(clause), clause.sets, strict=True):
                value = made[-1][len(columns)] = each.value.text
                columns.append(types[name])
                values.append(f"CASE WHEN (CASE {cases} END) = {place} THEN {value} END")
        plain = Values(tuple(columns), tuple(values), self._behind(), self.statement.given)
        return Chosen(plain, tuple(zip(whens, made, strict=True)))

    def _behind(self) -> str:
        whens = {each.when for each in self.clauses}
        join = {
            (False, False): "JOIN",
            (False, True): "LEFT JOIN",
            (True, False): "RIGHT JOIN",
            (True, True): "FULL JOIN",
        }[When.NOT_MATCHED in whens, When.NOT_MATCHED_BY_SOURCE in whens]
        target = as_written(self.statement.target.text, self.statement.target.alias)
        source = f"{quoted(ROWS)} AS {quoted(self.statement.alias)}"
        return f"FROM {target} {join} {source} ON ({joined_by(self.statement)})"

    def _assigned(self, clause: Clause) -> list[str]:
        return columns_of([each.column for each in clause.sets], self.fields)

    # what the clauses do

    def _refuse_errors(self, acts: pa.ChunkedArray) -> None:
        for place, clause in enumerate(self.clauses):
            if clause.action is Action.ERROR and pc.any(_equals(acts, place)).as_py():
                when = clause.when.name.replace("_", " ")
                raise RequestError(f"MERGE: a row is {when}, which is an error: {clause.message}")

    def _rows_of(self, found: pa.Table, acts: pa.ChunkedArray, place: int) -> pa.Table:
        """Return the rows that a clause writes: the key of what exists, and what it assigns."""
        clause = self.clauses[place]
        begin = 1 + len(self.key) + sum(len(each.sets) for each in self.clauses[:place])
        own = found.filter(_equals(acts, place))
        new = own.select(range(begin, begin + len(clause.sets)))
        new = new.rename_columns(self._assigned(clause))
        if clause.action in {Action.INSERT, Action.UPDATE}:
            refuse_nulls(new, self.fields)
            new = fitted(new, self.fields)
        if clause.action is Action.INSERT:
            return new
        old = own.select(range(1, 1 + len(self.key))).rename_columns(list(self.key))
        refuse_changed("MERGE", old, new, [name for name in self.key if name in new.column_names])
        for name in new.column_names:
            if name not in self.key:
                old = old.append_column(new.field(name), new.column(name))
        return old

    def _refuse_existing(self, parts: list[pa.Table]) -> None:
        """Refuse new rows whose keys are there, before the first row is written.

        Raises:
            DuplicateKeyError: A row has the key already, or two new ones have it.
        """
        of = {Action.INSERT: list[pa.Table](), Action.DELETE: list[pa.Table]()}
        for clause, rows in zip(self.clauses, parts, strict=True):
            has_key = all(name in rows.column_names for name in self.key)
            if clause.action in of and has_key:
                of[clause.action].append(keys_of(rows, self.key, self.fields))
        if not of[Action.INSERT]:
            return
        new = pa.concat_tables(of[Action.INSERT])
        twice = first_twice(new)
        if twice is not None:
            raise DuplicateKeyError(self.table.name, _one(twice), is_repeated=True)
        there = keys_of(self.table.get_many(new), self.key, self.fields)
        for keys in of[Action.DELETE]:
            there = there.take(without(there, keys))
        if there.num_rows:
            key = tuple(there.column(name)[0].as_py() for name in self.key)
            raise DuplicateKeyError(self.table.name, _one(key))

    def _write(self, parts: list[pa.Table]) -> int:
        of = {action: list[pa.Table]() for action in Action}
        for clause, rows in zip(self.clauses, parts, strict=True):
            if rows.num_rows:
                of[clause.action].append(rows)
        gone = [keys_of(rows, self.key, self.fields) for rows in of[Action.DELETE]]
        new = [completed(rows, self.fields) for rows in of[Action.INSERT]]
        is_bulk = self.run.is_alone and sum(rows.nbytes for rows in parts) >= STAGED_BYTES_MIN
        (self._stage if is_bulk else self._write_few)(gone, of[Action.UPDATE], new)
        return sum(rows.num_rows for each in (gone, of[Action.UPDATE], new) for rows in each)

    def _write_few(
        self, gone: list[pa.Table], changed: list[pa.Table], new: list[pa.Table]
    ) -> None:
        for keys in gone:
            self.table.delete(keys)
        for rows in changed:
            self.table.update_many(rows)
        for rows in new:
            self.table.insert(rows)

    def _stage(self, gone: list[pa.Table], changed: list[pa.Table], new: list[pa.Table]) -> None:
        whole = [self._overlaid(rows) for rows in changed]  # read before the first job
        for keys in gone:  # first: a new row may have the key of one that is deleted
            self.run.stage(self.table, "delete", keys)
        for rows in [*whole, *new]:
            self.run.stage(self.table, "upsert", rows)

    def _overlaid(self, rows: pa.Table) -> pa.Table:
        """Return whole rows: what a clause assigns, and what the table has in the other columns."""
        found = self.table.get_many(keys_of(rows, self.key, self.fields))
        for name in rows.column_names:
            place = found.schema.get_field_index(name)
            found = found.set_column(place, name, rows.column(name))
        return found

    # what is returned

    def _before(self, parts: list[pa.Table]) -> list[pa.Table]:
        if not self.statement.returning:
            return []
        return [
            self.table.get_many(keys_of(rows, self.key, self.fields))
            for clause, rows in zip(self.clauses, parts, strict=True)
            if clause.action is Action.DELETE
        ]

    def _returned(self, parts: list[pa.Table], gone: list[pa.Table]) -> pa.Table | None:
        if not self.statement.returning:
            return None
        left, found = iter(gone), list[pa.Table]()
        for clause, rows in zip(self.clauses, parts, strict=True):
            if clause.action is Action.DELETE:
                after = next(left)
            elif clause.action is Action.UPDATE:
                after = self.table.get_many(keys_of(rows, self.key, self.fields))
            elif clause.action is Action.INSERT:
                after = completed(rows, self.fields)
            else:
                continue
            word = pa.array([_WORDS[clause.action]] * after.num_rows, pa.string())
            plain = pa.schema([each.remove_metadata() for each in self.fields])
            after = after.cast(pa.schema([each.with_nullable(True) for each in plain]))
            found.append(after.append_column("merge_action", word))
        rows = pa.concat_tables(found)
        return self.run.returned(
            self._without_action(), rows, self.statement.target, self.statement.given
        )

    def _without_action(self) -> tuple[str, ...]:
        """Return what RETURNING asks for: `*` has not the action."""
        name = quoted(self.statement.target.name)
        every = ", ".join(f"{name}.{quoted(each)}" for each in self.fields.names)
        return tuple(every if each == "*" else each for each in self.statement.returning)


def _equals(acts: pa.ChunkedArray, place: int) -> Any:
    found: Any = pc.equal(acts, pa.scalar(place, pa.int32()))
    return pc.coalesce(found, pa.scalar(False))


def _and(condition: str) -> str:
    return f" AND ({condition})" if condition else ""


def _one(key: tuple[object, ...]) -> object:
    return key[0] if len(key) == 1 else key
