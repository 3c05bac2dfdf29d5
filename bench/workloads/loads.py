"""W6: a bulk load of 10 M rows (one Arrow table) into an empty store, synced at its end."""

from __future__ import annotations

from bench import data
from bench.measure import timed
from bench.workload import Metrics, Place

_ROWS = 10_000_000


class Loads:
    name = "W6"
    title = "bulk load, rows/s"

    def __init__(self) -> None:
        self._rows = data.ACCOUNTS.empty_table()

    def prepare(self, peer: Place) -> None:
        wanted = peer.sizes.rows(_ROWS)
        if self._rows.num_rows != wanted:  # the same rows for every peer and round
            self._rows = data.base(wanted)

    def measure(self, peer: Place, turn: int) -> Metrics:
        fresh = peer.another(f"load-{turn}")
        store = fresh.store
        seconds = timed(lambda: store.load(self._rows))
        fresh.remove()
        return {"load": self._rows.num_rows / seconds}
