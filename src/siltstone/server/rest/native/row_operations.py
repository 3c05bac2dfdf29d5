"""Row operations: the body of `transaction/apply`, a list of what is done with rows of tables.

    {"ops": [{"op": "upsert", "table": "t", "rows": [...]}, ...], "isolation": "snapshot"}

The word in `op` decides which members an operation has; any other one is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from siltstone.choices import Missing
from siltstone.lance_namespace.specification.members import RequestPart


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
