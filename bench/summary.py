"""Summary: the five sentences with which the page of benchmarks begins, before any table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.report import number
from bench.results import Results

_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB", "lance": "Lance", "deltalake": "Delta"}


def sentences(results: Results, met: int, measured: int) -> Iterator[str]:
    """Yield the sentences; what was not measured is called so."""

    def said(workload: str, metric: str, *peers: str) -> str:
        return f"{_value(results, workload, metric)} ({_beside(results, workload, metric, peers)})"

    yield (
        f"From one thread siltstone commits {said('W1', '1 threads', 'sqlite', 'duckdb')} durable"
        " rows per second, one by one, and from eight threads"
        f" {said('W1', '8 threads', 'sqlite', 'duckdb')}."
    )
    yield (
        f"Transfers of four statements on two tables: {said('W3', '1 threads', 'sqlite')} per"
        f" second from one thread, {said('W3', '8 threads', 'sqlite')} from eight."
    )
    yield (
        f"Batches of 100,000 rows are upserted at {said('W2', '100,000 rows', 'sqlite', 'duckdb')}"
        " rows per second."
    )
    yield (
        f"By its key a recent row is read {said('W4', 'recent', 'sqlite')} times per second; a scan"
        f" of all columns gives {said('W5', 'clean all columns', 'lance', 'duckdb')} rows per"
        f" second, of few columns {said('W5', 'clean narrow', 'lance', 'duckdb')}."
    )
    yield (
        f"Of the {measured} targets that siltstone set itself {met} are met; each missed one has"
        " its reason below."
    )


def _value(results: Results, workload: str, metric: str, *peer: str) -> str:
    found = results.value(workload, metric, *peer)
    return "not measured" if found is None else number(found)


def _beside(results: Results, workload: str, metric: str, peers: Sequence[str]) -> str:
    return ", ".join(f"{_NAMES[peer]} {_value(results, workload, metric, peer)}" for peer in peers)
