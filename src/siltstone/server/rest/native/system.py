"""System routes: health, readiness, status and metrics of the server itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import accumulate
from typing import Any

import msgspec

from siltstone.errors import UnavailableError
from siltstone.process.latency import BOUNDS_S, Latency
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Route
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.jobs import JobRoutes
from siltstone.server.rest.openapi import document
from siltstone.server.rest.wire import TEXT_TYPE
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions

_GAUGES = (
    *("visible_seq", "durable_seq", "flushed_seq", "oldest_seq", "wal_bytes", "wal_segments"),
    *("active_rows", "sealed_rows", "sealed_generations", "open_transactions", "leases"),
)


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

    def described(self, _: RestCall[None]) -> Reply[dict[str, Any]]:
        """Return the OpenAPI document of all routes."""
        return Reply(self._document)

    def healthz(self, _: RestCall[None]) -> Reply[bodies.HealthAnswer]:
        """Say that the process answers."""
        return Reply(bodies.HealthAnswer("ok"))

    def readyz(self, _: RestCall[None]) -> Reply[bodies.HealthAnswer]:
        """Say whether it takes writes: not when it closes, nor when the log is poisoned."""
        committer = self.served.parts.core.committer
        if self.pipeline.is_closing or committer is None or committer.poisoned:
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
        return Reply("".join(self._metrics()).encode(), media_type=TEXT_TYPE)

    def _metrics(self) -> Iterator[str]:
        found, counters = self.served.db.status(), self.pipeline.counters
        gauges: dict[str, float] = {
            **{name: getattr(found, name) for name in _GAUGES},
            "checkpoint_lag_seqs": found.visible_seq - found.flushed_seq,
            "memory_bytes": found.memory.total,
            "memory_bytes_max": found.memory.bytes_max,
            "cache_bytes": found.cache.bytes,
            "cache_bytes_max": found.cache.bytes_max,
            "unmerged_bytes": found.backpressure.unmerged_bytes,
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
        for name in ("slowed", "stopped"):
            seconds = getattr(found.backpressure, f"{name}_s")
            yield f"# TYPE siltstone_commits_{name}_seconds_total counter\n"
            yield f"siltstone_commits_{name}_seconds_total {seconds:g}\n"
        commits = self.served.parts.core.latency
        yield "# TYPE siltstone_conflicts_total counter\n"
        yield f"siltstone_conflicts_total {commits.conflicts}\n"
        yield from _histogram("siltstone_commit_seconds", commits)
        yield from _histogram("siltstone_read_seconds", counters.reads)
        yield "# TYPE siltstone_request_seconds_total counter\n"
        yield f"siltstone_request_seconds_total {counters.seconds:g}\n"
        yield "# TYPE siltstone_requests_total counter\n"
        for (route, status), count in list(counters.by_route.items()):
            label = '{route="' + _escaped(route) + f'",status="{status}"' + "}"
            yield f"siltstone_requests_total{label} {count}\n"


def _histogram(name: str, latency: Latency) -> Iterator[str]:
    buckets, seconds, _ = latency.taken()
    yield f"# TYPE {name} histogram\n"
    for bound, count in zip((*BOUNDS_S, "+Inf"), accumulate(buckets), strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}\n'
    yield f"{name}_sum {seconds:g}\n{name}_count {sum(buckets)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
