"""Statements: what the operations on rows do with a transaction: insert, assign, restore.

Each works on a transaction, so that it is its own commit or a part of an open transaction,
without knowing which.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from siltstone.engine.filter.filters import compile_value
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_versions.errors import invalid, no_column
from siltstone.local.readable import LocalReadable
from siltstone.local.transaction_table import LocalTransactionTable


def table_in(tx: EngineTransaction, name: str) -> LocalTransactionTable:
    """Return the table of that name in a transaction.

    Raises:
        TableNotFoundError: No table has that name.
    """
    tx.require_open()
    return LocalTransactionTable(tx, tx.named(name).id)


def require_column(tx: EngineTransaction, table: str, column: str) -> None:
    """Raise Refused unless a table has a column of that name."""
    known = table_in(tx, table).schema.names
    if column not in known:
        raise no_column(table, column, known)


def insert(tx: EngineTransaction, name: str, rows: pa.Table, *, overwrites: bool) -> int:
    """Add rows, or replace all that there are."""
    table = table_in(tx, name)
    if not table.primary_key:
        return table.overwrite(rows) if overwrites else table.append(rows)
    if overwrites:
        table.truncate()
    return table.insert(rows)


def assign(
    tx: EngineTransaction,
    name: str,
    updates: Sequence[Sequence[str]],
    filter: str | None,  # noqa: A002 - the contract's name
    limits: RowLimits,
) -> int:
    """Set columns to SQL expressions in the rows that match; return how many.

    Raises:
        Refused: No such column, a column of the key, or more rows than one statement may hold.
    """
    table = table_in(tx, name)
    schema, key = table.schema, table.primary_key
    for column, _ in updates:
        if column not in schema.names:
            raise no_column(name, column, schema.names)
        if column in key:
            raise invalid(f"{column!r} is of the primary key; delete the row and insert another")
    made = {column: compile_value(text, schema) for column, text in updates}
    rows = collected(table.scan(None, filter), limits)
    if not rows.num_rows:
        return 0
    changed = rows
    for column, expression in made.items():
        at = schema.get_field_index(column)
        changed = changed.set_column(
            at, schema.field(at), expression.evaluate(rows, schema.field(at).type)
        )
    if key:
        return table.upsert(changed)
    if filter is None:
        return table.overwrite(changed)
    table.delete_where(filter)
    return table.append(changed)


def restore(tx: EngineTransaction, name: str, past: LocalReadable, limits: RowLimits) -> int:
    """Replace all rows of a table by those that it had.

    Raises:
        Refused: They are more than a transaction may hold, of a keyed table.
        SchemaMismatchError: It has not all columns any more.
    """
    table = table_in(tx, name)
    rows = past.scan()
    if not table.primary_key:
        return table.overwrite(rows)
    found = collected(rows, limits)
    table.truncate()
    return table.upsert(found, "null")  # columns that came later have no value of that time


def collected(reader: pa.RecordBatchReader, limits: RowLimits) -> pa.Table:
    """Return rows that are held at once.

    Raises:
        Refused: They are more than one statement may hold.
    """
    batches: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in reader:
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows > limits.collected_rows_max or nbytes > limits.collected_bytes_max:
            raise invalid(
                f"the statement holds more than {limits.collected_rows_max} rows or"
                f" {limits.collected_bytes_max} bytes; do it in parts"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
