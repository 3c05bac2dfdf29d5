"""Versions: what a commit of other Lance clients takes, in a new store and with 10,000 versions.

Timed is the namespace's part: `create_table_version`, and `batch_commit_tables` over two tables,
synced; what the client writes before is not. Beside it the route that Lance's own namespace has for
it, a merge_insert of two rows into a `__manifest` dataset, which syncs nothing. "Its syncs alone"
is how long at least one sync of this process ran while a version was created.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import siltstone as st
from bench.measure import median, timed
from bench.syncs import noted_syncs
from bench.workload import Metrics, Place
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.staging import staged

_VERSIONS = 10_000
_LEAST = 20
_ROW = pa.table({"id": [1], "v": ["x"]})
TABLES = ("a", "b")
_OPTIONS = {"enable_stable_row_ids": True}


class Versions:
    name = "versions"
    title = "versions of other Lance clients"

    def prepare(self, peer: Place) -> None:
        count = peer.sizes.rows(_VERSIONS, 200)
        for path, versions in ((_new(peer), 1), (peer.path, count)):
            with opened(path) as ns:
                for _ in range(1, versions):
                    commit(ns, [stage(ns, name) for name in TABLES])
        _manifest(peer, "lance-new", 2)
        _manifest(peer, "lance", 2 * count)

    def measure(self, peer: Place, turn: int) -> Metrics:
        seconds = peer.sizes.seconds
        single, synced, new = _measured(_new(peer), seconds)
        _, _, old = _measured(peer.path, seconds)
        lance_new = _merged(_manifest(peer, "lance-new", 2), seconds, turn)
        lance_old = _merged(_manifest(peer, "lance", 2), seconds, turn)
        return {
            "create p50 ms": 1e3 * single,
            "its syncs alone p50 ms": 1e3 * synced,
            "create / its syncs alone": single / synced,
            "batch of 2 p50 ms": 1e3 * new,
            "batch of 2 p50 ms, many versions": 1e3 * old,
            "many versions / new": old / new,
            "__manifest p50 ms": 1e3 * lance_new,
            "x __manifest": lance_new / new,
            "x __manifest, many versions": lance_old / old,
        }


@contextlib.contextmanager
def opened(path: Path) -> Any:
    """Yield the namespace of a store with `TABLES`, which a stock client made."""
    with st.connect(path) as db:
        ns = SiltstoneNamespace(db)
        for name in TABLES:
            if name not in db.tables():
                given = {"namespace_client": ns, "table_id": [name], "mode": "create"}
                lance.write_dataset(_ROW, **given, **_OPTIONS)
        yield ns


def stage(ns: SiltstoneNamespace, name: str) -> dict[str, Any]:
    """Stage an overwrite: the table stays one file, whatever its version."""
    return staged(ns, name, _ROW, "overwrite")


def commit(ns: SiltstoneNamespace, requests: list[dict[str, Any]]) -> None:
    """Commit staged versions of several tables at once."""
    operations = [{"create_table_version": request} for request in requests]
    ns.batch_commit_tables({"operations": operations})


def _measured(path: Path, seconds: float) -> tuple[float, float, float]:
    """Return the median seconds of a single version, of its syncs alone, and of a batch of two."""
    single: list[float] = []
    synced: list[float] = []
    batch: list[float] = []
    with opened(path) as ns, noted_syncs() as syncs:
        end = time.perf_counter() + seconds
        while len(batch) < _LEAST or time.perf_counter() < end:
            one = stage(ns, "a")
            syncs.clear()
            single.append(timed(lambda one=one: ns.create_table_version(one)))
            synced.append(syncs.seconds())
            both = [stage(ns, name) for name in TABLES]
            batch.append(timed(lambda both=both: commit(ns, both)))
    return median(single), median(synced), median(batch)


def _manifest(peer: Place, suffix: str, rows: int) -> Path:
    """Return the path of a `__manifest` of Lance's own; with so many rows if it is a new one."""
    path = peer.path.with_name(f"{peer.path.name}-{suffix}")
    if not path.exists():
        lance.write_dataset(_listed(0, rows), path)
    return path


def _listed(first: int, rows: int) -> pa.Table:
    return pa.table(
        {
            "object_id": [f"t{number % 2}${number}" for number in range(first, first + rows)],
            "object_type": ["table_version"] * rows,
            "location": [f"_versions/{number}.manifest" for number in range(first, first + rows)],
            "metadata": ["{}"] * rows,
        }
    )


def _merged(path: Path, seconds: float, turn: int) -> float:
    """Return the median seconds of one commit: two rows that must not be there yet."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _LEAST or time.perf_counter() < end:
        rows = _listed((turn + 1) * 1_000_000 + 2 * len(times), 2)

        def commit(rows: pa.Table = rows) -> None:
            merge = lance.dataset(path).merge_insert("object_id")
            merge.when_matched_fail().when_not_matched_insert_all().execute(rows)

        times.append(timed(commit))
    return median(times)


def _new(peer: Place) -> Path:
    return peer.path.with_name(f"{peer.path.name}-new")
