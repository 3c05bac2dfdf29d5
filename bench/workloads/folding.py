"""W11: a merge of 1 M rows into a base of 10 M: keys all over it, and keys above all others."""

from __future__ import annotations

import numpy as np

import siltstone as st
from bench import data
from bench.measure import timed
from bench.workload import Metrics, Place

_BASE_ROWS = 10_000_000
_ROWS = 1_000_000


class Folding:
    name = "W11"
    title = "merge of 1 M rows into 10 M, rows/s"

    def prepare(self, peer: Place) -> None:
        del peer

    def measure(self, peer: Place, turn: int) -> Metrics:
        rows, size = peer.sizes.rows(_BASE_ROWS, 10_000), peer.sizes.rows(_ROWS)
        fresh = peer.another(f"{turn}")
        with st.connect(fresh.path, background=False) as db:
            accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
            accounts.upsert(data.base(rows))
            db.checkpoint()
            db.merge()
            accounts.upsert(data.accounts(np.arange(rows, rows + size), turn))
            db.checkpoint()
            above = timed(db.merge)
            accounts.upsert(next(data.batches(rows, size, turn + 1)))
            db.checkpoint()
            scattered = timed(db.merge)
        fresh.remove()
        return {"above all keys": size / above, "all over": size / scattered}
