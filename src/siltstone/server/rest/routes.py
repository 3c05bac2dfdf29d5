"""Routes: the operations of REST in one table: where, for whom, what each takes and gives.

The types of its JSON are those that its handler names: `RestCall[<request>]` and `Reply[<answer>]`.
An operation of the specification that is not offered answers 406 with code 0, so that clients raise
their own "unsupported" error, and do not take it for a missing table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, get_args, get_type_hints

from siltstone.lance_namespace.catalog import REFUSED
from siltstone.lance_namespace.rows.bodies import (
    NoMembers,
    TablePageRequest,
    TableRequest,
)
from siltstone.lance_namespace.rows.members import AnyMembers
from siltstone.lance_namespace.rows.operations import OFFERED
from siltstone.lance_versions.errors import unsupported
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.http.route import ARROW, NOTHING, Handler, Role, Route
from siltstone.server.rest import row_operations
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.changes import ChangeRoutes
from siltstone.server.rest.jobs import JobRoutes
from siltstone.server.rest.namespaces import NamespaceRoutes
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.system import SystemRoutes
from siltstone.server.rest.table_rows import RowRoutes
from siltstone.server.rest.tables import TableRoutes
from siltstone.server.rest.transactions import TransactionRoutes

FILE, STREAM, TEXT = "file", "stream", "text"
_PAGE = ("page_token", "limit")
_RANGE = ("since", "until", "tables", "format")
_MADE = ("mode", "primary_key", "properties", "storage_options")
_SHOWN = ("with_table_uri", "load_detailed_metadata", "check_declared")
_MERGED = (
    *("on", "branch", "when_matched_update_all", "when_matched_update_all_filt"),
    *("when_matched_delete", "when_not_matched_insert_all", "when_not_matched_by_source_delete"),
    *("when_not_matched_by_source_delete_filt", "timeout", "use_index"),
)
_READ, _WRITE, _ADMIN = Role.READ, Role.WRITE, Role.ADMIN


def routes_of(scope: RequestScope, jobs: JobRoutes, pipeline: Pipeline) -> list[Route]:
    """Return all routes; the first that fits a path answers."""
    served = scope.served
    system = SystemRoutes(served, scope.sessions, jobs, pipeline)
    spaces, rows = NamespaceRoutes(scope), RowRoutes(scope)
    tables, asked = TableRoutes(scope, spaces), partial(_of_rows, rows)
    transactions, feed = TransactionRoutes(scope), ChangeRoutes(served)
    table = "/v1/table/{id}"
    routes = [
        # the server, its jobs, and its feed
        _get("/healthz", Role.NOBODY, system.healthz, is_at_once=True),
        _get("/readyz", Role.NOBODY, system.readyz, is_at_once=True),
        _get("/openapi.json", _READ, system.described),
        _get("/metrics", _READ, system.metrics, gives=TEXT),
        _get("/v1/status", _READ, system.status),
        _get("/v1/changes", _READ, feed.changes, gives=STREAM, query=_RANGE, is_read=True),
        _get("/v1/jobs", _READ, jobs.list_all),
        _get("/v1/jobs/{id}", _READ, jobs.status),
        _post("/v1/checkpoint", _WRITE, jobs.checkpoint),
        _post("/v1/merge", _WRITE, jobs.merge),
        _post("/v1/optimize", _WRITE, jobs.optimize),
        _post("/v1/vacuum", _ADMIN, jobs.vacuum),
        # namespaces
        _post("/v1/namespace/{id}/exists", _READ, spaces.exists),
        # tables
        _get("/v1/table", _READ, tables.list_all, query=(*_PAGE, "include_declared")),
        _post(f"{table}/describe", _READ, tables.describe, query=_SHOWN),
        _post(f"{table}/exists", _READ, tables.exists),
        asked("stats", _READ, "get_table_stats"),
        _post(f"{table}/create", _WRITE, rows.create, takes=ARROW, query=_MADE),
        _post(f"{table}/drop", _WRITE, tables.drop),
        _post(f"{table}/rename", _WRITE, tables.rename),
        asked("add_columns", _WRITE, "alter_table_add_columns"),
        asked("alter_columns", _WRITE, "alter_table_alter_columns"),
        asked("drop_columns", _WRITE, "alter_table_drop_columns"),
        # tags
        _post(f"{table}/tags/list", _READ, rows.tags, query=_PAGE),
        asked("tags/version", _READ, "get_table_tag_version"),
        asked("tags/create", _WRITE, "create_table_tag"),
        asked("tags/update", _WRITE, "update_table_tag"),
        asked("tags/delete", _WRITE, "delete_table_tag"),
        # queries
        _post(f"{table}/query", _READ, rows.query, gives=FILE, is_read=True),
        _post(f"{table}/scan", _READ, rows.scan, gives=STREAM, is_read=True),
        _post(f"{table}/count_rows", _READ, rows.count, is_read=True),
        _post(f"{table}/explain_plan", _READ, rows.explain),
        _post(f"{table}/analyze_plan", _READ, rows.analyze),
        _post(f"{table}/insert", _WRITE, rows.insert, takes=ARROW, query=("mode", "branch")),
        _post(f"{table}/merge_insert", _WRITE, rows.merge_insert, takes=ARROW, query=_MERGED),
        _post(f"{table}/update", _WRITE, rows.update),
        asked("delete", _WRITE, "delete_from_table"),
        asked("restore", _WRITE, "restore_table"),
        # indexes
        asked("create_index", _WRITE, "create_table_index"),
        asked("create_scalar_index", _WRITE, "create_table_scalar_index"),
        asked("index/list", _READ, "list_table_indices"),
        asked("index/{name}/stats", _READ, "describe_table_index_stats"),
        asked("index/{name}/drop", _WRITE, "drop_table_index"),
        # transactions
        _post("/v1/transaction/begin", _READ, transactions.begin),
        _post("/v1/transaction/apply", _WRITE, transactions.apply, grouping=transactions.upserts),
        _post("/v1/transaction/{id}/commit", _READ, transactions.commit),
        _post("/v1/transaction/{id}/rollback", _READ, transactions.rollback),
        _post("/v1/transaction/{id}/describe", _READ, transactions.describe),
        _post("/v1/transaction/{id}/alter", _READ, transactions.alter),
        *_of_catalog(spaces),
        *_unsupported(),
    ]
    system.describe(routes)
    return routes


def _route(method: str, path: str, role: Role, handler: Handler, **more: Any) -> Route:
    hints = get_type_hints(handler, include_extras=True)
    (answer,), (request,) = map(get_args, (hints.pop("return"), *hints.values()))
    no_json = {type(None), bytes, Pieces}
    asked = None if request in no_json else request
    return Route(
        *(method, path, role, handler),
        (handler.__doc__ or "").partition("\n")[0].rstrip("."),
        request=asked,
        answer=None if answer in no_json else answer,
        is_checked=_may_be_refused(asked),
        **more,
    )


def _may_be_refused(request: Any) -> bool:
    """Say whether a body may have members that are not offered; `apply` is spared the look."""
    return request is not None and request is not row_operations.ApplyRequest


_post, _get = partial(_route, "POST"), partial(_route, "GET", takes=NOTHING)


def _of_rows(rows: RowRoutes, path: str, role: Role, operation: str) -> Route:
    """Return the route of an operation on one table that is answered as it comes."""
    offered = OFFERED[operation]
    route = _post(f"/v1/table/{{id}}/{path}", role, rows.answered(operation))
    return replace(route, request=offered.request, answer=offered.answer, is_checked=True)


def _of_catalog(spaces: NamespaceRoutes) -> Iterable[Route]:
    """Yield the routes that the Lance catalog answers as they come."""

    def managed(
        path: str, role: Role, name: str, request: Any, answer: Any, make: Any = _post, **more: Any
    ) -> Route:
        route = make(f"/v1/{path}", role, spaces.managed(name), **more)
        return replace(route, request=request, answer=answer, is_checked=request is not None)

    space = "namespace/{id}"
    pages: Any = {"make": _get, "query": _PAGE}
    found: tuple[Any, Any] = None, bodies.NamespacesAnswer
    yield managed(f"{space}/list", _READ, "list_namespaces", *found, **pages)
    found = None, bodies.TablesAnswer
    listed = (*_PAGE, "include_declared")
    yield managed(f"{space}/table/list", _READ, "list_tables", *found, make=_get, query=listed)
    found = bodies.NamespaceRequest, bodies.NamespaceAnswer
    yield managed(f"{space}/describe", _READ, "describe_namespace", *found)
    found = bodies.DropNamespaceRequest, bodies.NamespaceAnswer
    yield managed(f"{space}/drop", _WRITE, "drop_namespace", *found)
    found = bodies.CreateNamespaceRequest, bodies.NamespaceAnswer
    yield managed(f"{space}/create", _WRITE, "create_namespace", *found)
    found = bodies.DeclareRequest, bodies.DeclareAnswer
    yield managed("table/{id}/declare", _WRITE, "declare_table", *found)
    found = TableRequest, bodies.DropTableAnswer
    yield managed("table/{id}/deregister", _WRITE, "drop_table", *found)
    found = TablePageRequest, bodies.BranchesAnswer
    yield managed("table/{id}/branches/list", _READ, "list_table_branches", *found, query=_PAGE)
    found = bodies.ListVersionsRequest, bodies.VersionsAnswer
    listed = ("branch", "limit", "descending", "page_token")
    yield managed("table/{id}/version/list", _READ, "list_table_versions", *found, query=listed)
    found = bodies.DescribeVersionRequest, bodies.OneVersionAnswer
    yield managed("table/{id}/version/describe", _READ, "describe_table_version", *found)
    found = bodies.CreateVersionRequest, bodies.OneVersionAnswer
    made = {"is_commit_of_version": True}
    yield managed("table/{id}/version/create", _WRITE, "create_table_version", *found, **made)
    found = bodies.DeleteVersionsRequest, bodies.DeletedVersionsAnswer
    yield managed("table/{id}/version/delete", _WRITE, "batch_delete_table_versions", *found)
    found = bodies.CreateVersionsRequest, bodies.VersionsAnswer
    yield managed("table/version/batch-create", _WRITE, "batch_create_table_versions", *found)
    found = bodies.CommitTablesRequest, bodies.CommitTablesAnswer
    yield managed("table/batch-commit", _WRITE, "batch_commit_tables", *found)


_NOT_OFFERED = {
    "register": "register_table",
    "schema_metadata/update": "update_table_schema_metadata",
    "update_field_metadata": "update_field_metadata",
    "backfill_column": "alter_table_backfill_columns",
    "branches/create": "create_table_branch",
    "branches/delete": "delete_table_branch",
}
NOT_OFFERED = {
    **{f"/v1/table/{{id}}/{path}": REFUSED[name] for path, name in _NOT_OFFERED.items()},
    "/v1/materialized_view/{id}/create": REFUSED["create_materialized_view"],
    "/v1/materialized_view/{id}/refresh": REFUSED["refresh_materialized_view"],
}
"""The operations of the specification that this server has not, and why."""


def _unsupported() -> Iterable[Route]:
    refused = partial(Route, "POST", request=AnyMembers, answer=NoMembers, is_checked=True)
    for path, reason in NOT_OFFERED.items():
        yield refused(path, _READ, partial(_refuse, reason), f"Not offered: {path}")


def _refuse(reason: str, _: RestCall[Any]) -> Reply[NoMembers]:
    raise unsupported(reason)
