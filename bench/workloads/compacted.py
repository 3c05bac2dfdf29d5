"""W12: scans of a base that was optimized, beside a fresh Lance table of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st
from bench import data
from bench.measure import median, timed
from bench.workload import Metrics, Place

_ROWS = 10_000_000
_PARTS = 100
_REPEATS = 5


class Compacted:
    name = "W12"
    title = "scans after an optimize, rows/s"

    def prepare(self, peer: Place) -> None:
        rows = peer.sizes.rows(_ROWS, 10_000)
        with st.connect(peer.path, background=False) as db:
            db.create_table("accounts", data.ACCOUNTS, primary_key="id")
            stage, table = db.stage("accounts"), data.base(rows)
            size = -(-rows // _PARTS)
            pieces = [stage.run(table.slice(start, size)) for start in range(0, rows, size)]
            with db.transaction() as tx:
                tx.attach(stage, pieces)
            db["accounts"].upsert(table.slice(0, rows // 100))
            db.checkpoint()
            db.merge()
            db.optimize()
        lance.write_dataset(table, str(peer.path.with_name(f"{peer.path.name}-lance")))

    def measure(self, peer: Place, turn: int) -> Metrics:
        del turn
        raw = lance.dataset(str(peer.path.with_name(f"{peer.path.name}-lance")))
        rows = raw.count_rows()
        found: Metrics = {}
        with st.connect(peer.path, background=False) as db:
            for label, columns in (("narrow", ["balance"]), ("all columns", None)):
                ours, fresh = [], []
                for _ in range(_REPEATS):  # in turns: the machine is the same for both
                    ours.append(timed(_reading(db["accounts"].scan, columns)))
                    fresh.append(timed(_reading(_scanner(raw), columns)))
                found[label] = rows / median(ours)
                found[f"{label} / fresh Lance"] = median(fresh) / median(ours)
        return found


def _scanner(raw: Any) -> Callable[..., Iterator[pa.RecordBatch]]:
    return lambda columns: raw.scanner(columns=columns).to_reader()


def _reading(scan: Callable[..., Any], columns: list[str] | None) -> Callable[[], object]:
    def read() -> int:
        batches = scan(columns=columns)
        if columns is None:
            return sum(batch.num_rows for batch in batches)
        return sum(pc.sum(batch.column(0)).as_py() or 0 for batch in batches)

    return read
