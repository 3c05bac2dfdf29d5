"""System routes: health, readiness, status and metrics of the server itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import msgspec

from siltstone.errors import UnavailableError
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Route
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.jobs import JobRoutes
from siltstone.server.rest.openapi import document
from siltstone.server.rest.replies import TEXT_TYPE
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions


@dataclass(frozen=True, slots=True)
class SystemRoutes:
    """See the module. Any thread."""

    served: Served
    sessions: Sessions
    jobs: JobRoutes
    pipeline: Pipeline
    _document: dict[str, object] = field(default_factory=dict[str, object])

    def describe(self, routes: Sequence[Route]) -> None:
        """Describe these routes in `/openapi.json`."""
        self._document.update(document(routes, version("siltstone")))

    def described(self, _: RestCall) -> Reply:
        """Return the OpenAPI document of all routes."""
        return Reply(self._document)

    def healthz(self, _: RestCall) -> Reply:
        """Say that the process answers."""
        return Reply({"status": "ok"})

    def readyz(self, _: RestCall) -> Reply:
        """Say whether it takes writes: not when it closes, nor when the log is poisoned."""
        committer = self.served.parts.core.committer
        if self.pipeline.is_closing or committer is None or committer.poisoned:
            raise UnavailableError("the store takes no writes")
        return Reply({"status": "ready"})

    def status(self, _: RestCall) -> Reply:
        """Return what the store holds and owes now."""
        found = self.served.db.status()
        self.served.settle()
        body = msgspec.to_builtins(found.to_dict(), enc_hook=str)
        server = {
            "requests": self.pipeline.counters.inside,
            "transactions": self.sessions.count,
            "jobs": self.jobs.open,
        }
        return Reply({**body, "server": server}, found.visible_seq)

    def metrics(self, _: RestCall) -> Reply:
        """Return the same in the text format of Prometheus."""
        return Reply("".join(self._metrics()).encode(), media_type=TEXT_TYPE)

    def _metrics(self) -> Iterator[str]:
        found, counters = self.served.db.status(), self.pipeline.counters
        gauges: dict[str, float] = {
            "visible_seq": found.visible_seq,
            "durable_seq": found.durable_seq,
            "flushed_seq": found.flushed_seq,
            "oldest_seq": found.oldest_seq,
            "checkpoint_lag_seqs": found.visible_seq - found.flushed_seq,
            "wal_bytes": found.wal_bytes,
            "wal_segments": found.wal_segments,
            "active_rows": found.active_rows,
            "sealed_rows": found.sealed_rows,
            "sealed_generations": found.sealed_generations,
            "memory_bytes": found.memory.total,
            "memory_bytes_max": found.memory.bytes_max,
            "open_transactions": found.open_transactions,
            "leases": found.leases,
            "maintenance_failed": float(found.failure is not None),
            "server_requests_inside": counters.inside,
            "server_body_bytes_inside": self.pipeline.bodies.nbytes,
            "server_transactions": self.sessions.count,
            "server_jobs_open": self.jobs.open,
        }
        for name, value in gauges.items():
            yield f"# TYPE siltstone_{name} gauge\nsiltstone_{name} {value}\n"
        for table in found.tables:
            label = '{table="' + _escaped(table.name) + '"}'
            yield f"siltstone_table_unmerged_rows{label} {table.unmerged_rows}\n"
        yield "# TYPE siltstone_commits_total counter\n"
        yield f"siltstone_commits_total {found.commits_since_open}\n"
        yield "# TYPE siltstone_request_seconds_total counter\n"
        yield f"siltstone_request_seconds_total {counters.seconds:g}\n"
        yield "# TYPE siltstone_requests_total counter\n"
        for (route, status), count in list(counters.by_route.items()):
            label = '{route="' + _escaped(route) + f'",status="{status}"' + "}"
            yield f"siltstone_requests_total{label} {count}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
