"""Snapshots: 1 to 1,000 of them open, each at a seq of its own, over a table of 100,000 rows.

Each point begins with a merged table. Between two snapshots is a commit, and ten checkpoints fall
between them, so the older ones read what the newer ones do not, and none of them base alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import siltstone as st
from bench import data
from bench.measure import median, run_for, timed
from bench.workload import Metrics

_ROWS = 100_000
_REPEATS = 3
_CHECKPOINTS = 10  # while those of a point are opened


class Snapshots:
    name = "snapshots"
    title = "open snapshots"
    x = "snapshots open"
    points = (1, 10, 100, 1_000)
    x_usual = 1_000
    s_each = 0.001
    drawn = ("commits/s",)

    def __init__(self, folder: Path, seconds: float) -> None:
        self._seconds = seconds
        self._rows = data.rows(_ROWS, 1)
        self._open = ExitStack()
        self._db = self._open.enter_context(st.connect(folder / "store", background=False))
        self._accounts = self._db.create_table("accounts", data.ACCOUNTS, primary_key="id")
        self._accounts.upsert(data.base(_ROWS))
        self._db.checkpoint()
        self._db.merge()
        self._held: list[Any] = []

    def measure(self, x: int) -> Metrics:
        self._hold(x)
        self._commit()
        checkpoint = timed(self._db.checkpoint)
        oldest, newest = self._held[0]["accounts"], self._held[-1]["accounts"]
        self._run(self._seconds / 4, self._commit)
        found = {
            "commits/s": self._run(self._seconds, self._commit),
            "snapshot us": 1e6 / self._run(self._seconds / 2, self._snapshot),
            "checkpoint ms": 1e3 * checkpoint,
        }
        for name, table in (("oldest", oldest), ("newest", newest)):
            _count(table)
            found[f"{name} reads/s"] = self._reads(table)
            scans = [timed(lambda table=table: _count(table)) for _ in range(_REPEATS)]
            found[f"{name} scan ms"] = 1e3 * median(scans)
        found["turn over ms"] = 1e3 * timed(lambda: self._turn_over(x))
        return found

    def _hold(self, count: int) -> None:
        self._turn_over(0)
        self._db.merge()
        every = max(1, count // _CHECKPOINTS)
        while len(self._held) < count:
            self._commit()
            self._held.append(self._db.snapshot())
            if len(self._held) % every == 0:
                self._db.checkpoint()

    def _turn_over(self, count: int) -> None:
        for snapshot in self._held:
            snapshot.close()
        self._held = [self._db.snapshot() for _ in range(count)]

    def _commit(self) -> int:
        self._accounts.upsert(data.as_dict(next(self._rows)))
        return 0

    def _snapshot(self) -> int:
        self._db.snapshot().close()
        return 0

    def _reads(self, table: Any) -> float:
        keys = iter(np.random.default_rng(1).integers(0, _ROWS, 1 << 20).tolist())

        def read() -> int:
            table.get(next(keys))
            return 0

        return self._run(self._seconds / 2, read)

    def _run(self, seconds: float, work: Any) -> float:
        return run_for(seconds, [work]).rate

    def close(self) -> None:
        for snapshot in self._held:
            snapshot.close()
        self._open.close()


def _count(table: Any) -> int:
    return sum(batch.num_rows for batch in table.scan())
