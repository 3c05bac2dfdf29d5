"""Routes: the operations of REST in one table: where, for whom, what each takes and gives.

The types of its JSON are those that its handler names: `RestCall[<request>]` and `Reply[<answer>]`.
An operation of the specification that is not offered answers 406 with code 0, so that clients raise
their own "unsupported" error, and do not take it for a missing table.
"""

from __future__ import annotations

from functools import partial
from typing import Any, get_args, get_type_hints

from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import Pieces
from siltstone.server.http.route import NOTHING, Handler, Role, Route
from siltstone.server.metrics.exposition import Exposition
from siltstone.server.rest.native.changes import ChangeRoutes
from siltstone.server.rest.native.follow import FollowRoutes
from siltstone.server.rest.native.jobs import JobRoutes
from siltstone.server.rest.native.past import PastRoutes
from siltstone.server.rest.native.publishes import PublishRoutes
from siltstone.server.rest.native.rows import ApplyRequest
from siltstone.server.rest.native.statements import StatementRoutes
from siltstone.server.rest.native.system import SystemRoutes
from siltstone.server.rest.native.transactions import TransactionRoutes
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.specification import STREAM, routes_of_specification

EVENTS, TEXT = "events", "text"
_DIFF = ("a", "b", "tables", "rows", "format")
_RANGE = ("since", "until", "tables", "format")
_READ, _WRITE, _ADMIN = Role.READ, Role.WRITE, Role.ADMIN


def routes_of(
    scope: RequestScope, jobs: JobRoutes, pipeline: Pipeline, exposition: Exposition
) -> list[Route]:
    """Return all routes; the first that fits a path answers. `exposition` has the metrics."""
    served = scope.served
    system = SystemRoutes(served, scope.sessions, jobs, pipeline, exposition)
    transactions, feed = TransactionRoutes(scope), ChangeRoutes(served)
    follow = FollowRoutes(served).follow
    past, publishes, sql = PastRoutes(served), PublishRoutes(served), StatementRoutes(scope)
    routes = [
        # the server, its jobs, and its feed
        _get("/healthz", Role.NOBODY, system.healthz, is_at_once=True),
        _get("/readyz", Role.NOBODY, system.readyz, is_at_once=True),
        _get("/openapi.json", _READ, system.described),
        _get("/metrics", _READ, system.metrics, gives=TEXT),
        _get("/v1/status", _READ, system.status),
        _get("/v1/changes", _READ, feed.changes, gives=STREAM, query=_RANGE, is_read=True),
        _get("/v1/follow", _READ, follow, gives=EVENTS, query=("since", "tables", "seqs")),
        _get("/v1/log", _READ, past.log, query=("limit",)),
        _get("/v1/records", _READ, publishes.records, query=("limit", "before")),
        _get("/v1/diff", _READ, past.diff, gives=STREAM, query=_DIFF, is_read=True),
        _post("/v1/sql", _READ, sql.run, gives=STREAM, query=("format",), is_statement=True),
        _get("/v1/jobs", _READ, jobs.list_all),
        _get("/v1/jobs/{id}", _READ, jobs.status),
        _post("/v1/checkpoint", _WRITE, jobs.checkpoint),
        _post("/v1/merge", _WRITE, jobs.merge),
        _post("/v1/optimize", _WRITE, jobs.optimize),
        _post("/v1/vacuum", _ADMIN, jobs.vacuum),
        # transactions
        _post("/v1/transaction/begin", _READ, transactions.begin),
        _post("/v1/transaction/apply", _WRITE, transactions.apply, grouping=transactions.upserts),
        _post("/v1/transaction/{id}/commit", _READ, transactions.commit),
        _post("/v1/transaction/{id}/rollback", _READ, transactions.rollback),
        _post("/v1/transaction/{id}/describe", _READ, transactions.describe),
        _post("/v1/transaction/{id}/alter", _READ, transactions.alter),
        *routes_of_specification(scope),
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
        # A body may have members that are not offered; `apply` is spared the look.
        is_checked=asked not in {None, ApplyRequest},
        **more,
    )


_post, _get = partial(_route, "POST"), partial(_route, "GET", takes=NOTHING)
