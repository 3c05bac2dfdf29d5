"""Operations: every operation of the specification, in one table.

    name     what the classes for pylance and LanceDB call it, and a joined store asks for
    where    its method and path over REST
    query    the members that REST takes from the query of the address
    effect   what may be done with a request whose answer is lost
    run      what does it; its types are those of the request, the answer, and, if it takes some,
             the rows

    a request, a dict ─▶ its type ─▶ is all of it offered? ─▶ run(scope, asked) ─▶ answer, seq

`client` and `server.rest` are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import msgspec

from siltstone.lance_namespace import columns, indexes, namespaces, tables, tags, versions
from siltstone.lance_namespace.rows import creation, queries, writes
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.specification import members
from siltstone.lance_versions.errors import invalid, unsupported
from siltstone.operations import Effect, Role


@dataclass(frozen=True, slots=True)
class SpecifiedOperation:
    """A row of the table: see the module."""

    name: str
    where: str
    effect: Effect
    query: tuple[str, ...]
    run: Callable[..., tuple[Any, int | None]]
    request: type[members.RequestPart]
    answer: Any
    takes_rows: bool

    @property
    def role(self) -> Role:
        """The role that it needs."""
        return Role.READ if self.effect is Effect.WORK else Role.WRITE

    @property
    def is_in_query(self) -> bool:
        """Whether REST has all members of a request in the query of its address."""
        return self.takes_rows or self.where.startswith("GET ")


def _operation(
    where: str, effect: Effect, run: Callable[..., Any], *query: str, name: str | None = None
) -> SpecifiedOperation:
    hints = get_type_hints(run)
    answer = get_args(hints["return"])[0]
    method, _, path = where.rpartition(" ")
    where = f"{method or 'POST'} /v1/{path}"
    takes_rows = "rows" in hints
    return SpecifiedOperation(
        name or run.__name__, where, effect, query, run, hints["asked"], answer, takes_rows
    )


_READS, _WRITES, _ONCE = Effect.WORK, Effect.WRITE, Effect.ONCE
_PAGE = ("page_token", "limit")
_OF_TABLES = (*_PAGE, "include_declared")
_SHOWN = ("with_table_uri", "load_detailed_metadata", "check_declared")
_MADE = ("mode", "primary_key", "properties", "storage_options")
_MERGED = (
    *("on", "branch", "when_matched_update_all", "when_matched_update_all_filt"),
    *("when_matched_delete", "when_not_matched_insert_all", "when_not_matched_by_source_delete"),
    *("when_not_matched_by_source_delete_filt", "timeout", "use_index"),
)
_SPACE, _TABLE = "namespace/{id}", "table/{id}"
_ALL = (
    # namespaces
    _operation(f"GET {_SPACE}/list", _READS, namespaces.list_namespaces, *_PAGE),
    _operation(f"{_SPACE}/describe", _READS, namespaces.describe_namespace),
    _operation(f"{_SPACE}/exists", _READS, namespaces.namespace_exists),
    _operation(f"{_SPACE}/create", _WRITES, namespaces.create_namespace),
    _operation(f"{_SPACE}/drop", _WRITES, namespaces.drop_namespace),
    # tables
    _operation(f"GET {_SPACE}/table/list", _READS, tables.list_tables, *_OF_TABLES),
    _operation("GET table", _READS, tables.list_all_tables, *_OF_TABLES, "delimiter"),
    _operation(f"{_TABLE}/describe", _READS, tables.describe_table, *_SHOWN),
    _operation(f"{_TABLE}/exists", _READS, tables.table_exists),
    _operation(f"{_TABLE}/stats", _READS, creation.get_table_stats),
    _operation(f"{_TABLE}/create", _WRITES, creation.create_table, *_MADE),
    _operation(f"{_TABLE}/declare", _WRITES, tables.declare_table),
    _operation(f"{_TABLE}/drop", _WRITES, tables.drop_table),
    _operation(f"{_TABLE}/deregister", _WRITES, tables.deregister_table),
    _operation(f"{_TABLE}/rename", _WRITES, tables.rename_table),
    _operation(f"{_TABLE}/branches/list", _READS, tables.list_table_branches, *_PAGE),
    # columns
    _operation(f"{_TABLE}/add_columns", _WRITES, columns.alter_table_add_columns),
    _operation(f"{_TABLE}/alter_columns", _WRITES, columns.alter_table_alter_columns),
    _operation(f"{_TABLE}/drop_columns", _WRITES, columns.alter_table_drop_columns),
    _operation(f"{_TABLE}/schema_metadata/update", _WRITES, columns.update_table_schema_metadata),
    _operation(f"{_TABLE}/update_field_metadata", _WRITES, columns.update_field_metadata),
    # tags
    _operation(f"{_TABLE}/tags/list", _READS, tags.list_table_tags, *_PAGE),
    _operation(f"{_TABLE}/tags/version", _READS, tags.get_table_tag_version),
    _operation(f"{_TABLE}/tags/create", _WRITES, tags.create_table_tag),
    _operation(f"{_TABLE}/tags/update", _WRITES, tags.update_table_tag),
    _operation(f"{_TABLE}/tags/delete", _WRITES, tags.delete_table_tag),
    # rows
    _operation(f"{_TABLE}/query", _READS, queries.query_table),
    _operation(f"{_TABLE}/count_rows", _READS, queries.count_table_rows),
    _operation(f"{_TABLE}/explain_plan", _READS, queries.explain_table_query_plan),
    _operation(f"{_TABLE}/analyze_plan", _READS, queries.analyze_table_query_plan),
    _operation(f"{_TABLE}/insert", _WRITES, writes.insert_into_table, "mode", "branch"),
    _operation(f"{_TABLE}/merge_insert", _WRITES, writes.merge_insert_into_table, *_MERGED),
    _operation(f"{_TABLE}/update", _WRITES, writes.update_table),
    _operation(f"{_TABLE}/delete", _WRITES, writes.delete_from_table),
    _operation(f"{_TABLE}/restore", _WRITES, writes.restore_table),
    # indexes
    _operation(f"{_TABLE}/create_index", _ONCE, indexes.create_table_index),
    _operation(
        f"{_TABLE}/create_scalar_index",
        _ONCE,
        indexes.create_table_index,
        name="create_table_scalar_index",
    ),
    _operation(f"{_TABLE}/index/list", _READS, indexes.list_table_indices, *_PAGE),
    _operation(f"{_TABLE}/index/{{name}}/stats", _READS, indexes.describe_table_index_stats),
    _operation(f"{_TABLE}/index/{{name}}/drop", _ONCE, indexes.drop_table_index),
    # versions that Lance clients commit
    _operation(
        f"{_TABLE}/version/list",
        _READS,
        versions.list_table_versions,
        *("branch", "limit", "descending", "page_token"),
    ),
    _operation(f"{_TABLE}/version/describe", _READS, versions.describe_table_version),
    _operation(f"{_TABLE}/version/create", _WRITES, versions.create_table_version),
    _operation(f"{_TABLE}/version/delete", _WRITES, versions.batch_delete_table_versions),
    _operation("table/version/batch-create", _WRITES, versions.batch_create_table_versions),
    _operation("table/batch-commit", _WRITES, versions.batch_commit_tables),
)
OPERATIONS = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True)
class RefusedOperation:
    """An operation of the specification that is not offered, and why; "" is no path of its own."""

    path: str
    reason: str


_BRANCHES = "a table has one line of versions; to try something out, pin a snapshot or tag a seq"
_VIEWS = (
    "functions and views of LanceDB's own engine are not offered: run the query, write its rows"
)
_TRANSACTIONS = (
    "here `transaction()` of the namespace begins a transaction, and its `commit` and `rollback`"
    " end it"
)
_VIEW = "materialized_view/{id}"
REFUSED = {
    "register_table": RefusedOperation(
        f"{_TABLE}/register",
        "tables lie in the store's directory, and a table from elsewhere cannot be registered:"
        " create a table, and write the rows into it",
    ),
    "alter_table_backfill_columns": RefusedOperation(f"{_TABLE}/backfill_column", _VIEWS),
    "create_table_branch": RefusedOperation(f"{_TABLE}/branches/create", _BRANCHES),
    "delete_table_branch": RefusedOperation(f"{_TABLE}/branches/delete", _BRANCHES),
    "create_materialized_view": RefusedOperation(f"{_VIEW}/create", _VIEWS),
    "refresh_materialized_view": RefusedOperation(f"{_VIEW}/refresh", _VIEWS),
    "describe_transaction": RefusedOperation("", _TRANSACTIONS),
    "alter_transaction": RefusedOperation("", _TRANSACTIONS),
}
"""The operations of the specification that are refused in words of their own, and why."""


def answer(
    scope: Scope, name: str, request: Mapping[str, Any], rows: object = None
) -> dict[str, Any]:
    """Answer a request by the name of its operation.

    Args:
        scope: Where it goes.
        name: The operation.
        request: The members, as they stand in JSON.
        rows: The bytes of an Arrow IPC stream, of an operation that takes rows.

    Raises:
        SiltstoneError: It is refused, or there is no such operation; nothing was changed.
    """
    found = operation(name)
    given = {member: value for member, value in request.items() if value is not None}
    asked = members.converted(given, found.request)
    members.refuse_not_offered(asked)
    made, _ = found.run(scope, asked, *([rows_of(rows)] if found.takes_rows else []))
    return msgspec.to_builtins(made, builtin_types=(bytes,))


def operation(name: str) -> SpecifiedOperation:
    """Return an operation that is offered.

    Raises:
        Refused: It is not, or there is none of that name.
    """
    if name in REFUSED:
        raise unsupported(f"{name} is not offered: {REFUSED[name].reason}")
    if name not in OPERATIONS:
        raise unsupported(f"there is no operation {name!r:.80}")
    return OPERATIONS[name]


def rows_of(given: object) -> bytes:
    """Return the rows of a request.

    Raises:
        Refused: They are no bytes.
    """
    if not isinstance(given, bytes | bytearray | memoryview):
        kind = type(given).__name__
        raise invalid(f"the rows must be the bytes of an Arrow IPC stream; got {kind}")
    return bytes(given)
