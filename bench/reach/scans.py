"""Scans: a table at a URL beside a dataset of Lance's own there, each opened anew.

python -m bench.reach.scans ROWS        these alone
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import lance
import numpy as np
import pyarrow as pa

import siltstone as st
from bench.measure import median, timed
from bench.reach.lake import Door, Lake, lake
from bench.workload import Metrics
from siltstone import admin

_COLUMNS = {"id": "int64", "g": "int64", "price": "float64"}
_TURNS = {0: 3, 30: 1, 100: 1}


def prepare(path: Path, rows: int) -> None:
    """Make the store whose mirror is scanned."""
    with st.connect(path, background=False) as db:
        db.create_table("t", _COLUMNS, primary_key="id").upsert(_rows(rows))
        db.checkpoint()
        db.merge()


def scans(lake: Lake, path: Path, rows: int) -> Metrics:
    """Measure scans of all columns at the server's own address, and with 30 and 100 ms added."""
    url, raw = lake.direct.url(), lake.direct.url()
    admin.mirror_store(path, url, storage_options=lake.direct.settings)
    lance.write_dataset(_rows(rows), raw, storage_options=lake.direct.environment)
    found: Metrics = {}
    for door in (lake.direct, lake.doors[30], lake.doors[100]):
        calls: dict[str, Callable[[], int]] = {
            "Lance": lambda door=door: _of_lance(raw, door),
            "siltstone": lambda door=door: _of_store(url, door),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(_TURNS[door.added_ms]):
            for name in sorted(calls, reverse=bool(turn % 2)):
                times[name].append(timed(lambda call=calls[name]: _whole(call, rows)))
        label = f"{door.added_ms} ms added"
        for name, seconds in times.items():
            found[f"scan: {name}, rows/s, {label}"] = rows / median(seconds)
        found[f"scan: x raw Lance, {label}"] = median(times["Lance"]) / median(times["siltstone"])
        found[f"scan again: x raw Lance, {label}"] = _again(url, raw, door, rows)
    return found


def _again(url: str, raw: str, door: Door, rows: int) -> float:
    """Return our rate over Lance's of scans of one moment, by handles that have scanned it."""
    dataset = lance.dataset(raw, storage_options=door.environment)
    with (
        st.connect(url, read_only=True, storage_options=door.settings) as db,
        db.snapshot() as snapshot,
    ):
        calls: dict[str, Callable[[], int]] = {
            "Lance": lambda: _count(dataset.to_batches()),
            "siltstone": lambda: _count(snapshot["t"].scan()),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(1 + _TURNS[door.added_ms]):
            for name in sorted(calls, reverse=bool(turn % 2)):
                seconds = timed(lambda call=calls[name]: _whole(call, rows))
                times[name].extend([seconds] if turn else [])
    return median(times["Lance"]) / median(times["siltstone"])


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _whole(scan: Callable[[], int], rows: int) -> None:
    assert scan() == rows


def _of_store(url: str, door: Door) -> int:
    with st.connect(url, read_only=True, storage_options=door.settings) as db:
        return _count(db["t"].scan())


def _of_lance(url: str, door: Door) -> int:
    dataset = lance.dataset(url, storage_options=door.environment)
    return _count(dataset.to_batches())


def _rows(count: int) -> pa.Table:
    ids = np.arange(count)
    columns = [pa.array(ids), pa.array(ids * 7919 % 100_003), pa.array(ids / 8)]
    return pa.table(columns, names=list(_COLUMNS))


def _alone(rows: int) -> None:
    with TemporaryDirectory() as folder, lake(Path(folder) / "server") as running:
        prepare(Path(folder) / "store", rows)
        for name, value in scans(running, Path(folder) / "store", rows).items():
            print(f"{value:14,.2f}  {name}")


if __name__ == "__main__":
    _alone(int(sys.argv[1]))
