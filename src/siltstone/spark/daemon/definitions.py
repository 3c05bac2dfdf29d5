"""Definitions: the statements of SQL that make, change and drop tables, each one commit.

What a statement means is decided here; the catalog in Spark carries it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.api.store import Store
from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.spark.context import schemas
from siltstone.spark.context.application import APPLICATION, of_process, tell_own
from siltstone.spark.context.defaults import default_of, given_default
from siltstone.spark.daemon import messages
from siltstone.spark.daemon.calls import metadata
from siltstone.spark.writes.guards import require_same

Definition: TypeAlias = (
    messages.CreateTable
    | messages.AlterTable
    | messages.RenameTable
    | messages.DropTable
    | messages.DeleteMatching
)


def run(db: Store, asked: Definition, store: str) -> bool:
    """Run a statement as one commit; return whether it found what it names.

    `store`: what an application calls it (`application.store_of`).

    Raises:
        TableNotFoundError, RequestError, SchemaMismatchError: As the statements below; or the name
            is one of metadata.
    """
    metadata.refuse_change(db, asked.table)
    if isinstance(asked, messages.RenameTable):
        metadata.refuse_change(db, asked.to)
    tried = list[Transaction]()

    def work(tx: Transaction) -> bool | None:
        tried.append(tx)
        return _WORK[type(asked)](tx, asked)

    found = db.run(work)
    application = of_process({APPLICATION: asked.application})
    if application is not None and tried[-1].seq > tried[-1].read_seq:
        tell_own(application, store, tried[-1].seq, _emptied(asked))
    return found is not False


def _emptied(asked: Definition) -> list[tuple[int, str]]:
    if isinstance(asked, messages.DeleteMatching) and asked.filter is None:
        return [(asked.id, asked.table)]
    return []


def _create(tx: Transaction, asked: messages.CreateTable) -> None:
    """Make an empty table, or replace one by it.

    The columns of its key, and those that say so, may not be null.

    Raises:
        RequestError: There is such a table, or its name or key is invalid.
        SchemaMismatchError: No column of a table has the type of one.
    """
    given = StructType.fromJson(json.loads(asked.columns))
    fields = _columns(given, asked.table)
    not_null = {field.name for field in given.fields if not field.nullable} | {*asked.primary_key}
    schema = pa.schema([field.with_nullable(field.name not in not_null) for field in fields])
    if asked.replaces and asked.table in tx.tables():
        tx.drop_table(asked.table)
    found = {each.name: given_default(of, each) for each, of in zip(schema, given, strict=True)}
    defaults = {name: value for name, value in found.items() if value is not None}
    tx.create_table(asked.table, schema, asked.primary_key, defaults=defaults)


def _alter(tx: Transaction, asked: messages.AlterTable) -> None:
    """Change columns of a table.

    Raises:
        TableNotFoundError: There is no such table.
        RequestError, SchemaMismatchError: A column is not there, or cannot be changed so.
    """
    table = tx[asked.table]
    for change in asked.changes:
        _CHANGES[change.kind](table, change.name, change.to)


def _add_column(table: TransactionTable, name: str, to: str) -> None:
    field, default = _column(to, table.name)
    table.add_column(name, field.type, default)
    if not field.nullable:
        table.alter_column(name, nullable=False)


def _set_type(table: TransactionTable, name: str, to: str) -> None:
    field, _ = _column(to, table.name)
    table.alter_column(name, type=field.type)


def _set_default(table: TransactionTable, name: str, to: str) -> None:
    default = None if not to else default_of(to, table.schema.field(name))
    table.alter_column(name, default=default)


_CHANGES: dict[str, Callable[[TransactionTable, str, str], object]] = {
    "add": _add_column,
    "rename": lambda table, name, to: table.rename_column(name, to),
    "drop": lambda table, name, _: table.drop_column(name),
    "type": _set_type,
    "nullable": lambda table, name, to: table.alter_column(name, nullable=to == "true"),
    "default": _set_default,
}


def _column(to: str, table: str) -> tuple[pa.Field, object]:
    """Return a column of Spark, and its default; None: it has none."""
    given = StructType.fromJson(json.loads(to))
    (field,) = _columns(given, table)
    return field.with_nullable(given.fields[0].nullable), default_of(to, field)


def _columns(given: StructType, table: str) -> list[pa.Field]:
    fields = schemas.of_new_columns(given, table)
    pairs = zip(fields, given.fields, strict=True)
    return [f.with_type(schemas.with_not_null(f.type, of.dataType)) for f, of in pairs]


def _drop(tx: Transaction, asked: messages.DropTable) -> bool:
    """Drop a table; return whether there was one."""
    if asked.table not in tx.tables():
        return False
    tx.drop_table(asked.table)
    return True


def _delete(tx: Transaction, asked: messages.DeleteMatching) -> None:
    """Delete the rows that match a filter, or all, at the newest seq.

    Raises:
        RequestError: The statement was made for another table of that name.
    """
    table = tx[asked.table]
    require_same(asked.table, asked.id, table.id)
    if asked.filter is None:
        table.truncate()
    else:
        table.delete_where(asked.filter)


_WORK: dict[type, Callable[[Transaction, Any], bool | None]] = {
    messages.CreateTable: _create,
    messages.AlterTable: _alter,
    messages.RenameTable: lambda tx, asked: tx.rename_table(asked.table, asked.to),
    messages.DropTable: _drop,
    messages.DeleteMatching: _delete,
}
