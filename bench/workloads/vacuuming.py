"""W13: a vacuum that finds 10,000 files that nobody names, older than the grace period."""

from __future__ import annotations

import os
import time

import siltstone as st
from bench import data
from bench.measure import timed
from bench.workload import Metrics, Place

_FILES = 10_000
_BYTES = 4_096
_DAY_S = 86_400


class Vacuuming:
    name = "W13"
    title = "vacuum of 10,000 garbage files, s"

    def prepare(self, peer: Place) -> None:
        rows = peer.sizes.rows(1_000_000)
        with st.connect(peer.path, background=False) as db:
            db.create_table("accounts", data.ACCOUNTS, primary_key="id")
            db["accounts"].upsert(data.base(rows))
            db.checkpoint()
            db.merge()

    def measure(self, peer: Place, turn: int) -> Metrics:
        count = peer.sizes.rows(_FILES, 100)
        (folder,) = peer.path.glob("tables/accounts-*/base/data")
        old = time.time() - 2 * _DAY_S
        for number in range(count):
            path = folder / f"{turn:08x}{number:024x}.lance"
            path.write_bytes(bytes(_BYTES))
            os.utime(path, (old, old))
        with st.connect(peer.path, background=False) as db:
            seconds = timed(lambda: db.vacuum(dry_run=False))
        left = [path for path in folder.iterdir() if path.name.startswith(f"{turn:08x}{0:016x}")]
        if left:
            message = f"{len(left)} of {count} files are still there"
            raise RuntimeError(message)
        return {"seconds": seconds, "files/s": count / seconds}
