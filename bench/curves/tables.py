"""Tables: a store of 1 to 1,000 tables, each with a row.

A commit writes one row to the next table; a transaction of all tables writes one to each; the
checkpoint after it has rows of every table to flush.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import siltstone as st
from bench import data
from bench.measure import run_for, timed
from bench.workload import Metrics

_OPENS = 3


class Tables:
    name = "tables"
    title = "tables of a store"
    x = "tables"
    points = (1, 10, 100, 1_000)
    x_usual = 1_000
    s_each = 0.04
    drawn = ("commits/s",)

    def __init__(self, folder: Path, seconds: float) -> None:
        self._path, self._seconds = folder / "store", seconds
        self._rows = data.rows(1_000, 1)

    def measure(self, x: int) -> Metrics:
        with st.connect(self._path, background=False) as db:
            before = len(db.tables())
            create = timed(lambda: _create(db, before, x)) / max(1, x - before)
            together = timed(lambda: self._write_all(db))
            checkpoint = timed(db.checkpoint)
        opens = [
            timed(lambda: st.connect(self._path, background=False).close()) for _ in range(_OPENS)
        ]
        newest = max((self._path / "manifest").glob("*.json"))
        with st.connect(self._path, background=False) as db:
            turns = itertools.cycle([db[name] for name in db.tables()])

            def commit() -> int:
                next(turns).upsert(data.as_dict(next(self._rows)))
                return 0

            run_for(self._seconds / 4, [commit])
            rate = run_for(self._seconds, [commit]).rate
        return {
            "commits/s": rate,
            "create ms": 1e3 * create,
            "transaction ms a table": 1e3 * together / x,
            "checkpoint ms a table": 1e3 * checkpoint / x,
            "open ms": 1e3 * min(opens),
            "record bytes": newest.stat().st_size,
        }

    def _write_all(self, db: Any) -> None:
        names = db.tables()

        def body(tx: Any) -> None:
            for name in names:
                tx[name].upsert(data.as_dict(next(self._rows)))

        db.run(body)

    def close(self) -> None:
        pass


def _create(db: Any, first: int, end: int) -> None:
    for number in range(first, end):
        db.create_table(f"t{number:04d}", data.ACCOUNTS, primary_key="id")
