"""Trial: one store, loaded, written, read and reopened, with the limit of each step.

    limits      fdatasync alone · memcpy · raw Lance writes and scans the same rows, synced
    load        all rows in one transaction ─▶ checkpoint ─▶ merge
    commits     one row each, every one synced, by 1 and by 8 threads
    reads       rows by key, a column, all columns
    recovery    close with the log full of commits ─▶ open, which replays them

Rates count the work finished within `seconds`, after a warm-up of a quarter of that time.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench import machine, raw_lance
from siltstone.api.tables import Table
from siltstone.cli.exits import UsageError
from siltstone.store import Store, connect

_ROW_BYTES = 400  # of a row in all its copies: raw, log, history, base
_LEAST_BYTES = 512 << 20
_CYCLE = 65_536
_REPEATS = 3
_LOG_ROWS_MAX = 200_000
_BATCH_ROWS = 1_000
_THREADS = 8
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("balance", pa.int64()),
        pa.field("name", pa.string()),
    ]
)

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One number; `share` is its ratio to the number with the name `of`."""

    name: str
    value: float
    unit: str
    share: float | None = None
    of: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return it with three digits of each number."""
        numbers = {"value": _rounded(self.value), "share": _rounded(self.share)}
        return {**asdict(self), **numbers}


@contextmanager
def scratch(given: Path | None, rows: int) -> Generator[Path]:
    """Make a new directory; remove it and its contents at the end.

    Raises:
        UsageError: The directory does not exist, is or lies in a store, or has too little room.
    """
    parent = Path(tempfile.gettempdir() if given is None else given).resolve()
    if not parent.is_dir():
        raise UsageError(f"--dir {parent} is not a directory")
    store = next((path for path in (parent, *parent.parents) if (path / "manifest").is_dir()), None)
    if store is not None:
        raise UsageError(f"{store} is a store; give a directory outside it with --dir")
    wanted, free = _LEAST_BYTES + rows * _ROW_BYTES, shutil.disk_usage(parent).free
    if free < wanted:
        raise UsageError(
            f"{rows} rows may take {wanted} bytes, {parent} has {free}; give fewer --rows"
        )
    with tempfile.TemporaryDirectory(prefix="siltstone-bench-", dir=parent) as folder:
        yield Path(folder)


class Trial:
    """The steps in their order. One thread calls `run`, once."""

    def __init__(self, folder: Path, rows: int, seconds: float, told: Told) -> None:
        self._folder, self._rows, self._seconds, self._told = folder, rows, seconds, told
        self._found: dict[str, Measured] = {}

    def run(self) -> list[Measured]:
        """Return the measured numbers in their order for the reader."""
        self._told("the disk and the memory")
        synced = machine.syncs_per_s(self._folder / "synced", self._seconds)
        self._note("fdatasync alone", synced, "syncs/s")
        self._note("memcpy", machine.memcpy_bytes_per_s() / 1e9, "GB/s")
        rows = _rows_of(np.random.default_rng(1).permutation(self._rows))
        self._raw_lance(rows)
        store = self._folder / "store"
        with connect(store) as db:
            table = db.create_table("rows", _SCHEMA, primary_key="id")
            self._load(db, table, rows)
            self._reads(table)
            self._commits(table)
        self._recovery(store)
        return list(self._found.values())

    def _raw_lance(self, rows: pa.Table) -> None:
        self._told("raw Lance")
        path = self._folder / "raw.lance"
        self._rate("raw Lance, write", _timed(lambda: raw_lance.write(rows, path)))
        for name, columns in _COLUMNS:
            raw_lance.scan(path, columns)
            seconds = [_timed(lambda c=columns: raw_lance.scan(path, c)) for _ in range(_REPEATS)]
            self._rate(f"raw Lance, scan of {name}", min(seconds))
        shutil.rmtree(path)

    def _load(self, db: Store, table: Table, rows: pa.Table) -> None:
        self._told("load, checkpoint, merge")
        self._rate("load, one transaction", _timed(lambda: table.upsert(rows)), "raw Lance, write")
        self._note("checkpoint of it", _timed(db.checkpoint), "s")
        self._note("merge of it", _timed(db.merge), "s")

    def _reads(self, table: Table) -> None:
        self._told("reads")
        keys = cycle(np.random.default_rng(2).integers(0, self._rows, _CYCLE).tolist())
        rate, _ = self._for_a_while([lambda: table.get(next(keys))])
        self._note("read of a row by key", rate, "reads/s")
        for name, columns in _COLUMNS:
            _count(table, columns)
            seconds = [_timed(lambda c=columns: _count(table, c)) for _ in range(_REPEATS)]
            self._rate(f"scan of {name}", min(seconds), f"raw Lance, scan of {name}")

    def _commits(self, table: Table) -> None:
        for threads in (1, _THREADS):
            who = "1 thread" if threads == 1 else f"{threads} threads"
            self._told(f"commits of {who}")
            works = [_writer(table, self._rows, seed) for seed in range(threads)]
            rate, latencies = self._for_a_while(works)
            self._note(f"commits of one row, {who}", rate, "commits/s", "fdatasync alone")
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                took = latencies[min(len(latencies) - 1, int(share * len(latencies)))]
                self._note(f"{name} of them, {who}", 1e3 * took, "ms")

    def _recovery(self, path: Path) -> None:
        """A close leaves the log as a crash does: to open is to replay it."""
        self._told("recovery")
        rows = min(self._rows, _LOG_ROWS_MAX)
        keys = np.random.default_rng(3).permutation(self._rows)[:rows]
        with connect(path, background=False) as db:
            db.checkpoint()
            for start in range(0, rows, _BATCH_ROWS):
                db["rows"].upsert(_rows_of(keys[start : start + _BATCH_ROWS]))
        begin = time.perf_counter()
        with connect(path, background=False) as db:
            seconds = time.perf_counter() - begin
            self._note(f"open with {rows:,} rows in the log", seconds, "s")
            self._note("checkpoint of them", _timed(db.checkpoint), "s")

    def _for_a_while(self, works: list[Callable[[], object]]) -> tuple[float, list[float]]:
        """Return how often per second all works together were done, and what each took, sorted."""
        _together(works, self._seconds / 4)
        begin = time.perf_counter()
        latencies = _together(works, self._seconds)
        return len(latencies) / (time.perf_counter() - begin), sorted(latencies)

    def _rate(self, name: str, seconds: float, of: str | None = None) -> None:
        self._note(name, self._rows / seconds, "rows/s", of)

    def _note(self, name: str, value: float, unit: str, of: str | None = None) -> None:
        share = None if of is None else value / self._found[of].value
        self._found[name] = Measured(name, value, unit, share, of)


_COLUMNS = (("a column", ["balance"]), ("all columns", None))


def _rows_of(ids: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows of these keys, in their order; no value is that of another row."""
    balances = np.random.default_rng(len(ids)).integers(0, 100_000, len(ids))
    join: Any = pc.binary_join_element_wise
    names = join("user-", pa.array(ids).cast(pa.string()), "")
    return pa.table([pa.array(ids), pa.array(balances), names], schema=_SCHEMA)


def _writer(table: Table, rows: int, seed: int) -> Callable[[], object]:
    """Return what upserts one row: half of the keys are there, half of them are new."""
    known = cycle(np.random.default_rng(seed).integers(0, rows, _CYCLE).tolist())
    fresh = count(rows + 1 + seed * 1_000_000_000)
    keys = chain.from_iterable(zip(known, fresh, strict=True))
    return lambda: table.upsert({"id": next(keys), "balance": seed, "name": "of the bench"})


def _together(works: list[Callable[[], object]], seconds: float) -> list[float]:
    """Do each work over and over, in its own thread; return what each time took."""
    start = threading.Barrier(len(works))

    def go_on(work: Callable[[], object]) -> list[float]:
        latencies: list[float] = []
        start.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            work()
            latencies.append(time.perf_counter() - begin)
        return latencies

    with ThreadPoolExecutor(len(works)) as pool:
        return [each for latencies in pool.map(go_on, works) for each in latencies]


def _count(table: Table, columns: list[str] | None) -> int:
    return sum(batch.num_rows for batch in table.scan(columns=columns))


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _rounded(value: float | None) -> float | int | None:
    """Return three digits, or all of the whole part."""
    if value is None or abs(value) >= 1_000:
        return None if value is None else round(value)
    return float(f"{value:.3g}")
