"""Merges: MERGE: its clauses say what becomes of each row.

    source    read once, under its alias
    matches   which rows are partners, and the clause that acts on each
    actions   keys that are deleted; keys and new values that are updated; rows that are inserted

All that can be refused is, before the first row is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.local.statements.defaults import completed, in_sets
from siltstone.local.statements.exact import refuse_cut, refuse_lost
from siltstone.local.statements.fitted import fitted
from siltstone.local.statements.keys import first_twice, keys_of, one, refuse_changed, without
from siltstone.local.statements.matches import Matches
from siltstone.local.statements.names import require_key
from siltstone.local.statements.running import STAGED_BYTES_MIN, Running, Written, refuse_nulls
from siltstone.local.statements.updates import refuse_twice
from siltstone.query.sql.shielded import folded, quoted
from siltstone.query.sql.writes.queries import every_row, too_long
from siltstone.query.sql.writes.statements import (
    Action,
    Assignment,
    Clause,
    MergeStatement,
    ValueText,
)

_WORDS = {Action.UPDATE: "UPDATE", Action.DELETE: "DELETE", Action.INSERT: "INSERT"}


def merge(run: Running, statement: MergeStatement) -> Written:
    """Run a MERGE."""
    table = run.rows_in(statement.target)
    key, fields = require_key(table, "MERGE"), table.schema
    source = _source(run, statement)
    whole = (_whole(each, statement, source.column_names, fields) for each in statement.clauses)
    clauses = [replace(each, sets=in_sets(each.sets, fields)) for each in whole]
    return _Plan(run, statement, table, key, fields, clauses).run_it(source)


def _source(run: Running, statement: MergeStatement) -> pa.Table:
    """Return the rows of the source.

    Raises:
        RequestError: They are not as DuckDB had them.
    """
    found = run.rows(every_row(statement.source, statement.given))
    refuse_lost("MERGE", found.schema)
    names = [field.name for field in found.schema if pa.types.is_interval(field.type)]
    if names:
        long = run.rows(too_long(statement.source, names, statement.given)).to_pylist()[0].values()
        for name, is_too_long in zip(names, long, strict=True):
            if is_too_long:
                raise RequestError(
                    f"MERGE cannot carry its source: column {name!r} has a duration of more than"
                    " 292 years; use upsert() or update_many()"
                )
    return found


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
        carried = [
            *self.key,
            *(name for each in self.clauses for name in self._matches.assigned(each)),
        ]
        refuse_cut("MERGE", carried, self.fields, "upsert(), update_many() and delete()")
        found = self._matches.found(source)
        self._refuse_errors(found)
        parts = [self._rows_of(rows, place) for place, rows in enumerate(found)]
        changed = [
            keys_of(rows.select(list(self.key)), self.key, self.fields)
            for clause, rows in zip(self.clauses, parts, strict=True)
            if clause.action in {Action.UPDATE, Action.DELETE}
        ]
        if changed:
            refuse_twice("MERGE", pa.concat_tables(changed))
        self._refuse_existing(parts)
        self.run.check_returned(self._returning(), self.fields, _actions([]))
        gone = self._before(parts)
        count = self._write(parts)
        return Written(count, self._returned(parts, gone))

    @property
    def _matches(self) -> Matches:
        return Matches(self.run, self.statement, self.key, self.fields, self.clauses)

    # what the clauses do

    def _refuse_errors(self, found: list[pa.Table]) -> None:
        for clause, rows in zip(self.clauses, found, strict=True):
            if clause.action is Action.ERROR and rows.num_rows:
                when = clause.when.name.replace("_", " ")
                raise RequestError(f"MERGE: a row is {when}, which is an error: {clause.message}")

    def _rows_of(self, found: pa.Table, place: int) -> pa.Table:
        """Return the rows that a clause writes: the key of what exists, and what it assigns."""
        clause = self.clauses[place]
        begin = found.num_columns - len(clause.sets)
        new = found.select(range(begin, found.num_columns))
        new = new.rename_columns(self._matches.assigned(clause))
        if clause.action in {Action.INSERT, Action.UPDATE}:
            is_new = clause.action is Action.INSERT
            refuse_nulls(completed(new, self.fields) if is_new else new, self.fields)
            new = fitted(new, self.fields)
        if clause.action is Action.INSERT or not begin:
            return new
        old = fitted(found.select(range(begin)).rename_columns(list(self.key)), self.fields)
        refuse_changed("MERGE", old, new, [name for name in self.key if name in new.column_names])
        for name in new.column_names:
            if name not in self.key:
                old = old.append_column(new.field(name), new.column(name))
        return old

    def _refuse_existing(self, parts: list[pa.Table]) -> None:
        """Refuse new rows whose keys are there, where no insert does so before rows are written.

        Raises:
            DuplicateKeyError: A row has the key already, or two new ones have it.
        """
        actions = [c.action for c, rows in zip(self.clauses, parts, strict=True) if rows.num_rows]
        is_first = Action.DELETE not in actions and actions.count(Action.INSERT) == 1
        if not self._is_bulk(parts) and (self.run.is_alone or is_first):
            return
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
            raise DuplicateKeyError(self.table.name, one(twice), is_repeated=True)
        there = keys_of(self.table.get_many(new), self.key, self.fields)
        for keys in of[Action.DELETE]:
            there = there.take(without(there, keys))
        if there.num_rows:
            key = tuple(there.column(name)[0].as_py() for name in self.key)
            raise DuplicateKeyError(self.table.name, one(key))

    def _write(self, parts: list[pa.Table]) -> int:
        of = {action: list[pa.Table]() for action in Action}
        for clause, rows in zip(self.clauses, parts, strict=True):
            if rows.num_rows:
                of[clause.action].append(rows)
        gone = [keys_of(rows, self.key, self.fields) for rows in of[Action.DELETE]]
        new = [completed(rows, self.fields) for rows in of[Action.INSERT]]
        write = self._stage if self._is_bulk(parts) else self._write_few
        write(gone, of[Action.UPDATE], new)
        return sum(rows.num_rows for each in (gone, of[Action.UPDATE], new) for rows in each)

    def _is_bulk(self, parts: list[pa.Table]) -> bool:
        return self.run.is_alone and sum(rows.nbytes for rows in parts) >= STAGED_BYTES_MIN

    def _write_few(
        self, gone: list[pa.Table], changed: list[pa.Table], new: list[pa.Table]
    ) -> None:
        for keys in gone:  # first: a new row may have the key of one that is deleted
            self.table.delete(keys)
        for rows in new:  # it refuses a key that is there
            self.table.insert(rows)
        for rows in changed:
            self.table.update_many(rows)

    def _stage(self, gone: list[pa.Table], changed: list[pa.Table], new: list[pa.Table]) -> None:
        whole = [self._overlaid(rows) for rows in changed]  # read before the first job
        for keys in gone:
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
        plain = pa.schema([each.remove_metadata().with_nullable(True) for each in self.fields])
        left, found, words = iter(gone), [plain.empty_table()], list[str]()
        for clause, rows in zip(self.clauses, parts, strict=True):
            if clause.action is Action.DELETE:
                after = next(left)
            elif clause.action is Action.UPDATE:
                after = self.table.get_many(keys_of(rows, self.key, self.fields))
            elif clause.action is Action.INSERT:
                after = completed(rows, self.fields)
            else:
                continue
            found.append(after.cast(plain))
            words += [_WORDS[clause.action]] * after.num_rows
        actions = _actions(words)
        return self.run.returned(self._returning(), lambda: pa.concat_tables(found), actions)

    def _returning(self) -> MergeStatement:
        """Return the statement with a RETURNING whose `*` has not the action."""
        name, asked = quoted(self.statement.target.name), self.statement.returning
        plain = tuple(f"{name}.{each}" if each.startswith("*") else each for each in asked)
        return replace(self.statement, returning=plain)


def _actions(words: list[str]) -> pa.Table:
    return pa.table({"merge_action": pa.array(words, pa.string())})
