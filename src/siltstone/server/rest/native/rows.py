"""Rows: the operations of `transaction/apply`.

Each works on a `Transaction`: many of them are committed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from siltstone.api.tables import TransactionTable
from siltstone.choices import Missing
from siltstone.local.transaction import LocalTransaction
from siltstone.server.rest.native import row_operations
from siltstone.server.rest.row_input import json_key, json_rows, json_values


def is_upsert(asked: row_operations.ApplyRequest) -> bool:
    """Say whether `apply` asks for one upsert alone: a table does that without a transaction."""
    first = asked.ops[0]
    return (
        len(asked.ops) == 1
        and type(first) is row_operations.UpsertRows
        and bool(first.rows)
        and asked.isolation != "serializable"
        and asked.durability != "shipped"
    )


def missing_of(operation: row_operations.UpsertRows) -> Missing:
    """Return what becomes of the columns that rows do not name."""
    return operation.missing or "refuse"


def apply(tx: LocalTransaction, operation: row_operations.RowOperation) -> int | None:
    """Do one operation; return how many rows it was about, None if they were not counted."""
    return _OPERATIONS[type(operation)](tx[operation.table], operation)


def _upsert(table: TransactionTable, operation: row_operations.UpsertRows) -> int:
    return table.upsert(json_rows(operation.rows, table.schema), missing_of(operation))


def _add(verb: str, table: TransactionTable, operation: row_operations.InsertRows) -> int:
    return getattr(table, verb)(json_rows(operation.rows, table.schema))


def _update(table: TransactionTable, operation: row_operations.UpdateRow) -> int:
    key = json_key(operation.key, table.schema, table.primary_key)
    return table.update(key, **json_values(operation.set, table.schema))


def _update_where(table: TransactionTable, operation: row_operations.UpdateWhere) -> int:
    given = operation.values
    values = None if given is None else json_values(given, table.schema)
    return table.update_where(operation.filter, values, operation.sql)


def _delete(table: TransactionTable, operation: row_operations.DeleteRows) -> int | None:
    keys = [json_key(key, table.schema, table.primary_key) for key in operation.keys]
    is_text = len(keys) == 1 and isinstance(keys[0], str)  # else a list in it would be keys
    return table.delete(keys[0] if is_text else keys)


def _delete_where(table: TransactionTable, operation: row_operations.DeleteWhere) -> int:
    return table.delete_where(operation.filter)


def _truncate(table: TransactionTable, _: row_operations.TruncateTable) -> int:
    rows = table.count()
    table.truncate()
    return rows


_OPERATIONS: dict[type, Callable[[TransactionTable, Any], int | None]] = {
    row_operations.UpsertRows: _upsert,
    row_operations.InsertRows: partial(_add, "insert"),
    row_operations.AppendRows: partial(_add, "append"),
    row_operations.OverwriteRows: partial(_add, "overwrite"),
    row_operations.UpdateRow: _update,
    row_operations.UpdateMany: partial(_add, "update_many"),
    row_operations.UpdateWhere: _update_where,
    row_operations.DeleteRows: _delete,
    row_operations.DeleteWhere: _delete_where,
    row_operations.TruncateTable: _truncate,
}
