"""Columns: the operations that change the columns of one table, or what is noted of them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from siltstone.engine.filter.filters import Expression, compile_value
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.formats.schema import column_named
from siltstone.lance_namespace.rows.statements import collected, require_column, table_in
from siltstone.lance_namespace.rows.version_numbers import version_now
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.schema_json import type_named
from siltstone.lance_versions.errors import invalid, unsupported
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.process import deadline

Altered = tuple[bodies.VersionAnswer, int | None]


def alter_table_add_columns(scope: Scope, asked: bodies.AddColumnsRequest) -> Altered:
    """Add columns, each the value of a SQL expression over the old ones."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> None:
        table, most = table_in(tx, name), scope.limits.columns_max
        if len(table.schema) + len(asked.new_columns) > most:
            raise invalid(f"a table has at most {most} columns")
        added = [(entry.name, _add(table, entry)) for entry in asked.new_columns]
        values = [(column, value) for column, value in added if not value.is_null]
        rows = collected(table.scan(), scope.limits) if values else None
        if rows is None or not rows.num_rows:
            return
        for column, value in values:
            at = rows.schema.get_field_index(column)
            field = rows.schema.field(at)
            rows = rows.set_column(at, field, value.evaluate(rows, field.type))
        (table.upsert if table.primary_key else table.overwrite)(rows)

    return _altered(scope, name, work)


def _add(table: LocalTransactionTable, entry: bodies.NewColumn) -> Expression:
    """Add a column without its values; return what these are."""
    if entry.expression is None:
        raise invalid(f"column {entry.name[:128]!r} has an expression: its value over the old ones")
    deadline.check()  # to add a column to a plain table takes Lance a tenth of a second
    value = compile_value(entry.expression, table.schema)
    table.add_column(entry.name, value.type)
    return value


def alter_table_alter_columns(scope: Scope, asked: bodies.AlterColumnsRequest) -> Altered:
    """Rename columns, give them other types, or let them be null, or not."""
    name = ids.table_of(asked)
    kinds = [_type_of(entry) for entry in asked.alterations]

    def work(tx: EngineTransaction) -> None:
        for entry, kind in zip(asked.alterations, kinds, strict=True):
            deadline.check()
            require_column(tx, name, entry.path)
            table = table_in(tx, name)
            if kind is not None:
                table.alter_column(entry.path, type=kind)
            if entry.nullable is not None:
                table.alter_column(entry.path, nullable=entry.nullable)
            if entry.rename is not None:
                table.rename_column(entry.path, entry.rename)

    return _altered(scope, name, work)


def _type_of(entry: bodies.ColumnAlteration) -> pa.DataType | None:
    """Return the type that a column gets, None if it keeps its own; refuse what says nothing.

    Raises:
        Refused: Neither name nor type nor nulls are given.
        RequestError: There is no such type.
    """
    if entry.data_type:
        return type_named(entry.data_type)
    if entry.rename is None and entry.nullable is None:
        shown = entry.path[:128]
        raise invalid(
            f"rename is the new name of column {shown!r}, data_type its type, or nullable is true"
            " or false"
        )
    return None


def alter_table_drop_columns(scope: Scope, asked: bodies.DropColumnsRequest) -> Altered:
    """Drop columns."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> None:
        for column in asked.columns:
            deadline.check()
            require_column(tx, name, column)
            table_in(tx, name).drop_column(column)

    return _altered(scope, name, work)


def update_table_schema_metadata(
    scope: Scope, asked: bodies.SchemaMetadataRequest
) -> tuple[bodies.SchemaMetadataAnswer, int | None]:
    """Replace the metadata of a table."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> None:
        table_in(tx, name).note(asked.metadata)

    _, commit = scope.write(work, None)
    return commit.told(bodies.SchemaMetadataAnswer(dict(asked.metadata)))


def update_field_metadata(
    scope: Scope, asked: bodies.FieldMetadataRequest
) -> tuple[bodies.FieldMetadataAnswer, int | None]:
    """Change the metadata of columns."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> dict[str, dict[str, str]]:
        for update in asked.updates:
            _refuse_inner(tx, name, update.path)
            require_column(tx, name, update.path)
            table = table_in(tx, name)
            table.note_column(update.path, update.metadata, replaces=update.replace is True)
        schema = tx.named(name).schemas[-1].schema
        return {each.path: dict(column_named(schema, each.path).metadata) for each in asked.updates}

    found, commit = scope.write(work, dict[str, dict[str, str]]())
    version = version_now(scope.db.core, name, commit.seq)
    return bodies.FieldMetadataAnswer(version, found), commit.seq


def _refuse_inner(tx: EngineTransaction, table: str, path: str) -> None:
    """Refuse the path of a field within a column.

    Raises:
        Refused: It is one.
    """
    column, dot, _ = path.partition(".")
    if dot and column in table_in(tx, table).schema.names:
        raise unsupported(f"{path!r:.200} is within column {column!r}: a whole column has metadata")


def _altered(scope: Scope, name: str, work: Callable[[EngineTransaction], None]) -> Altered:
    _, commit = scope.write(work, None)
    return bodies.VersionAnswer(version_now(scope.db.core, name, commit.seq)), commit.seq
