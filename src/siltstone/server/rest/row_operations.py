"""Row operations: the body of `transaction/apply`, a list of what is done with rows of tables.

    {"ops": [{"op": "upsert", "table": "t", "rows": [...]}, ...], "isolation": "snapshot"}

The word in `op` decides which members an operation has; any other one is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from siltstone.lance_namespace.rows.members import RequestPart


class RowOperation(RequestPart, tag_field="op", kw_only=True):
    """One operation of `apply`; each has the members that it reads, and no others."""

    table: str


class UpsertRows(RowOperation, tag="upsert"):
    rows: list[dict[str, Any]]


class InsertRows(RowOperation, tag="insert"):
    rows: list[dict[str, Any]]


class AppendRows(RowOperation, tag="append"):
    rows: list[dict[str, Any]]


class OverwriteRows(RowOperation, tag="overwrite"):
    rows: list[dict[str, Any]]


class UpdateRow(RowOperation, tag="update"):
    key: Any
    set: Annotated[dict[str, Any], Meta(min_length=1)]


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
            | DeleteRows
            | DeleteWhere
            | TruncateTable
        ],
        Meta(min_length=1),
    ]
    isolation: Literal["snapshot", "serializable"] | None = None
