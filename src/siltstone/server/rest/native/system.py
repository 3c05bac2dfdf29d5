"""System routes: health, readiness, status and metrics of the server itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import msgspec

from siltstone.errors import UnavailableError
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Route
from siltstone.server.metrics.exposition import Exposition
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.jobs import JobRoutes
from siltstone.server.rest.openapi import document
from siltstone.server.rest.wire import TEXT_TYPE
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions


@dataclass(frozen=True, slots=True)
class SystemRoutes:
    """See the module. Any thread."""

    served: Served
    sessions: Sessions
    jobs: JobRoutes
    pipeline: Pipeline
    exposition: Exposition
    _document: dict[str, object] = field(default_factory=dict[str, object])

    def describe(self, routes: Sequence[Route]) -> None:
        """Describe these routes in `/openapi.json`."""
        self._document.update(document(routes, version("siltstone")))

    def described(self, _: RestCall[None]) -> Reply[dict[str, Any]]:
        """Return the OpenAPI document of all routes."""
        return Reply(self._document)

    def healthz(self, _: RestCall[None]) -> Reply[bodies.HealthAnswer]:
        """Say that the process answers."""
        return Reply(bodies.HealthAnswer("ok"))

    def readyz(self, _: RestCall[None]) -> Reply[bodies.HealthAnswer]:
        """Say whether it takes writes: not when it closes, nor when the log is poisoned.

        Of a store at a URL it takes none: there it says whether it answers reads.
        """
        committer = self.served.parts.core.committer
        if self.pipeline.is_closing or (committer is not None and committer.poisoned):
            raise UnavailableError("the store takes no writes")
        return Reply(bodies.HealthAnswer("ready"))

    def status(self, _: RestCall[None]) -> Reply[bodies.StatusAnswer]:
        """Return what the store holds and owes now."""
        found = self.served.db.status()
        self.served.settle()
        body = msgspec.to_builtins(found.to_dict(), enc_hook=str)
        inside, transactions = self.pipeline.counters.inside, self.sessions.count
        body["server"] = bodies.ServerCounts(inside, transactions, self.jobs.open)
        return Reply(body, found.visible_seq)

    def metrics(self, _: RestCall[None]) -> Reply[bytes]:
        """Return the same in the text format of Prometheus."""
        return Reply(self.exposition.text(), media_type=TEXT_TYPE)
