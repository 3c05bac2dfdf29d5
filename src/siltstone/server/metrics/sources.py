"""Sources: where the value of each metric comes from, read when a client asks for it.

Nothing here is counted a second time: the parts of the store count for themselves, and the numbers
of `status` are read. So a commit pays for no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from siltstone.api.results import Status
from siltstone.process.latency import Latency
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions

Value = float | Latency | Mapping[tuple[str, ...], float]
"""A number; the buckets of a histogram; or numbers by the values of the labels."""

_OF_STATUS = (
    *("visible_seq", "durable_seq", "flushed_seq", "oldest_seq", "wal_bytes", "wal_segments"),
    *("active_rows", "sealed_rows", "sealed_generations", "open_transactions", "leases"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """See the module. Any thread."""

    served: Served
    sessions: Sessions
    pipeline: Pipeline
    open_jobs: Callable[[], int]

    def values(self) -> dict[str, Value]:
        """Return the values of all families, by their names without "siltstone_"."""
        found = self.served.db.status()
        return {**_of_store(found), **self._of_commits(found), **self._of_server()}

    def _of_commits(self, found: Status) -> dict[str, Value]:
        commits, held_back = self.served.parts.core.latency, found.backpressure
        return {
            "commits_total": found.commits_since_open,
            "commit_seconds": commits,
            "conflicts_total": commits.conflicts,
            "commits_slowed_seconds_total": held_back.slowed_s,
            "commits_stopped_seconds_total": held_back.stopped_s,
        }

    def _of_server(self) -> dict[str, Value]:
        counters = self.pipeline.counters
        by_route = list(counters.by_route.items())
        return {
            "read_seconds": counters.reads,
            "server_requests_inside": counters.inside,
            "server_body_bytes_inside": self.pipeline.bodies.nbytes,
            "server_transactions": self.sessions.count,
            "server_jobs_open": self.open_jobs(),
            "requests_total": {(route, str(status)): n for (route, status), n in by_route},
            "request_seconds_total": counters.seconds,
        }


def _of_store(found: Status) -> dict[str, Value]:
    return {
        **{name: getattr(found, name) for name in _OF_STATUS},
        "checkpoint_lag_seqs": found.visible_seq - found.flushed_seq,
        "memory_bytes": found.memory.total,
        "memory_bytes_max": found.memory.bytes_max,
        "cache_bytes": found.cache.bytes,
        "cache_bytes_max": found.cache.bytes_max,
        "unmerged_bytes": found.backpressure.unmerged_bytes,
        "maintenance_failed": float(found.failure is not None),
        "table_unmerged_rows": {(table.name,): table.unmerged_rows for table in found.tables},
    }
