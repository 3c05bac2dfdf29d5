"""Families: every metric of a store in one table: its name, kind, labels and meaning.

The meanings are the HELP lines of `/metrics`, and docs/metrics.md is made of them. A new one needs
a row here, and its value in `sources`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BUILD = ("version", "python", "pylance", "pyarrow")
Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; counters end in `_total`, times are in seconds, sizes in bytes."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(f"siltstone_{name}", "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(f"siltstone_{name}_total", "counter", text, labels)


def _seconds(name: str, text: str) -> Family:
    return Family(f"siltstone_{name}_seconds", "histogram", text)


STORE = (
    _gauge("build_info", "1, with the versions of what runs.", *BUILD),
    _gauge("epoch", "How often the store was opened for writing."),
    _gauge("visible_seq", "The last commit that a new snapshot sees."),
    _gauge("durable_seq", "The last commit that survives a power loss."),
    _gauge("flushed_seq", "Commits up to this one are in Lance."),
    _gauge("oldest_seq", "The oldest seq that can be read."),
    _gauge("checkpoint_lag_seqs", "Commits that are in the log, but not in Lance yet."),
    _gauge("wal_bytes", "Bytes of the log's files."),
    _gauge("wal_segments", "Files of the log."),
    _gauge("active_rows", "Rows in memtables that take commits."),
    _gauge("sealed_rows", "Rows that are being flushed."),
    _gauge("sealed_generations", "Sets of memtables that wait to be flushed."),
    _gauge("memory_bytes", "Memory that counts against the budget."),
    _gauge("memory_bytes_max", "The budget, memory_bytes_max."),
    _gauge("cache_bytes", "Bytes of this store's files in the cache folder."),
    _gauge("cache_bytes_max", "The bound of the files of all stores in the cache folder."),
    _gauge("unmerged_bytes", "Memory that memtables and indexes of unmerged history take."),
    _gauge("maintenance_failed", "1 while the last background work failed, otherwise 0."),
    _gauge("open_transactions", "Transactions that have begun and not ended, of all clients."),
    _gauge("leases", "Manifest records that this process reads."),
    _gauge("turns_held", "Tables whose turn a transaction holds after it lost a race."),
    _gauge("turns_waiting", "Transactions that wait for the turn of a table."),
)
TABLES = (
    _gauge("tables", "Tables of the store."),
    _gauge(
        "table_base_rows",
        "Rows of a table's base, or of its newest version if it has no key.",
        "table",
    ),
    _gauge("table_unmerged_rows", "Row versions that are not merged into a table's base.", "table"),
    _gauge("table_bytes", "Bytes of the files of a table's newest versions.", "table"),
)
MIRRORS = (
    _gauge("mirror_seq", "The last commit that a mirror has.", "url"),
    _gauge("mirror_behind", "Commits that a mirror has not.", "url"),
    _gauge("mirror_age_seconds", "How old the last commit of a mirror is that is behind.", "url"),
    _gauge("mirror_bytes", "Bytes of the files of a mirror's newest record.", "url"),
    _gauge("mirror_left_bytes", "Bytes that are on their way to a mirror.", "url"),
    _gauge("mirror_held_bytes", "Bytes of old files that wait until a mirror has them.", "url"),
    _gauge("unshipped_commits", "Commits that are durable here, and not yet in a bucket's log."),
)
WORK = (
    _counter("commits", "Commits since the store was opened."),
    _seconds("commit", "Commits, from their wait for room until durable (async: visible)."),
    _counter("conflicts", "Commits that raised ConflictError; each try counts."),
    _counter("commits_slowed", "Commits that were slowed because maintenance lags."),
    _counter("commits_slowed_seconds", "How long commits were slowed."),
    _counter("commits_stopped", "Commits that were stopped because maintenance lags."),
    _counter("commits_stopped_seconds", "How long commits were stopped."),
    _seconds("checkpoint", "Checkpoints that wrote something."),
    _seconds("merge", "Merges that this process ran or started."),
    _seconds("optimize", "Runs of optimize that this process ran or started."),
    _seconds("vacuum", "Runs of vacuum that deleted files, or found none to delete."),
    _seconds("backup", "Backups by db.backup of this process, not by other processes."),
    _seconds("sql", "Statements of SQL, until their first rows, or until their writes are found."),
    _seconds("read", "Requests over HTTP that read rows, until their answer begins."),
    _seconds("get", "Samples of get in this process: of each table the first after a scrape."),
    _gauge("last_timestamp_seconds", "When the last work of a kind ended, since 1970.", "work"),
)
SERVER = (
    _counter("requests", "Requests, by the template of their route.", "route", "status"),
    _counter("request_seconds", "The time of all requests, until their answers begin."),
    _gauge("server_requests_inside", "Requests that the server is answering."),
    _gauge("server_body_bytes_inside", "Bytes of request bodies in the server's memory."),
    _gauge("server_transactions", "Transactions that clients of the server hold open."),
    _gauge("server_jobs_open", "Maintenance jobs that REST clients started and that run or wait."),
)
FAMILIES = (*STORE, *TABLES, *MIRRORS, *WORK, *SERVER)
