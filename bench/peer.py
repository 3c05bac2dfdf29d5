"""Peer: what a workload asks of a store, and which stores there are.

A peer is opened by its class, on a path that exists or not. It is called by many threads at once;
what it must not share (a connection) it keeps per thread. What it cannot do it does not promise
in `takes`: a workload asks only those that name it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from bench.data import Move, Row


class Peer(Protocol):
    """One store with the accounts and the ledger."""

    name: str
    is_durable: bool  # an acknowledged commit was synced
    takes: frozenset[str]

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        """Open or create the store; `keep_log`: nothing leaves the log until the process ends."""

    def load(self, rows: pa.Table) -> None:
        """Fill the empty accounts; durable on return."""

    def upsert_one(self, row: Row) -> None: ...

    def upsert_batch(self, rows: pa.Table) -> None: ...

    def transfer(self, move: Move) -> int:
        """Move money and write two ledger rows, all or nothing; return how often it was retried."""
        ...

    def get(self, key: int) -> object:
        """Return the whole row of `key`, or None."""
        ...

    def scan_sum(self) -> int:
        """Return the sum of all balances."""
        ...

    def scan_all(self) -> int:
        """Bring every column of every account to Arrow; return the number of rows."""
        ...

    def settle(self) -> None:
        """Do all background work now: checkpoint, merge, compact."""

    def close(self) -> None: ...


_CLASSES = {
    "siltstone": "bench.peers.siltstone:Siltstone",
    "sqlite": "bench.peers.sqlite:Sqlite",
    "rocksdb": "bench.peers.rocksdb:RocksDb",
    "duckdb": "bench.peers.duck:Duck",
    "ladybug": "bench.peers.ladybug:Ladybug",
    "lance": "bench.peers.lance_merge:LanceMerge",
    "memwal": "bench.peers.lance_memwal:LanceMemWal",
}
NAMES = tuple(_CLASSES)


def find(name: str) -> type[Peer]:
    """Return the class of a peer.

    Raises:
        ImportError: What it needs is not installed.
    """
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Peer] = getattr(importlib.import_module(module), attribute)
    return found
