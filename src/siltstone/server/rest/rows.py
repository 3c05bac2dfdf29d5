"""Rows: the statements that write rows: insert, update, and the operations of `apply`.

Each works on a `Transaction`, so that it is a commit of its own, a part of an open transaction, or
one of many operations that are committed at once, without knowing which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from siltstone.api.tables import SnapshotTable, TransactionTable
from siltstone.engine.filter.filters import compile_value
from siltstone.local.transaction import LocalTransaction
from siltstone.server.rest import row_operations
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import invalid, no_column
from siltstone.server.rest.row_input import json_key, json_rows, json_values


def insert(tx: LocalTransaction, name: str, rows: pa.Table, *, overwrites: bool) -> int:
    """Add rows, or replace all that there are."""
    table = tx[name]
    if not table.primary_key:
        return table.overwrite(rows) if overwrites else table.append(rows)
    if overwrites:
        table.truncate()
    return table.insert(rows)


def assign(
    tx: LocalTransaction,
    name: str,
    updates: Sequence[tuple[str, str]],
    filter: str | None,  # noqa: A002 - the contract's name
    limits: Limits,
) -> int:
    """Set columns to SQL expressions in the rows that match; return how many.

    Raises:
        Refused: No such column, a column of the key, or more rows than one statement may hold.
    """
    table = tx[name]
    schema, key = table.schema, table.primary_key
    for column, _ in updates:
        if column not in schema.names:
            raise no_column(name, column)
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


def restore(tx: LocalTransaction, past: SnapshotTable, limits: Limits) -> int:
    """Replace all rows of a table by those that it had.

    Raises:
        Refused: They are more than a transaction may hold, of a keyed table.
        SchemaMismatchError: It has not all columns any more.
    """
    table = tx[past.name]
    rows = past.scan()
    if not table.primary_key:
        return table.overwrite(rows)
    found = collected(rows, limits)
    table.truncate()
    return table.upsert(found)


def collected(reader: pa.RecordBatchReader, limits: Limits) -> pa.Table:
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


# operations of `transaction/apply`


def is_upsert(asked: row_operations.ApplyRequest) -> bool:
    """Say whether `apply` asks for one upsert alone: a table does that without a transaction."""
    first = asked.ops[0]
    return (
        len(asked.ops) == 1
        and type(first) is row_operations.UpsertRows
        and bool(first.rows)
        and asked.isolation != "serializable"
    )


def apply(tx: LocalTransaction, operation: row_operations.RowOperation) -> int:
    """Do one operation; return how many rows it was about."""
    return _OPERATIONS[type(operation)](tx[operation.table], operation)


def _add(verb: str, table: TransactionTable, operation: row_operations.UpsertRows) -> int:
    return getattr(table, verb)(json_rows(operation.rows, table.schema))


def _update(table: TransactionTable, operation: row_operations.UpdateRow) -> int:
    key = json_key(operation.key, table.schema, table.primary_key)
    return table.update(key, **json_values(operation.set, table.schema))


def _delete(table: TransactionTable, operation: row_operations.DeleteRows) -> int:
    return table.delete([json_key(k, table.schema, table.primary_key) for k in operation.keys])


def _delete_where(table: TransactionTable, operation: row_operations.DeleteWhere) -> int:
    return table.delete_where(operation.filter)


def _truncate(table: TransactionTable, _: row_operations.TruncateTable) -> int:
    rows = table.count()
    table.truncate()
    return rows


_OPERATIONS: dict[type, Callable[[TransactionTable, Any], int]] = {
    row_operations.UpsertRows: partial(_add, "upsert"),
    row_operations.InsertRows: partial(_add, "insert"),
    row_operations.AppendRows: partial(_add, "append"),
    row_operations.OverwriteRows: partial(_add, "overwrite"),
    row_operations.UpdateRow: _update,
    row_operations.DeleteRows: _delete,
    row_operations.DeleteWhere: _delete_where,
    row_operations.TruncateTable: _truncate,
}
