"""Publishes: a store whose chain has 1 to 10,000 records.

As in W14, every twentieth publish is a checkpoint of a commit and the others change nothing: what
grows is the chain, and the history by a part for each checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import siltstone as st
from bench import data
from bench.measure import median, run_for, timed
from bench.workload import Metrics
from bench.workloads.publishing import BLANK, publish
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore

_OPENS = 3


class Publishes:
    name = "publishes"
    title = "publishes of a store"
    x = "publishes"
    points = (1, 10, 100, 1_000, 10_000)
    x_usual = 10_000
    s_each = 0.005
    drawn = ("commits/s",)

    def __init__(self, folder: Path, seconds: float) -> None:
        self._path, self._seconds = folder / "store", seconds
        self._rows = data.rows(1_000, 1)
        self._done = 0
        with st.connect(self._path, background=False) as db:
            db.create_table("accounts", data.ACCOUNTS, primary_key="id").upsert(data.base(1_000))

    def measure(self, x: int) -> Metrics:
        publishes, checkpoints = self._publish_until(x)
        opens = [
            timed(lambda: st.connect(self._path, background=False).close()) for _ in range(_OPENS)
        ]
        manifests = ManifestStore(RealFiles(), self._path)
        size = manifests.path(manifests.newest().number).stat().st_size
        with st.connect(self._path, background=False) as db:
            accounts = db["accounts"]

            def commit() -> int:
                accounts.upsert(data.as_dict(next(self._rows)))
                return 0

            run_for(self._seconds / 4, [commit])
            rate = run_for(self._seconds, [commit]).rate
        found = {"commits/s": rate, "open ms": 1e3 * min(opens), "record bytes": size}
        found["checkpoint ms"] = 1e3 * median(checkpoints[-5:])
        if publishes:
            found["publish ms"] = 1e3 * publishes[-1]
        return found

    def _publish_until(self, x: int) -> tuple[list[float], list[float]]:
        """Return the seconds of publishes that changed nothing, and of checkpoints."""
        publishes: list[float] = []
        checkpoints: list[float] = []
        with st.connect(self._path, background=False) as db:
            while self._done < x:
                db["accounts"].upsert(data.as_dict(next(self._rows)))
                checkpoints.append(timed(db.checkpoint))
                self._done += 1
                count = min(BLANK, x - self._done)
                if count:
                    publishes.append(timed(lambda n=count: publish(self._path, n)) / count)
                    self._done += count
        return publishes, checkpoints

    def close(self) -> None:
        pass
