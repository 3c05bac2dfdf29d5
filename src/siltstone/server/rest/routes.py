"""Routes: the operations of REST in one table: where, for whom, what each takes and gives.

An operation of the specification that is not offered answers 406 with code 0, so that clients raise
their own "unsupported" error, and do not take it for a missing table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from siltstone.server.http.replies import Reply
from siltstone.server.http.route import ARROW, NOTHING, Handler, Role, Route
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.changes import ChangeRoutes
from siltstone.server.rest.indexes import IndexRoutes
from siltstone.server.rest.jobs import JobRoutes
from siltstone.server.rest.namespaces import NamespaceRoutes
from siltstone.server.rest.queries import QueryRoutes
from siltstone.server.rest.refusals import unsupported
from siltstone.server.rest.system import SystemRoutes
from siltstone.server.rest.tables import TableRoutes
from siltstone.server.rest.tags import TagRoutes
from siltstone.server.rest.transactions import TransactionRoutes

FILE, STREAM, TEXT = "file", "stream", "text"
_PAGE = ("page_token", "limit")


@dataclass(frozen=True, slots=True)
class RestHandlers:
    """The handlers, by what they are about."""

    system: SystemRoutes
    namespaces: NamespaceRoutes
    tables: TableRoutes
    tags: TagRoutes
    queries: QueryRoutes
    indexes: IndexRoutes
    transactions: TransactionRoutes
    changes: ChangeRoutes
    jobs: JobRoutes


def routes_of(handlers: RestHandlers) -> list[Route]:
    """Return all routes; the first that fits a path answers."""
    routes = [
        *_system(handlers),
        *_namespaces(handlers.namespaces),
        *_tables(handlers.tables),
        *_tags(handlers.tags),
        *_queries(handlers.queries),
        *_indexes(handlers.indexes),
        *_transactions(handlers.transactions),
        *_versions(handlers.namespaces),
        *_unsupported(),
    ]
    handlers.system.describe(routes)
    return routes


def _post(path: str, role: Role, handler: Handler, request: Any, answer: Any, **more: Any) -> Route:
    summary = _summary(handler)
    return Route("POST", path, role, handler, summary, request=request, answer=answer, **more)


def _get(path: str, role: Role, handler: Handler, answer: Any, **more: Any) -> Route:
    summary = _summary(handler)
    return Route("GET", path, role, handler, summary, takes=NOTHING, answer=answer, **more)


def _summary(handler: Handler) -> str:
    return (handler.__doc__ or "").partition("\n")[0].rstrip(".")


def _system(handlers: RestHandlers) -> Iterable[Route]:
    system, jobs, feed = handlers.system, handlers.jobs, handlers.changes.changes
    range_of = ("since", "until", "tables", "format")
    yield _get("/healthz", Role.NOBODY, system.healthz, bodies.HealthAnswer)
    yield _get("/readyz", Role.NOBODY, system.readyz, bodies.HealthAnswer)
    yield _get("/openapi.json", Role.READ, system.described, dict[str, Any])
    yield _get("/metrics", Role.READ, system.metrics, None, gives=TEXT)
    yield _get("/v1/status", Role.READ, system.status, bodies.StatusAnswer)
    yield _get("/v1/changes", Role.READ, feed, None, gives=STREAM, query=range_of)
    yield _get("/v1/jobs", Role.READ, jobs.list_all, bodies.JobsAnswer)
    yield _get("/v1/jobs/{id}", Role.READ, jobs.status, bodies.JobAnswer)
    one, job = bodies.TableJobRequest, bodies.JobAnswer
    yield _post("/v1/checkpoint", Role.WRITE, jobs.checkpoint, bodies.RequestBody, job)
    yield _post("/v1/merge", Role.WRITE, jobs.merge, one, job)
    yield _post("/v1/optimize", Role.WRITE, jobs.optimize, one, job)
    yield _post("/v1/vacuum", Role.ADMIN, jobs.vacuum, bodies.VacuumRequest, job)


def _namespaces(spaces: NamespaceRoutes) -> Iterable[Route]:
    at, named, shown = "/v1/namespace/{id}", bodies.NamespaceRequest, bodies.NamespaceAnswer
    made = bodies.CreateNamespaceRequest
    yield _get(f"{at}/list", Role.READ, spaces.list_all, bodies.NamespacesAnswer, query=_PAGE)
    yield _get(f"{at}/table/list", Role.READ, spaces.list_tables, bodies.TablesAnswer, query=_PAGE)
    yield _post(f"{at}/describe", Role.READ, spaces.describe, named, shown)
    yield _post(f"{at}/exists", Role.READ, spaces.exists, named, None)
    yield _post(f"{at}/create", Role.ADMIN, spaces.create, made, shown)
    yield _post(f"{at}/drop", Role.ADMIN, spaces.drop, named, bodies.NoMembers)


def _tables(tables: TableRoutes) -> Iterable[Route]:
    at, named, altered = "/v1/table/{id}", bodies.TableRequest, bodies.VersionAnswer
    yield _get("/v1/table", Role.READ, tables.list_all, bodies.TablesAnswer, query=_PAGE)
    wanted = bodies.DescribeTableRequest
    yield _post(f"{at}/describe", Role.READ, tables.describe, wanted, bodies.TableAnswer)
    yield _post(f"{at}/exists", Role.READ, tables.exists, named, None)
    yield _post(f"{at}/stats", Role.READ, tables.stats, named, bodies.TableStatsAnswer)
    made = {"takes": ARROW, "query": ("mode", "primary_key", "properties")}
    yield _post(f"{at}/create", Role.WRITE, tables.create, None, bodies.CreateTableAnswer, **made)
    yield _post(f"{at}/drop", Role.WRITE, tables.drop, named, bodies.DropTableAnswer)
    renamed = bodies.RenameTableRequest
    yield _post(f"{at}/rename", Role.WRITE, tables.rename, renamed, bodies.NoMembers)
    added, changed = bodies.AddColumnsRequest, bodies.AlterColumnsRequest
    yield _post(f"{at}/add_columns", Role.WRITE, tables.add_columns, added, altered)
    yield _post(f"{at}/alter_columns", Role.WRITE, tables.alter_columns, changed, altered)
    dropped = bodies.DropColumnsRequest
    yield _post(f"{at}/drop_columns", Role.WRITE, tables.drop_columns, dropped, altered)


def _tags(tags: TagRoutes) -> Iterable[Route]:
    at, tag, given = "/v1/table/{id}/tags", bodies.TagRequest, bodies.SetTagRequest
    yield _post(f"{at}/list", Role.READ, tags.list_all, bodies.TableRequest, bodies.TagsAnswer)
    yield _post(f"{at}/version", Role.READ, tags.version, tag, bodies.VersionAnswer)
    yield _post(f"{at}/create", Role.WRITE, tags.create, given, bodies.NoMembers)
    yield _post(f"{at}/update", Role.WRITE, tags.update, given, bodies.NoMembers)
    yield _post(f"{at}/delete", Role.WRITE, tags.delete, tag, bodies.NoMembers)


def _queries(queries: QueryRoutes) -> Iterable[Route]:
    at, asked, told = "/v1/table/{id}", bodies.QueryRequest, bodies.ExplainRequest
    merged = (
        *("on", "when_matched_update_all", "when_not_matched_insert_all"),
        *("when_not_matched_by_source_delete", "when_not_matched_by_source_delete_filt"),
    )
    yield _post(f"{at}/query", Role.READ, queries.query, asked, None, gives=FILE)
    yield _post(f"{at}/scan", Role.READ, queries.scan, asked, None, gives=STREAM)
    yield _post(f"{at}/count_rows", Role.READ, queries.count, bodies.CountRequest, int)
    yield _post(f"{at}/explain_plan", Role.READ, queries.explain, told, str)
    yield _post(f"{at}/analyze_plan", Role.READ, queries.analyze, told, str)
    rows: dict[str, Any] = {"takes": ARROW, "query": ("mode", "branch")}
    yield _post(f"{at}/insert", Role.WRITE, queries.insert, None, bodies.InsertAnswer, **rows)
    rows["query"] = merged
    counts = bodies.MergeInsertAnswer
    yield _post(f"{at}/merge_insert", Role.WRITE, queries.merge_insert, None, counts, **rows)
    update, answer = bodies.UpdateRequest, bodies.UpdateAnswer
    yield _post(f"{at}/update", Role.WRITE, queries.update, update, answer)
    delete = bodies.DeleteRequest
    yield _post(f"{at}/delete", Role.WRITE, queries.delete, delete, bodies.DeleteAnswer)
    restore = bodies.RestoreRequest
    yield _post(f"{at}/restore", Role.WRITE, queries.restore, restore, bodies.VersionAnswer)


def _indexes(indexes: IndexRoutes) -> Iterable[Route]:
    at, made, named = "/v1/table/{id}", bodies.CreateIndexRequest, bodies.TableRequest
    yield _post(f"{at}/create_index", Role.WRITE, indexes.create, made, bodies.NoMembers)
    yield _post(f"{at}/create_scalar_index", Role.WRITE, indexes.create, made, bodies.NoMembers)
    yield _post(f"{at}/index/list", Role.READ, indexes.list_all, named, bodies.IndexesAnswer)
    at += "/index/{name}"
    yield _post(f"{at}/stats", Role.READ, indexes.stats, named, bodies.IndexStatsAnswer)
    yield _post(f"{at}/drop", Role.WRITE, indexes.drop, bodies.RequestBody, bodies.NoMembers)


def _transactions(transactions: TransactionRoutes) -> Iterable[Route]:
    at, state = "/v1/transaction", bodies.TransactionAnswer
    begun, applied = bodies.BeginRequest, bodies.ApplyRequest
    yield _post(f"{at}/begin", Role.READ, transactions.begin, begun, bodies.BeginAnswer)
    yield _post(f"{at}/apply", Role.WRITE, transactions.apply, applied, bodies.ApplyAnswer)
    at, nothing, altered = f"{at}/{{id}}", bodies.RequestBody, bodies.AlterTransactionRequest
    yield _post(f"{at}/commit", Role.READ, transactions.commit, nothing, bodies.CommitAnswer)
    yield _post(f"{at}/rollback", Role.READ, transactions.rollback, nothing, bodies.RollbackAnswer)
    yield _post(f"{at}/describe", Role.READ, transactions.describe, nothing, state)
    yield _post(f"{at}/alter", Role.READ, transactions.alter, altered, state)


def _versions(spaces: NamespaceRoutes) -> Iterable[Route]:
    def managed(path: str, role: Role, name: str, *types: Any, **more: Any) -> Route:
        return _post(f"/v1/table/{path}", role, spaces.managed(name), *types, **more)

    read, write, named = Role.READ, Role.WRITE, bodies.TableRequest
    yield managed("{id}/declare", write, "declare_table", named, bodies.DeclareAnswer)
    yield managed("{id}/deregister", write, "drop_table", named, bodies.DropTableAnswer)
    found: tuple[Any, Any] = bodies.TableRequest, bodies.BranchesAnswer
    yield managed("{id}/branches/list", read, "list_table_branches", *found, query=_PAGE)
    found = bodies.ListVersionsRequest, bodies.VersionsAnswer
    listed = ("branch", "limit", "descending", "page_token")
    yield managed("{id}/version/list", read, "list_table_versions", *found, query=listed)
    found = bodies.DescribeVersionRequest, bodies.OneVersionAnswer
    yield managed("{id}/version/describe", read, "describe_table_version", *found)
    found = bodies.CreateVersionRequest, bodies.OneVersionAnswer
    made = {"is_commit_of_version": True}
    yield managed("{id}/version/create", write, "create_table_version", *found, **made)
    found = bodies.DeleteVersionsRequest, bodies.DeletedVersionsAnswer
    yield managed("{id}/version/delete", write, "batch_delete_table_versions", *found)
    found = bodies.CreateVersionsRequest, bodies.VersionsAnswer
    yield managed("version/batch-create", write, "batch_create_table_versions", *found)
    found = bodies.CommitTablesRequest, bodies.CommitTablesAnswer
    yield managed("batch-commit", write, "batch_commit_tables", *found)


_BRANCHES = "a table has one line of versions; to try something out, pin a snapshot or tag a seq"
_METADATA = (
    "columns have a name, a type, nullability and no metadata; keep it in a table of your own"
)
_VIEWS = (
    "functions and views of LanceDB's own engine are not offered: run the query, write its rows"
)
NOT_OFFERED = {
    "/v1/table/{id}/register": "a table lies in the store's directory: write the rows into one",
    "/v1/table/{id}/schema_metadata/update": _METADATA,
    "/v1/table/{id}/update_field_metadata": _METADATA,
    "/v1/table/{id}/backfill_column": _VIEWS,
    "/v1/table/{id}/branches/create": _BRANCHES,
    "/v1/table/{id}/branches/delete": _BRANCHES,
    "/v1/materialized_view/{id}/create": _VIEWS,
    "/v1/materialized_view/{id}/refresh": _VIEWS,
}
"""The operations of the specification that this server has not, and why."""


def _unsupported() -> Iterable[Route]:
    for path, reason in NOT_OFFERED.items():
        refuse, what = partial(_refuse, reason), f"Not offered: {path}"
        yield Route(
            *("POST", path, Role.READ, refuse, what),
            request=bodies.RequestBody,
            answer=bodies.NoMembers,
        )


def _refuse(reason: str, _: RestCall) -> Reply:
    raise unsupported(reason)
