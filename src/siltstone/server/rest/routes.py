"""Routes: every operation in one table: where, for whom, what it takes and gives.

An operation of the specification that is not offered answers 406 with code 0, so that clients raise
their own "unsupported" error, and do not take it for a missing table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from siltstone.server.http.replies import Reply
from siltstone.server.http.route import ARROW, JSON, NOTHING, Handler, Role, Route
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


def _post(path: str, role: Role, handler: Handler, **more: object) -> Route:
    return Route("POST", path, role, handler, _summary(handler), **more)  # type: ignore[arg-type]


def _get(path: str, role: Role, handler: Handler, **more: object) -> Route:
    taken = {"takes": NOTHING, **more}
    return Route("GET", path, role, handler, _summary(handler), **taken)  # type: ignore[arg-type]


def _summary(handler: Handler) -> str:
    return (handler.__doc__ or "").partition("\n")[0].rstrip(".")


def _system(handlers: RestHandlers) -> Iterable[Route]:
    system, jobs = handlers.system, handlers.jobs
    changes = ("since", "until", "tables", "format")
    yield _get("/healthz", Role.NOBODY, system.healthz)
    yield _get("/readyz", Role.NOBODY, system.readyz)
    yield _get("/openapi.json", Role.READ, system.described)
    yield _get("/metrics", Role.READ, system.metrics, gives=TEXT)
    yield _get("/v1/status", Role.READ, system.status)
    yield _get("/v1/changes", Role.READ, handlers.changes.changes, gives=STREAM, query=changes)
    yield _get("/v1/jobs", Role.READ, jobs.list_all)
    yield _get("/v1/jobs/{id}", Role.READ, jobs.status)
    yield _post("/v1/checkpoint", Role.WRITE, jobs.checkpoint)
    yield _post("/v1/merge", Role.WRITE, jobs.merge)
    yield _post("/v1/optimize", Role.WRITE, jobs.optimize)
    yield _post("/v1/vacuum", Role.ADMIN, jobs.vacuum)


def _namespaces(spaces: NamespaceRoutes) -> Iterable[Route]:
    yield _get("/v1/namespace/{id}/list", Role.READ, spaces.list_all, query=_PAGE)
    yield _get("/v1/namespace/{id}/table/list", Role.READ, spaces.list_tables, query=_PAGE)
    yield _post("/v1/namespace/{id}/describe", Role.READ, spaces.describe)
    yield _post("/v1/namespace/{id}/exists", Role.READ, spaces.exists)
    yield _post("/v1/namespace/{id}/create", Role.ADMIN, spaces.create)
    yield _post("/v1/namespace/{id}/drop", Role.ADMIN, spaces.drop)


def _tables(tables: TableRoutes) -> Iterable[Route]:
    at = "/v1/table/{id}"
    made = ("mode", "primary_key", "properties")
    yield _get("/v1/table", Role.READ, tables.list_all, query=_PAGE)
    yield _post(f"{at}/describe", Role.READ, tables.describe)
    yield _post(f"{at}/exists", Role.READ, tables.exists)
    yield _post(f"{at}/stats", Role.READ, tables.stats)
    yield _post(f"{at}/create", Role.WRITE, tables.create, takes=ARROW, query=made)
    yield _post(f"{at}/drop", Role.WRITE, tables.drop)
    yield _post(f"{at}/rename", Role.WRITE, tables.rename)
    yield _post(f"{at}/add_columns", Role.WRITE, tables.add_columns)
    yield _post(f"{at}/alter_columns", Role.WRITE, tables.alter_columns)
    yield _post(f"{at}/drop_columns", Role.WRITE, tables.drop_columns)


def _tags(tags: TagRoutes) -> Iterable[Route]:
    at = "/v1/table/{id}/tags"
    yield _post(f"{at}/list", Role.READ, tags.list_all)
    yield _post(f"{at}/version", Role.READ, tags.version)
    yield _post(f"{at}/create", Role.WRITE, tags.create)
    yield _post(f"{at}/update", Role.WRITE, tags.update)
    yield _post(f"{at}/delete", Role.WRITE, tags.delete)


def _queries(queries: QueryRoutes) -> Iterable[Route]:
    at = "/v1/table/{id}"
    merged = (
        *("on", "when_matched_update_all", "when_not_matched_insert_all"),
        *("when_not_matched_by_source_delete", "when_not_matched_by_source_delete_filt"),
    )
    yield _post(f"{at}/query", Role.READ, queries.query, gives=FILE)
    yield _post(f"{at}/scan", Role.READ, queries.scan, gives=STREAM)
    yield _post(f"{at}/count_rows", Role.READ, queries.count)
    yield _post(f"{at}/explain_plan", Role.READ, queries.explain)
    yield _post(f"{at}/analyze_plan", Role.READ, queries.analyze)
    yield _post(f"{at}/insert", Role.WRITE, queries.insert, takes=ARROW, query=("mode", "branch"))
    yield _post(f"{at}/merge_insert", Role.WRITE, queries.merge_insert, takes=ARROW, query=merged)
    yield _post(f"{at}/update", Role.WRITE, queries.update)
    yield _post(f"{at}/delete", Role.WRITE, queries.delete)
    yield _post(f"{at}/restore", Role.WRITE, queries.restore)


def _indexes(indexes: IndexRoutes) -> Iterable[Route]:
    at = "/v1/table/{id}"
    yield _post(f"{at}/create_index", Role.WRITE, indexes.create)
    yield _post(f"{at}/create_scalar_index", Role.WRITE, indexes.create)
    yield _post(f"{at}/index/list", Role.READ, indexes.list_all)
    yield _post(f"{at}/index/{{name}}/stats", Role.READ, indexes.stats)
    yield _post(f"{at}/index/{{name}}/drop", Role.WRITE, indexes.drop)


def _transactions(transactions: TransactionRoutes) -> Iterable[Route]:
    at = "/v1/transaction/{id}"
    yield _post("/v1/transaction/begin", Role.READ, transactions.begin)
    yield _post("/v1/transaction/apply", Role.WRITE, transactions.apply)
    yield _post(f"{at}/commit", Role.READ, transactions.commit)
    yield _post(f"{at}/rollback", Role.READ, transactions.rollback)
    yield _post(f"{at}/describe", Role.READ, transactions.describe)
    yield _post(f"{at}/alter", Role.READ, transactions.alter)


def _versions(spaces: NamespaceRoutes) -> Iterable[Route]:
    at = "/v1/table/{id}"
    listed = ("branch", "limit", "descending", "page_token")
    yield _post(f"{at}/declare", Role.WRITE, spaces.managed("declare_table"))
    yield _post(f"{at}/deregister", Role.WRITE, spaces.managed("drop_table"))
    yield _post(
        f"{at}/branches/list", Role.READ, spaces.managed("list_table_branches"), query=_PAGE
    )
    yield _post(
        f"{at}/version/list", Role.READ, spaces.managed("list_table_versions"), query=listed
    )
    yield _post(f"{at}/version/describe", Role.READ, spaces.managed("describe_table_version"))
    yield _post(
        f"{at}/version/create",
        Role.WRITE,
        spaces.managed("create_table_version"),
        is_commit_of_version=True,
    )
    yield _post(f"{at}/version/delete", Role.WRITE, spaces.managed("batch_delete_table_versions"))
    yield _post(
        "/v1/table/version/batch-create",
        Role.WRITE,
        spaces.managed("batch_create_table_versions"),
    )
    yield _post("/v1/table/batch-commit", Role.WRITE, spaces.managed("batch_commit_tables"))


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
        refuse = partial(_refuse, reason)
        yield Route("POST", path, Role.READ, refuse, f"Not offered: {path}", takes=JSON)


def _refuse(reason: str, _: RestCall) -> Reply:
    raise unsupported(reason)
