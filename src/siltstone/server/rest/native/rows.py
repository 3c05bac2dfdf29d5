"""Rows: the body of `transaction/apply`, a list of what is done with rows of tables.

    {"ops": [{"op": "upsert", "table": "t", "rows": [...]}, ...], "isolation": "snapshot"}

The word in `op` decides which members an operation has; any other one is refused. Each works on a
`Transaction`: many of them are committed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from siltstone.api.tables import TransactionTable
from siltstone.choices import Missing
from siltstone.lance_namespace.specification.members import RequestPart
from siltstone.local.transaction import LocalTransaction
from siltstone.server.rest.row_input import json_key, json_rows, json_values


class RowOperation(RequestPart, tag_field="op", kw_only=True):
    """One operation of `apply`; each has the members that it reads, and no others."""

    table: str


class UpsertRows(RowOperation, tag="upsert"):
    """Each row names all columns, or `missing` says what becomes of the others."""

    rows: list[dict[str, Any]]
    missing: Missing | None = None


class InsertRows(RowOperation, tag="insert"):
    rows: list[dict[str, Any]]


class AppendRows(RowOperation, tag="append"):
    rows: list[dict[str, Any]]


class OverwriteRows(RowOperation, tag="overwrite"):
    rows: list[dict[str, Any]]


class UpdateRow(RowOperation, tag="update"):
    key: Any
    set: Annotated[dict[str, Any], Meta(min_length=1)]


class UpdateMany(RowOperation, tag="update_many"):
    """Each row names its key and some columns; keys that no row has are left out."""

    rows: list[dict[str, Any]]


class UpdateWhere(RowOperation, tag="update_where"):
    """Values, or SQL expressions over the old row, by column; or both."""

    filter: str
    values: dict[str, Any] | None = None
    sql: dict[str, str] | None = None


class DeleteRows(RowOperation, tag="delete"):
    keys: list[Any]


class DeleteWhere(RowOperation, tag="delete_where"):
    filter: str


class TruncateTable(RowOperation, tag="truncate"):
    """All rows of the table."""


class ApplyRequest(RequestPart):
    ops: Annotated[
        list[
            UpsertRows
            | InsertRows
            | AppendRows
            | OverwriteRows
            | UpdateRow
            | UpdateMany
            | UpdateWhere
            | DeleteRows
            | DeleteWhere
            | TruncateTable
        ],
        Meta(min_length=1),
    ]
    isolation: Literal["snapshot", "serializable"] | None = None
    durability: Literal["sync", "shipped"] | None = None


def is_upsert(asked: ApplyRequest) -> bool:
    """Say whether `apply` asks for one upsert alone: a table does that without a transaction."""
    first = asked.ops[0]
    return (
        len(asked.ops) == 1
        and type(first) is UpsertRows
        and bool(first.rows)
        and asked.isolation != "serializable"
        and asked.durability != "shipped"
    )


def missing_of(operation: UpsertRows) -> Missing:
    """Return what becomes of the columns that rows do not name."""
    return operation.missing or "refuse"


def apply(tx: LocalTransaction, operation: RowOperation) -> int | None:
    """Do one operation; return how many rows it was about, None if they were not counted."""
    return _OPERATIONS[type(operation)](tx[operation.table], operation)


def _upsert(table: TransactionTable, operation: UpsertRows) -> int:
    return table.upsert(json_rows(operation.rows, table.schema), missing_of(operation))


def _add(verb: str, table: TransactionTable, operation: InsertRows) -> int:
    return getattr(table, verb)(json_rows(operation.rows, table.schema))


def _update(table: TransactionTable, operation: UpdateRow) -> int:
    key = json_key(operation.key, table.schema, table.primary_key)
    return table.update(key, **json_values(operation.set, table.schema))


def _update_where(table: TransactionTable, operation: UpdateWhere) -> int:
    given = operation.values
    values = None if given is None else json_values(given, table.schema)
    return table.update_where(operation.filter, values, operation.sql)


def _delete(table: TransactionTable, operation: DeleteRows) -> int | None:
    keys = [json_key(key, table.schema, table.primary_key) for key in operation.keys]
    is_text = len(keys) == 1 and isinstance(keys[0], str)  # else a list in it would be keys
    return table.delete(keys[0] if is_text else keys)


def _truncate(table: TransactionTable, _: TruncateTable) -> int:
    rows = table.count()
    table.truncate()
    return rows


_OPERATIONS: dict[type, Callable[[TransactionTable, Any], int | None]] = {
    UpsertRows: _upsert,
    InsertRows: partial(_add, "insert"),
    AppendRows: partial(_add, "append"),
    OverwriteRows: partial(_add, "overwrite"),
    UpdateRow: _update,
    UpdateMany: partial(_add, "update_many"),
    UpdateWhere: _update_where,
    DeleteRows: _delete,
    DeleteWhere: lambda table, operation: table.delete_where(operation.filter),
    TruncateTable: _truncate,
}
