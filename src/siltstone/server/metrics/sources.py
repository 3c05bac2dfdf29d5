"""Sources: where the value of each metric comes from, read when a client asks for it.

Nothing here is counted a second time: the parts of the store count for themselves, and the numbers
of `status` are read. So a commit pays for no metric. A new number of `status` needs a line in
`_of_store`.

Series are bounded. Tables have one each, up to `TABLES_MAX` of them: those that were made first,
which never changes while they live. All others together are the table `OTHERS`, a name that no
table has, so sums stay right. Routes are templates, of which there are as many as the server has.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from siltstone.api.results import Status
from siltstone.local.tables import sample_gets
from siltstone.process.latency import Latency
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.metrics.families import BUILD
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions

TABLES_MAX = 200
OTHERS = "_others"
Labelled = Mapping[tuple[str, ...], float]
Value = float | Latency | Labelled
"""A number; the buckets of a histogram; or numbers by the values of the labels."""

_OF_STATUS = (
    *("epoch", "visible_seq", "durable_seq", "flushed_seq", "oldest_seq", "wal_bytes"),
    *("wal_segments", "active_rows", "sealed_rows", "sealed_generations", "open_transactions"),
    "leases",
)


@dataclass(frozen=True, slots=True)
class Sources:
    """See the module. Any thread."""

    served: Served
    sessions: Sequence[Sessions]
    pipelines: Sequence[Pipeline]
    """All that answer requests; the first has the reads of all."""
    open_jobs: Callable[[], int]

    def values(self) -> dict[str, Value]:
        """Return the values of all families, by their names without "siltstone_"."""
        found = self.served.db.status()
        return {
            "build_info": {_build(): 1.0},
            **_of_store(found),
            **self._of_tables(found),
            **_of_mirrors(found),
            **self._of_commits(found),
            **self._of_work(),
            **self._of_server(),
        }

    def _of_tables(self, found: Status) -> dict[str, Value]:
        living = self.served.parts.core.state().view.catalog.tables
        ids = {each.names[-1].name: each.id for each in living if each.dropped is None}
        names = sorted((t.name for t in found.tables), key=lambda name: ids.get(name, 0))
        shown = {*names[:TABLES_MAX]}

        def each(field: str) -> Labelled:
            numbers: dict[tuple[str, ...], float] = {}
            for table in found.tables:
                label = (table.name if table.name in shown else OTHERS,)
                numbers[label] = numbers.get(label, 0) + getattr(table, field)
            return numbers

        return {
            "tables": len(names),
            "table_base_rows": each("base_rows"),
            "table_unmerged_rows": each("unmerged_rows"),
            "table_bytes": each("nbytes"),
        }

    def _of_commits(self, found: Status) -> dict[str, Value]:
        core, held_back = self.served.parts.core, found.backpressure
        held, waiting = core.turns.counts()
        return {
            "commits_total": found.commits_since_open,
            "commit_seconds": core.latency,
            "conflicts_total": core.latency.conflicts,
            "commits_slowed_total": held_back.slowed_commits,
            "commits_slowed_seconds_total": held_back.slowed_s,
            "commits_stopped_total": held_back.stopped_commits,
            "commits_stopped_seconds_total": held_back.stopped_s,
            "turns_held": held,
            "turns_waiting": waiting,
        }

    def _of_work(self) -> dict[str, Value]:
        works = self.served.parts.core.works
        sample_gets(self.served.parts.core.state().view)
        return {
            **{f"{work.kind}_seconds": work.latency for work in works},
            "read_seconds": self.pipelines[0].counters.reads,
            "get_seconds": works.gets,
            "last_timestamp_seconds": {(k,): s for k, s in self._ended_s() if s},
        }

    def _ended_s(self) -> Iterator[tuple[str, float]]:
        """Yield when the last work of each kind ended, also that of other processes' jobs."""
        parts = self.served.parts
        committer = parts.core.committer
        yield "commit", 0.0 if committer is None else committer.last_time_us / 1e6
        yield "read", self.pipelines[0].counters.reads.ended_s
        jobs = {one.job.kind: one.ended_us / 1e6 for one in parts.site.jobs.finished()}
        for work in parts.core.works:
            yield work.kind, max(work.latency.ended_s, jobs.get(work.kind, 0.0))

    def _of_server(self) -> dict[str, Value]:
        counters = [pipeline.counters for pipeline in self.pipelines]
        by_route = [each for one in counters for each in list(one.by_route.items())]
        return {
            "requests_total": {(route, str(status)): n for (route, status), n in by_route},
            "request_seconds_total": sum(one.seconds for one in counters),
            "server_requests_inside": sum(one.inside for one in counters),
            "server_body_bytes_inside": sum(each.bodies.nbytes for each in self.pipelines),
            "server_transactions": sum(each.count for each in self.sessions),
            "server_jobs_open": self.open_jobs(),
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
    }


def _of_mirrors(found: Status) -> dict[str, Value]:
    def each(field: str) -> Labelled:
        return {(mirror.url,): float(getattr(mirror, field)) for mirror in found.mirrors}

    return {
        "mirror_seq": each("seq"),
        "mirror_behind": each("behind"),
        "mirror_age_seconds": each("age_s"),
        "mirror_bytes": each("nbytes"),
        "mirror_left_bytes": each("left_bytes"),
        "mirror_held_bytes": each("held_bytes"),
        "unshipped_commits": found.unshipped or 0,
    }


def _build() -> tuple[str, ...]:
    versions = {"version": version("siltstone"), "python": platform.python_version()}
    return tuple(versions.get(name) or version(name) for name in BUILD)
