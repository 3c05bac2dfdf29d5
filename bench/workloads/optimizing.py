"""W10: an optimize beside a live owner: what it costs the commits, and how much of it is in vain.

Two threads commit one row each time, while another process makes large files of 1 M rows of
history that lie in 100 small ones; against the same, for as long, when all is idle. Then an
optimize of a base of 100 files, ten of them to a new one, while a writer changes and merges a row
of one of them every second: what it wrote and could not publish, as a share of what it wrote. No
file is so small that a merge would rewrite it with the one that it touches.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import siltstone as st
from bench import data
from bench.measure import Clients, Operation, Sample, run_for
from bench.workload import Metrics, Place
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.engine.recover.following import Follower
from siltstone.formats.manifest import Pin
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.compaction.plain_table_commit import PlainTablesOfAnOwner
from siltstone.maintenance.merge.merge import COMPACT_BELOW_ROWS
from siltstone.open.environment import Storage, maintainers
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token, system_time_us
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.tables import TableCompactor
from siltstone.storage.tables.values import Compacted

_PARTS = 100
_ROWS = 1_000_000
_WASTE_ROWS = 10_000_000


class Optimizing:
    name = "W10"
    title = "commits while another process optimizes; what an optimize does in vain"

    def prepare(self, peer: Place) -> None:
        del peer

    def measure(self, peer: Place, turn: int) -> Metrics:
        return _beside_commits(peer, turn) | _in_vain(peer, turn)


def _beside_commits(peer: Place, turn: int) -> Metrics:
    fresh = peer.another(f"beside-{turn}")
    rows = peer.sizes.rows(_ROWS)
    size = max(10, rows // _PARTS)
    with st.connect(fresh.path) as db:
        accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
        for part in range(_PARTS):
            ids = np.arange(part * size, part * size + size)
            accounts.upsert(data.accounts(ids, part))
            db.checkpoint()
        run_for(peer.sizes.seconds, _committers(accounts, rows, 7))  # warm
        busy = _while_optimizing(fresh.path, _committers(accounts, rows, 3))
        # As long: what the store does by itself in the background falls into both.
        idle = run_for(busy.seconds, _committers(accounts, rows, 1))
    fresh.remove()
    return {
        "commits/s idle": idle.rate,
        "commits kept": busy.rate / idle.rate,
        "p99 ms idle": idle.percentile_ms(0.99),
        "p99 / idle": busy.percentile_ms(0.99) / idle.percentile_ms(0.99),
        "optimize s": busy.seconds,
    }


def _committers(accounts: st.Table, rows: int, seed: int) -> list[Operation]:
    def committer(stream: Iterator[data.Row]) -> Operation:
        def operation() -> int:
            row = next(stream)
            accounts.upsert(dict(zip(data.ACCOUNTS.names, row[:4], strict=True)))
            return 0

        return operation

    return [committer(data.rows(rows, seed + n)) for n in range(2)]


def _while_optimizing(path: Path, operations: list[Operation]) -> Sample:
    """Commit from the start of an optimize's process to its end."""
    clients = Clients(operations)
    clients.start()
    command = [sys.executable, "-m", "siltstone", "optimize", "--db", str(path), "--quiet"]
    subprocess.run(["nice", "-n", "19", *command], check=True)
    return clients.finish()


# in vain


def _in_vain(peer: Place, turn: int) -> Metrics:
    fresh = peer.another(f"vain-{turn}")
    rows = peer.sizes.rows(_WASTE_ROWS, _PARTS * COMPACT_BELOW_ROWS)
    size = rows // _PARTS
    with st.connect(fresh.path, background=False) as db:
        db.create_table("accounts", data.ACCOUNTS, primary_key="id")
        stage = db.stage("accounts")
        ids = [np.arange(n * size, n * size + size) for n in range(_PARTS)]
        pieces = [stage.run(data.accounts(part, n)) for n, part in enumerate(ids)]
        with db.transaction() as tx:
            tx.attach(stage, pieces)
        db.checkpoint()
        written: dict[str, int] = {}
        writer = _Writer(db, rows, turn)
        writer.start()
        _optimizer(fresh.path, written).optimize(target_rows=rows // 10)
        merges = writer.finish()
        published = _named(fresh.path)
    fresh.remove()
    in_vain = sum(size for path, size in written.items() if path not in published)
    return {
        "in vain / written": in_vain / max(1, sum(written.values())),
        "written MB": sum(written.values()) / 1e6,
        "merges meanwhile": merges,
    }


class _NotingCompactor:
    """A compactor that notes the bytes of what it writes."""

    def __init__(self, compactor: TableCompactor, written: dict[str, int]) -> None:
        self._compactor, self._written = compactor, written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compactor, name)

    def compact(self, pin: Pin, within: tuple[int, int]) -> Compacted:
        done = self._compactor.compact(pin, within)
        self._written.update({file.path: file.size for file in done.files})
        return done


def _optimizer(path: Path, written: dict[str, int]) -> Optimizer:
    """Return an optimizer as another process has it, that notes what it writes."""
    files = RealFiles()
    tables = lance_tables(path, files)
    tables = replace(tables, compactor=_NotingCompactor(tables.compactor, written))
    manifests = ManifestStore(files, path)
    readers = Readers(tables.reader, tables.keys, PastRecords(manifests), index_bytes_max=0)
    plain = PlainTablesOfAnOwner(
        follow=lambda: Follower(files, path, manifests, readers), own_and_take=lambda: False
    )
    jobs = Jobs(files, path, system_time_us, random_token)
    site = Site(path, files, manifests, tables, jobs)
    return maintainers(Storage(site, readers), plain).optimizer


def _named(path: Path) -> set[str]:
    """Return the files that any record names: what was published, whoever rewrote it later."""
    manifests = ManifestStore(RealFiles(), path)
    tables = lance_tables(path, RealFiles(), verify="scrub")
    pins = {
        pin
        for number in manifests.numbers(below_floor=True)
        for storage in manifests.read(number).keyed
        for pin in (storage.base, storage.history)
        if pin is not None
    }
    return {file.path for pin in pins for file in tables.reader.files(pin)}


class _Writer:
    """Once a second it changes a row of one part, and merges it."""

    def __init__(self, db: st.Store, rows: int, seed: int) -> None:
        self._db, self._rows = db, rows
        self._rng = np.random.default_rng(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._merges = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._merges

    def _run(self) -> None:
        while not self._is_over.wait(1):
            self._db["accounts"].upsert(data.accounts(self._rng.integers(0, self._rows, 1), 1))
            self._db.checkpoint()
            self._db.merge()
            self._merges += 1
