"""Targets: what siltstone promises of its speed, and whether a run kept it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bench.results import Results

Question = Callable[[Results], float | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A target, and what was measured; `spread` is the lowest and highest value of a round."""

    name: str
    bound: float
    value: float | None
    is_ceiling: bool
    spread: tuple[float, float] | None = None

    @property
    def subject(self) -> str:
        """The workload that a target asks, or Spark: the first word of its name."""
        return re.split(r"\W", self.name, maxsplit=1)[0]

    @property
    def is_met(self) -> bool | None:
        """Whether it is met; None where it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.is_ceiling else self.value >= self.bound


@dataclass(frozen=True, slots=True)
class Target:
    """`value` must reach `bound`, or stay at or below it for a ceiling."""

    name: str
    bound: float
    value: Question
    is_ceiling: bool = False

    def answer(self, results: Results) -> Answer:
        """Return what a run found; the spread of two rounds or more."""
        each = (self.value(results.of_round(n)) for n in range(results.most_rounds))
        found = [value for value in each if value is not None]
        spread = (min(found), max(found)) if len(found) > 1 else None
        return Answer(self.name, self.bound, self.value(results), self.is_ceiling, spread)


def _against(workload: str, metric: str, *peers: str) -> Question:
    """Ask for ours / the best of `peers`; without peers, of all durable ones."""
    return lambda r: r.ratio(workload, metric, list(peers) or r.peers(durable=True))


def _plain(workload: str, metric: str) -> Question:
    return lambda r: r.value(workload, metric)


def _worst(workload: str, metric: str) -> Question:
    return lambda r: r.worst(workload, metric)


def _before(what: str) -> Question:
    """Ask for our CPU time / that of an older commit, where the run was given one."""
    return _plain("reach", f"before: CPU of {what}, x")


def _lesser(workload: str, *metrics: str) -> Question:
    """Ask for the smallest of several medians: a promise about both is about the worse one."""

    def question(results: Results) -> float | None:
        found = [results.value(workload, metric) for metric in metrics]
        known = [value for value in found if value is not None]
        return min(known) if known else None

    return question


def _overlaid(columns: str) -> Question:
    """Ask for our overlaid scan as a share of a raw clean scan of the same columns."""

    def question(results: Results) -> float | None:
        ours = results.value("W5", f"overlaid {columns}")
        raw = results.value("W5", f"clean {columns}", "lance")
        return ours / raw if ours and raw else None

    return question


ALL = (
    Target("CPU of a commit without its sync, us", 22.0, _plain("CPU", "commit us"), True),
    Target("CPU of a commit: calls, those of C too", 110, _plain("CPU", "commit calls"), True),
    Target("CPU of a transfer, 8 threads, us", 180.0, _plain("CPU", "transfer us"), True),
    Target("CPU of a transfer: context switches", 3.0, _plain("CPU", "transfer switches"), True),
    Target("W1, 1 thread: x SQLite", 0.95, _against("W1", "1 threads", "sqlite")),
    Target("W1, 8 threads: x best durable peer", 2.5, _against("W1", "8 threads")),
    Target("W1, 64 threads: x best durable peer", 3.5, _against("W1", "64 threads")),
    Target("W2, 1,000 rows: x best durable peer", 2.5, _against("W2", "1,000 rows")),
    Target("W2, 100,000 rows: x best durable peer", 2.5, _against("W2", "100,000 rows")),
    Target("W3, 8 threads: x best durable peer", 1.5, _against("W3", "8 threads")),
    Target("W3, hot: retries per commit", 1.5, _plain("W3", "8 threads hot retries/tx"), True),
    Target("W3: money lost or made", 0.0, _worst("W3", "drift"), True),
    Target("W4, recent: reads/s", 250_000, _plain("W4", "recent")),
    Target("W4, recent, 8 threads: x 1 thread", 1.0, _plain("W4", "recent, 8 threads / 1")),
    Target("large: CPU of a get, us", 20.0, _plain("large", "get us"), True),
    Target("large: 8 threads: x 1 thread", 1.0, _plain("large", "8 threads / 1")),
    Target(
        "large: CPU of a transfer: x SQLite",
        2.5,
        lambda r: r.ratio("large", "transfer us", ["sqlite"], less_is_more=True),
        is_ceiling=True,
    ),
    Target(
        "large: anonymous MiB at 256 MiB", 450.0, _worst("large", "anonymous MiB at 256 MiB"), True
    ),
    Target("W5, clean narrow: x raw Lance", 0.9, _against("W5", "clean narrow", "lance")),
    Target("W5, clean all: x raw Lance", 0.9, _against("W5", "clean all columns", "lance")),
    Target("W5, overlaid narrow, warm: x raw Lance", 0.6, _overlaid("narrow")),
    Target("W5, overlaid all: x raw Lance", 0.9, _overlaid("all columns")),
    Target("W6: x raw Lance, both synced", 0.4, _against("W6", "load", "lance")),
    Target("W7: scans/s beside a writer", 150.0, _plain("W7", "scans/s writing")),
    Target(
        "W8: x best peer's time",
        0.15,
        lambda r: r.ratio("W8", "seconds", r.peers(), less_is_more=True),
        is_ceiling=True,
    ),
    Target("W9: kept of both", 0.85, _lesser("W9", "commits kept", "reads kept")),
    Target("W9: commits' p99.9 / idle", 3.0, _plain("W9", "commits' p99.9 / idle"), True),
    Target("W9: reads' p99.9 / idle", 3.0, _plain("W9", "reads' p99.9 / idle"), True),
    Target("W10: commits kept beside an optimize", 0.7, _plain("W10", "commits kept")),
    Target("W10: p99 / idle", 2.0, _plain("W10", "p99 / idle"), True),
    Target("W10: optimized in vain", 0.2, _worst("W10", "in vain / written"), True),
    Target("W11: rows/s", 1_000_000, _lesser("W11", "above all keys", "all over")),
    Target(
        "W12: x fresh Lance",
        0.95,
        _lesser("W12", "narrow / fresh Lance", "all columns / fresh Lance"),
    ),
    Target("ranges: 100 of 10 M rows, ms", 0.3, _plain("ranges", "large: 100 rows ms"), True),
    Target("ranges: 100 side by side, ms", 0.3, _plain("ranges", "ordered: 100 rows ms"), True),
    Target("ranges: of 10 M rows / of 100,000", 1.5, _plain("ranges", "large / small"), True),
    Target("ranges: next page by SQL, ms", 4.0, _plain("ranges", "large: SQL ms"), True),
    Target("ranges: 100 texts side by side, ms", 0.3, _plain("ranges", "texts: 100 rows ms"), True),
    Target("ranges: texts, of 10 M / of 100,000", 1.5, _plain("ranges", "texts / small"), True),
    Target("ranges: next page of texts by SQL, ms", 4.0, _plain("ranges", "texts: SQL ms"), True),
    Target("index: few rows, x without", 3.0, _plain("index", "one value: x without")),
    Target("index: half of the rows, x without", 0.9, _plain("index", "half of all: x without")),
    Target("sql: a small statement, CPU ms", 3.0, _plain("sql", "small ms"), True),
    Target("sql: large ones in memory: x DuckDB", 2.0, _plain("sql", "large: x DuckDB"), True),
    Target("writes: a row by SQL, ms more", 1.0, _plain("writes", "new: more ms"), True),
    Target("writes: the same text again, ms more", 0.2, _plain("writes", "again: more ms"), True),
    Target("writes: 100,000 rows: x upsert", 0.8, _plain("writes", "100,000 rows: x upsert")),
    Target(
        "writes: DELETE of a tenth of 10 M rows: x delete_where",
        2.0,
        _plain("many", "delete: x delete_where"),
        True,
    ),
    Target("W13: vacuum, s", 10.0, _worst("W13", "seconds"), True),
    Target("W14: open, ms", 100.0, _plain("W14", "open ms"), True),
    Target("W14: open a small store, ms", 50.0, _plain("W14", "open ms, small"), True),
    Target("W14: commits/s / new", 0.95, _plain("W14", "commits/s / new")),
    Target("W14: record bytes / new", 1.1, _worst("W14", "record bytes / new"), True),
    Target("http: row transactions/s", 2_500, _plain("http", "row transactions/s, 16 clients")),
    Target("http: point read p50, ms", 3.0, _plain("http", "point read p50 ms"), True),
    Target("http: scan / embedded", 0.5, _plain("http", "scan / embedded")),
    Target("http: rate beside scrapes / alone", 0.9, _plain("http", "rate beside scrapes / alone")),
    Target(
        "http: p99 beside scrapes / alone", 1.5, _plain("http", "p99 beside scrapes / alone"), True
    ),
    Target("processes: upsert p50, ms", 0.3, _plain("processes", "upsert p50 ms"), True),
    Target("processes: 4 together/s", 5_000, _plain("processes", "upserts/s, 4 processes")),
    Target("processes: least share of 4", 0.5, _plain("processes", "least share of 4")),
    Target("processes: get and update p50", 0.5, _plain("processes", "transaction p50 ms"), True),
    Target(
        "processes: owner's CPU, us", 150, _plain("processes", "owner CPU us of an upsert"), True
    ),
    Target("processes: get p50, us", 40.0, _plain("processes", "get us"), True),
    Target("processes: get, writing, us", 80.0, _plain("processes", "get us, writing"), True),
    Target("processes: late / all, writing", 1.1, _plain("processes", "late / all, writing"), True),
    Target("processes: two / one", 1.7, _plain("processes", "two / one")),
    Target("processes: scan of 1,000 rows, ms", 0.1, _plain("processes", "scan ms"), True),
    Target("processes: take-over, s", 0.3, _plain("processes", "take-over s"), True),
    Target("processes: MiB after gets", 200.0, _worst("processes", "MiB"), True),
    Target("processes: MiB after sql", 280.0, _worst("processes", "MiB after sql"), True),
    Target("loop: upserts/s: x 16 threads", 0.8, _plain("loop", "rate / threads")),
    Target("loop: p99 stall / computing", 1.0, _plain("loop", "p99 stall / computing"), True),
    Target(
        "versions: create / its syncs alone",
        1.3,
        _plain("versions", "create / its syncs alone"),
        True,
    ),
    Target(
        "versions: x Lance's __manifest",
        10.0,
        _lesser("versions", "x __manifest", "x __manifest, many versions"),
    ),
    Target("versions: many / new", 1.1, _plain("versions", "many versions / new"), True),
    Target(
        "memory: grown / budget while 20 x that are written",
        1.3,
        _worst("memory", "grown writing / budget"),
        True,
    ),
    Target(
        "memory: anonymous MiB, budget of 64",
        300.0,
        _worst("memory", "anonymous MiB, budget of 64"),
        True,
    ),
    Target(
        "memory: anonymous MiB, budget of 256",
        450.0,
        _worst("memory", "anonymous MiB, budget of 256"),
        True,
    ),
    Target(
        "reach: requests of a checkpoint's copy", 12, _worst("reach", "checkpoint: requests"), True
    ),
    Target(
        "reach: rounds of a checkpoint's copy", 2.0, _plain("reach", "checkpoint: rounds"), True
    ),
    Target(
        "reach: puts of each further table", 4.0, _worst("reach", "each further table: puts"), True
    ),
    *(
        Target(
            f"reach: a shipped commit / a put, {added} ms added",
            1.2,
            _plain("reach", f"shipped / a put, {added} ms added"),
            True,
        )
        for added in (0, 30, 100)
    ),
    Target("reach: shipped/s, 64 clients / 1", 20.0, _plain("reach", "shipped: 64 clients / 1")),
    *(
        Target(
            f"reach: {scan}, x raw Lance, {added} ms added",
            0.9,
            _plain("reach", f"{scan}: x raw Lance, {added} ms added"),
        )
        for scan in ("scan", "scan again")
        for added in (0, 30, 100)
    ),
    Target(
        "reach: a reader's lag p99 beyond a look, in puts",
        3.0,
        _plain("reach", "reader: lag p99 beyond a look, puts, 30 ms added"),
        True,
    ),
    Target("reach: CPU of the import / before", 1.01, _before("import"), True),
    Target("reach: CPU of upserts / before", 1.01, _before("upserts"), True),
    Target("reach: kept with a mirror", 0.97, _plain("reach", "upserts/s kept with a mirror")),
    Target(
        "reach: modules of a mirror without one",
        0.0,
        _worst("reach", "modules of a mirror without one"),
        True,
    ),
    Target(
        "reach: lists of a vacuum - keys / 1,000",
        4.0,
        _worst("reach", "vacuum: lists - keys / 1,000"),
        True,
    ),
    Target("start: our own CPU, ms", 80.0, _plain("start", "our own CPU ms"), True),
)
