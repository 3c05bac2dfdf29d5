"""Inserts: INSERT, with what becomes of a row whose key a row has.

    refuse    insert, or append to a table without a key
    nothing   keys are looked up; rows with other keys are inserted, of equal keys the first
    update    the same, and the rows that exist get what SET says
    replace   upsert: columns that the statement does not name keep their values

No statement reads more of its table than the rows that have the keys of its new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.given import Rows
from siltstone.local.statements.defaults import completed, in_row, in_sets
from siltstone.local.statements.exact import carried, refuse_cut
from siltstone.local.statements.fitted import fitted
from siltstone.local.statements.keys import (
    among,
    first_of_each,
    first_twice,
    keys_of,
    one,
    refuse_changed,
    without,
)
from siltstone.local.statements.names import columns_of, require_key
from siltstone.local.statements.running import (
    STAGED_BYTES_MIN,
    Running,
    Written,
    checked,
    refuse_nulls,
)
from siltstone.query.sql.shielded import folded, quoted
from siltstone.query.sql.writes.constants import UnclearError, fitting
from siltstone.query.sql.writes.queries import (
    EXISTING,
    ROWS,
    Listed,
    Values,
    behind_conflict,
    every_row,
    from_source,
)
from siltstone.query.sql.writes.statements import InsertStatement, OnConflict, ValueText

_CONSTANTS_MAX = 1_000
"""So many rows of constants are taken without DuckDB, which is faster where they are more."""


def insert(run: Running, statement: InsertStatement) -> Written:
    """Run an INSERT."""
    table = run.rows_in(statement.target)
    fields = table.schema
    if statement.on_conflict is not OnConflict.REFUSE:
        _check_conflict(statement, require_key(table, _called(statement)))
    names = columns_of(_named(run, statement), fields) or fields.names
    statement = _with_defaults(statement, names, fields)
    rows = _constants(statement, names, fields, run)
    if rows is not None and not statement.returning and not _looks_up(statement):
        return Written(_write(table, statement, rows, names))
    found = _rows(run, statement, names, fields) if rows is None else _arrow(rows, names, fields)
    if isinstance(found, pa.RecordBatchReader):
        return Written(_stage(run, table, statement, found))
    return _Inserting(run, statement, table, fields, found).written()


def _with_defaults(
    statement: InsertStatement, names: Sequence[str], fields: pa.Schema
) -> InsertStatement:
    """Return a statement without DEFAULT."""
    if statement.values == ((),):  # DEFAULT VALUES
        statement = replace(statement, values=((ValueText(""),) * len(names),))
    elif all(part.text for row in statement.values for part in row) and not statement.sets:
        return statement
    values = tuple(in_row(row, names, fields) for row in statement.values)
    return replace(statement, values=values, sets=in_sets(statement.sets, fields))


def _called(statement: InsertStatement) -> str:
    return "INSERT OR REPLACE" if statement.on_conflict is OnConflict.REPLACE else "ON CONFLICT"


def _looks_up(statement: InsertStatement) -> bool:
    return statement.on_conflict in {OnConflict.NOTHING, OnConflict.UPDATE}


def _check_conflict(statement: InsertStatement, key: Sequence[str]) -> None:
    named = {folded(name) for name in statement.conflicting}
    if named and named != {folded(name) for name in key}:
        raise RequestError(
            f"ON CONFLICT ({', '.join(statement.conflicting)}) is not the key, ({', '.join(key)}):"
            " no other rows conflict"
        )


def _named(run: Running, statement: InsertStatement) -> Sequence[str]:
    """Return the names of the columns that the rows have; none: those of the table."""
    if not statement.is_by_name:
        return statement.columns
    return run.rows(every_row(f"({statement.query}) AS q", statement.given, 0)).column_names


# the rows


def _constants(
    statement: InsertStatement, names: Sequence[str], fields: pa.Schema, run: Running
) -> list[dict[str, object]] | None:
    """Return rows that need no DuckDB; None: it has to read them."""
    if not statement.values or len(statement.values) > _CONSTANTS_MAX:
        return None
    _check_widths(statement, names)
    kinds = [fields.field(name).type for name in names]
    try:
        return [
            {
                name: _constant(part, kind, run)
                for part, name, kind in zip(row, names, kinds, strict=False)
            }
            for row in statement.values
        ]
    except UnclearError:
        return None


def _constant(part: ValueText, kind: pa.DataType, run: Running) -> object:
    if part.constant is None:
        raise UnclearError
    return fitting(part.constant, kind, run.given)


def _check_widths(statement: InsertStatement, names: Sequence[str]) -> None:
    for number, row in enumerate(statement.values):
        if len(row) != len(names):
            raise SchemaMismatchError(
                f"row {number + 1} of the statement has {len(row)} values, for the {len(names)}"
                f" columns {', '.join(names)}"
            )


def _arrow(rows: list[dict[str, object]], names: Sequence[str], fields: pa.Schema) -> pa.Table:
    given = [fields.field(name).with_nullable(True) for name in names]
    return pa.Table.from_pylist(rows, schema=pa.schema(given))


def _rows(
    run: Running, statement: InsertStatement, names: Sequence[str], fields: pa.Schema
) -> pa.Table | pa.RecordBatchReader:
    """Return the rows as DuckDB makes them; as a stream if they are to be staged."""
    copied = _copied(run, statement, names, fields)
    if copied is not None:
        return copied
    listed = carried(names, statement.values, run.given) if statement.values else names
    refuse_cut("INSERT", listed, fields, "insert(), append() or upsert()")
    types = run.columns(fields)
    columns = tuple(types[name] for name in names)
    if statement.values:
        _check_widths(statement, names)
        listed = tuple(tuple(part.text for part in row) for row in statement.values)
        return run.values(Listed(columns, listed, statement.given), fields)
    query = from_source(statement.query, names, columns, statement.given)
    if not run.is_alone or statement.returning or _looks_up(statement):
        return run.values(query, fields)
    return _few_or_stream(run, query, fields)


def _copied(
    run: Running, statement: InsertStatement, names: Sequence[str], fields: pa.Schema
) -> pa.Table | None:
    """Return the rows of a frame that are inserted as they are: DuckDB would change nothing."""
    name = statement.copied
    if not name or folded(name) in {folded(each) for each in run.tx.tables()}:
        return None
    rows = run.frame(name)
    kinds = [fields.field(each).type for each in names]
    if rows is None or rows.schema.types != kinds:
        return None
    if statement.is_by_name and columns_of(rows.column_names, fields) != list(names):
        return None
    rows = rows.rename_columns(list(names))
    refuse_nulls(rows, fields)
    return rows if rows.nbytes < STAGED_BYTES_MIN else None


def _few_or_stream(
    run: Running, query: Values, fields: pa.Schema
) -> pa.Table | pa.RecordBatchReader:
    try:
        stream = run.batches(query.sql)
    except RequestError:
        return run.values(query, fields)  # which says of a misfit where it is
    head, nbytes = list[pa.RecordBatch](), 0
    try:
        for batch in stream:
            head.append(batch)
            nbytes += batch.nbytes
            if nbytes >= STAGED_BYTES_MIN:
                break
    except RequestError:
        return run.values(query, fields)
    first = checked(pa.Table.from_batches(head, stream.schema), query.columns, fields)
    if nbytes < STAGED_BYTES_MIN:
        return first
    rest = _checked(stream, query, fields, first.num_rows)
    return pa.RecordBatchReader.from_batches(first.schema, chain(first.to_batches(), rest))


def _checked(
    stream: pa.RecordBatchReader, query: Values, fields: pa.Schema, before: int
) -> Iterator[pa.RecordBatch]:
    for batch in stream:
        yield from checked(
            pa.Table.from_batches([batch]), query.columns, fields, before
        ).to_batches()
        before += batch.num_rows


# what becomes of them


def _stage(
    run: Running, table: TransactionTable, statement: InsertStatement, rows: pa.RecordBatchReader
) -> int:
    if not table.primary_key:
        return table.append(rows)
    if statement.on_conflict is OnConflict.REPLACE:
        return run.stage(table, "upsert", rows, "keep", keeps_last=True)
    return run.stage(table, "insert", rows)


def _write(
    table: TransactionTable, statement: InsertStatement, rows: Rows, names: Sequence[str]
) -> int:
    if not table.primary_key:
        return table.append(rows)
    if statement.on_conflict is not OnConflict.REPLACE:
        return table.insert(rows)
    is_whole = len(names) == len(table.schema.names)
    return table.upsert(rows, "refuse" if is_whole else "keep")


@dataclass(frozen=True, slots=True)
class _Inserting:
    """Rows in memory that are about to be inserted."""

    run: Running
    statement: InsertStatement
    table: TransactionTable
    fields: pa.Schema
    rows: pa.Table

    def written(self) -> Written:
        """Write them."""
        if self.statement.on_conflict is OnConflict.REFUSE:
            return self._inserted(self.rows)
        for name in self.table.primary_key:
            if name not in self.names:
                raise SchemaMismatchError(f"the statement gives no value of {name!r}, of the key")
        refuse_nulls(self.rows, self.fields)
        if self.statement.on_conflict is not OnConflict.NOTHING:
            self.run.check_returned(self.statement, self.fields)
        if self.statement.on_conflict is OnConflict.REPLACE:
            count = _write(self.table, self.statement, self.rows, self.names)
            return self._by_key(count, self.rows)  # each key counts once
        keys = keys_of(self.rows, self.table.primary_key, self.fields)
        existing = self.table.get_many(keys)
        if self.statement.on_conflict is OnConflict.NOTHING:
            first = first_of_each(keys)
            new = first.take(without(keys.take(first), existing))
            return self._inserted(self.rows.take(new))
        return self._updated(keys, existing)

    @property
    def names(self) -> list[str]:
        return self.rows.column_names

    def _inserted(self, rows: pa.Table) -> Written:
        returned = self.run.returned(self.statement, lambda: completed(rows, self.fields))
        count = _write(self.table, self.statement, rows, self.names) if rows.num_rows else 0
        return Written(count, returned)

    def _updated(self, keys: pa.Table, existing: pa.Table) -> Written:
        twice = first_twice(keys)
        if twice is not None:
            raise DuplicateKeyError(self.table.name, one(twice), is_repeated=True)
        new, old = self.rows.take(without(keys, existing)), self.rows.take(among(keys, existing))
        changed = self._set(old, existing) if old.num_rows else None
        count = self.table.insert(new) if new.num_rows else 0
        if changed is not None and changed.num_rows:
            count += self.table.update_many(changed)
        key = list(self.table.primary_key)
        both = [keys_of(each, key, self.fields) for each in (new, changed) if each is not None]
        return self._by_key(count, pa.concat_tables(both))

    def _set(self, new: pa.Table, existing: pa.Table) -> pa.Table:
        """Return the keys of the rows that exist, and what SET says of their columns."""
        key = list(self.table.primary_key)
        names = columns_of([each.column for each in self.statement.sets], self.fields)
        new = completed(new, self.fields)  # `excluded` has defaults of columns that are left out
        plain = None if self.statement.where else self._excluded(names)
        if plain is not None and not set(names).intersection(key):
            chosen = new.select([*key, *plain])
            return chosen.rename_columns([*key, *names])
        refuse_cut("ON CONFLICT", [*key, *names], self.fields, "upsert()")
        types, name = self.run.columns(self.fields), self.statement.target.name
        query = Values(
            tuple(types[each] for each in (*key, *names)),
            (
                *(f"{quoted(name)}.{quoted(each)}" for each in key),
                *(each.value.text for each in self.statement.sets),
            ),
            behind_conflict(key, self.fields.names, name, self.statement.where),
            self.statement.given,
        )
        rows = {ROWS: new, EXISTING: existing}
        return assigned(self.run, "ON CONFLICT", query, self.fields, key, rows)

    def _excluded(self, names: Sequence[str]) -> list[str] | None:
        """Return the columns of the new row that SET assigns as they are; None: other values."""
        found = list[str]()
        for name, each in zip(names, self.statement.sets, strict=True):
            word = folded(each.value.excluded)
            meant = [known for known in self.fields.names if folded(known) == word]
            if not meant or self.fields.field(meant[0]).type != self.fields.field(name).type:
                return None
            found += meant
        return found if len(set(found)) == len(found) else None

    # what is returned

    def _by_key(self, count: int, rows: pa.Table) -> Written:
        def found() -> pa.Table:
            return self.table.get_many(keys_of(rows, self.table.primary_key, self.fields))

        return Written(count, self.run.returned(self.statement, found))


def assigned(
    run: Running,
    statement: str,
    query: Values,
    fields: pa.Schema,
    key: Sequence[str],
    rows: dict[str, pa.Table],
) -> pa.Table:
    """Return the keys and the new values of columns, which a query gives in this order.

    Raises:
        RequestError: One of the values is another value of a column of the key.
    """
    count = len(key)
    names = [column.name for column in query.columns]
    found = run.rows_of(query, fields, rows)
    old, new = found.select(range(count)), found.select(range(count, len(names)))
    old, new = old.rename_columns(names[:count]), new.rename_columns(names[count:])
    refuse_nulls(new, fields)
    refuse_changed(statement, old, new, [name for name in key if name in new.column_names])
    old, new = fitted(old, fields), fitted(new, fields)
    for name in new.column_names:
        if name not in key:
            old = old.append_column(new.field(name), new.column(name))
    return old
