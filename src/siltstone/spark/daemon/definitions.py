"""Definitions: the statements of SQL that make, change and drop tables, each one commit.

What a statement means is decided here; the catalog in Spark carries it.
"""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.spark import schemas
from siltstone.spark.daemon.calls import metadata
from siltstone.spark.daemon.messages import (
    AlterTable,
    CreateTable,
    DeleteMatching,
    DropTable,
    RenameTable,
)
from siltstone.spark.daemon.writing import require_same


def create(db: Store, asked: CreateTable) -> None:
    """Make an empty table, or replace one by it.

    The columns of its key, and those that say so, may not be null.

    Raises:
        RequestError: There is such a table, or its name or key is invalid.
        SchemaMismatchError: No column of a table has the type of one.
    """
    given = StructType.fromJson(json.loads(asked.columns))
    fields = schemas.of_new_columns(given, asked.table)
    not_null = {field.name for field in given.fields if not field.nullable} | {*asked.primary_key}
    schema = pa.schema([field.with_nullable(field.name not in not_null) for field in fields])

    def work(tx: Transaction) -> None:
        if asked.replaces and asked.table in tx.tables():
            tx.drop_table(asked.table)
        tx.create_table(asked.table, schema, asked.primary_key)

    db.run(work)


def alter(db: Store, asked: AlterTable) -> None:
    """Change columns of a table, all in one commit.

    Raises:
        TableNotFoundError: There is no such table.
        RequestError, SchemaMismatchError: A column is not there, or cannot be changed so.
    """

    def work(tx: Transaction) -> None:
        table = tx[asked.table]
        for change in asked.changes:
            if change.kind == "add":
                given = StructType.fromJson(json.loads(change.to))
                (field,) = schemas.of_new_columns(given, asked.table)
                table.add_column(change.name, field.type)
            elif change.kind == "rename":
                table.rename_column(change.name, change.to)
            else:
                table.drop_column(change.name)

    db.run(work)


def rename(db: Store, asked: RenameTable) -> None:
    """Give a table another name.

    Raises:
        TableNotFoundError, RequestError: There is none, or another (or metadata) has the name.
    """
    metadata.refuse_change(db, asked.to)
    db.rename_table(asked.table, asked.to)


def drop(db: Store, asked: DropTable) -> bool:
    """Drop a table; return whether there was one."""

    def work(tx: Transaction) -> bool:
        if asked.table not in tx.tables():
            return False
        tx.drop_table(asked.table)
        return True

    return db.run(work)


def delete(db: Store, asked: DeleteMatching) -> None:
    """Delete the rows that match a filter, or all, in one commit at the newest seq.

    Raises:
        RequestError: The statement was made for another table of that name.
    """

    def work(tx: Transaction) -> None:
        table = tx[asked.table]
        require_same(asked.table, asked.id, table.id)
        if asked.filter is None:
            table.truncate()
        else:
            table.delete_where(asked.filter)

    db.run(work)
