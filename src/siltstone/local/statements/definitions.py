"""Definitions: CREATE, DROP and ALTER TABLE in a transaction, and indexes of a store."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from siltstone.api.store import Store
from siltstone.api.tables import TransactionTable
from siltstone.errors import RequestError, TableExistsError, TableNotFoundError, no_such
from siltstone.formats.schema import encode_type
from siltstone.formats.types.layouts import plain_schema
from siltstone.local.statements.defaults import values_of
from siltstone.local.statements.exact import has_zoned_time, refuse_cut, refuse_lost
from siltstone.local.statements.names import column_of, columns_of, meant_by, name_among
from siltstone.local.statements.running import Running, Written
from siltstone.query.sql.names import reads_of
from siltstone.query.sql.shielded import folded, quoted
from siltstone.query.sql.writes.queries import every_row, nulls_of
from siltstone.query.sql.writes.statements import (
    Alteration,
    AlterStatement,
    ColumnDefinition,
    CreateIndexStatement,
    CreateStatement,
    DropIndexStatement,
    DropStatement,
    IfExists,
    Target,
)

_NOTHING = Written(0)
_CREATE = "CREATE TABLE"


def create_table(run: Running, statement: CreateStatement) -> Written:
    """Run a CREATE TABLE.

    Raises:
        TableExistsError: A table has the name already.
    """
    name = meant_by(statement.target)
    found = name_among(statement.target, run.tx.tables())
    if found is not None and statement.if_exists is IfExists.KEEP:
        return _NOTHING
    if found is not None and statement.if_exists is IfExists.REFUSE:
        raise TableExistsError(found)
    rows = _rows(run, statement) if statement.query else None
    fields = _columns(run, statement) if rows is None else rows.schema
    if found is not None:
        run.tx.drop_table(found)
    key = columns_of(statement.primary_key, fields)
    given = {each.name: each.default for each in statement.columns if each.default}
    made = run.tx.create_table(found or name, fields, key, defaults=values_of(run, given, fields))
    if rows is None or not statement.with_rows:
        return _NOTHING
    return Written(made.append(rows))


def _rows(run: Running, statement: CreateStatement) -> pa.RecordBatchReader:
    names = f"({', '.join(map(quoted, statement.names))})" if statement.names else ""
    limit = None if statement.with_rows else 0
    query = every_row(f"({statement.query}) AS q{names}", limit=limit)
    found = run.batches(query)
    refuse_lost(_CREATE, found.schema)
    if any(map(has_zoned_time, found.schema.types)):
        _refuse_cut(run, query)
    fields = pa.schema([field.remove_metadata() for field in plain_schema(found.schema)])
    return pa.RecordBatchReader.from_batches(fields, (each.cast(fields) for each in found))


def _refuse_cut(run: Running, query: str) -> None:
    """Refuse a query that may read times of which DuckDB cuts nanoseconds.

    Raises:
        RequestError: A table or a frame that it reads has some.
    """
    reads, names = reads_of(query), run.tx.tables()
    given = [run.tx[name].schema for name in reads.mentioned(names)]
    given += [rows.schema for name in reads.others(names) if (rows := run.frame(name)) is not None]
    instead = "create_table() and append(), or CREATE TABLE with columns, and INSERT"
    for fields in given:
        zoned = [field.name for field in fields if has_zoned_time(field.type)]
        refuse_cut(_CREATE, zoned, fields, instead)


def _columns(run: Running, statement: CreateStatement) -> pa.Schema:
    """Return the columns that are defined, with the types that DuckDB makes of their names."""
    seen = set[str]()
    for column in statement.columns:
        if folded(column.name) in seen:
            raise RequestError(f"CREATE TABLE names column {column.name!r} twice")
        seen.add(folded(column.name))
    types = types_of(run, [column.type for column in statement.columns])
    key = {folded(name) for name in statement.primary_key}
    return pa.schema([
        pa.field(each.name, kind, each.may_be_null and folded(each.name) not in key)
        for each, kind in zip(statement.columns, types, strict=True)
    ])  # fmt: skip


def types_of(run: Running, types: Sequence[str]) -> list[pa.DataType]:
    """Return the types of Arrow that DuckDB gives for its own."""
    schema = run.rows(nulls_of(types)).schema
    refuse_lost("the table", schema)
    found = plain_schema(schema).types
    pairs = zip(types, found, strict=True)
    return [pa.uuid() if name.upper() == "UUID" else kind for name, kind in pairs]


def drop_table(run: Running, statement: DropStatement) -> Written:
    """Run a DROP TABLE."""
    if not statement.may_lack or _is_there(run, statement.target):
        run.tx.drop_table(run.name(statement.target))
    return _NOTHING


def _is_there(run: Running, target: Target) -> bool:
    return name_among(target, run.tx.tables()) is not None


def alter_table(run: Running, statement: AlterStatement) -> Written:
    """Run an ALTER TABLE."""
    if not statement.may_lack or _is_there(run, statement.target):
        _alter(run, statement)
    return _NOTHING


def _alter(run: Running, statement: AlterStatement) -> None:
    table = run.table(statement.target)
    if statement.alteration is Alteration.RENAME_TABLE:
        namespace, dot, _ = table.name.rpartition(".")
        run.tx.rename_table(table.name, f"{namespace}{dot}{statement.name}")
    elif statement.alteration is Alteration.RENAME_COLUMN:
        table.rename_column(column_of(statement.name, table.schema), statement.new)
    elif statement.alteration is Alteration.DROP_COLUMN:
        if not statement.is_lenient or _has(table.schema, statement.name):
            table.drop_column(column_of(statement.name, table.schema))
    elif statement.column is None:
        _alter_column(run, table, statement)
    elif not statement.is_lenient or not _has(table.schema, statement.name):
        _add_column(run, table, statement.column)


def _add_column(run: Running, table: TransactionTable, column: ColumnDefinition) -> None:
    (kind,) = types_of(run, [column.type])
    given = {column.name: column.default} if column.default else {}
    default = values_of(run, given, pa.schema([(column.name, kind)])).get(column.name)
    if not column.may_be_null and default is None:
        raise RequestError(
            "a column of NOT NULL that is added needs a DEFAULT, for rows that exist"
        )
    named = kind if column.may_be_null else f"{encode_type(kind)} not null"
    table.add_column(column.name, named, default)


def _alter_column(run: Running, table: TransactionTable, statement: AlterStatement) -> None:
    fields = table.schema
    name = column_of(statement.name, fields)
    if statement.alteration is Alteration.SET_DEFAULT:
        default = values_of(run, {name: statement.new}, fields)[name]
        table.alter_column(name, default=default)
    elif statement.alteration is Alteration.DROP_DEFAULT:
        table.alter_column(name, default=None)
    elif statement.alteration is Alteration.SET_TYPE:
        (kind,) = types_of(run, [statement.new])
        table.alter_column(name, type=kind)
    else:
        table.alter_column(name, nullable=statement.alteration is Alteration.DROP_NOT_NULL)


def _has(fields: pa.Schema, name: str) -> bool:
    return folded(name) in {folded(each) for each in fields.names}


# indexes, which are no part of a transaction


def change_index(db: Store, statement: object) -> Written | None:
    """Create or drop an index; return None if the statement is about something else."""
    if isinstance(statement, CreateIndexStatement):
        _create_index(db, statement)
    elif isinstance(statement, DropIndexStatement):
        _drop_index(db, statement)
    else:
        return None
    return _NOTHING


def _create_index(db: Store, statement: CreateIndexStatement) -> None:
    name = name_among(statement.target, db.tables())
    if name is None:
        raise TableNotFoundError(".".join(statement.target.parts), db.tables())
    table = db[name]
    column = column_of(statement.column, table.schema)
    if statement.may_exist and any(each.name == statement.name for each in table.indexes()):
        return
    table.create_index(
        column, "bitmap" if statement.kind == "bitmap" else "btree", name=statement.name
    )


def _drop_index(db: Store, statement: DropIndexStatement) -> None:
    having = [t for t in db.tables() if any(i.name == statement.name for i in db[t].indexes())]
    if not having and statement.may_lack:
        return
    if not having:
        known = [index.name for t in db.tables() for index in db[t].indexes()]
        raise RequestError(no_such("index", statement.name, known))
    if len(having) > 1:
        raise RequestError(
            f"the tables {', '.join(having)} each have an index {statement.name!r}: use"
            " drop_index() of the one"
        )
    db[having[0]].drop_index(statement.name)
