"""index: filters over 2 M rows with an index on the column and without, of which few rows match.

Each filter has other values, so nothing is found twice. "build" is `create_index` over the base,
"catch-up" the optimize that builds what a hundredth of new rows lacks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

import siltstone as st
from bench import data
from bench.measure import median, timed
from bench.workload import Metrics, Place

_ROWS = 2_000_000
_REPEATS = 40


class Indexed:
    name = "index"
    title = "filters with an index and without"

    def prepare(self, peer: Place) -> None:
        rows = peer.sizes.rows(_ROWS, 50_000)
        with st.connect(peer.path, background=False) as db:
            accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
            accounts.upsert(data.base(rows))
            db.checkpoint()
            db.merge()
        shutil.copytree(peer.path, _plain(peer))
        with st.connect(peer.path, background=False) as db:
            peer.notes["build ms"] = 1e3 * timed(lambda: db["accounts"].create_index("balance"))
            fresh = np.arange(rows, rows + rows // 100, dtype=np.int64)
            db["accounts"].upsert(data.accounts(fresh, seed=2))
            db.checkpoint()
            db.merge()
            peer.notes["catch-up ms"] = 1e3 * timed(lambda: db.optimize(target_rows=1_000))

    def measure(self, peer: Place, turn: int) -> Metrics:
        found: Metrics = {name: float(str(value)) for name, value in peer.notes.items()}
        with (
            st.connect(peer.path, background=False) as indexed,
            st.connect(_plain(peer), background=False) as plain,
        ):
            balances = plain["accounts"].to_arrow(["balance"]).column("balance")
            step = max(1, len(balances) // (_REPEATS + 1))
            values = [balances[turn + n * step].as_py() for n in range(1, _REPEATS)]
            for label, filter_of in (("one value", _equal), ("a range", _range)):
                ours, scans = [], []
                for value in values:  # in turns: the machine is the same for both
                    ours.append(timed(_counting(indexed, filter_of(value))))
                    scans.append(timed(_counting(plain, filter_of(value))))
                found[f"{label} ms"] = 1e3 * median(ours)
                found[f"{label}: x without"] = median(scans) / median(ours)
            ours, scans = [], []
            for _ in range(5):
                ours.append(timed(_counting(indexed, "balance >= 50000")))
                scans.append(timed(_counting(plain, "balance >= 50000")))
            found["half of all: x without"] = median(scans) / median(ours)
        return found


def _plain(peer: Place) -> Path:
    return peer.path.with_name(f"{peer.path.name}-plain")


def _equal(value: int) -> str:
    return f"balance = {value}"


def _range(value: int) -> str:
    return f"balance BETWEEN {value} AND {value + 2}"


def _counting(db: st.Store, wanted: str) -> Callable[[], object]:
    db["accounts"].scan(["id"], wanted, 0).close()  # parsed, which takes either as long
    return lambda: db["accounts"].to_arrow(["id", "name"], wanted).num_rows
