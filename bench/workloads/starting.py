"""Start: what a process pays to import siltstone, open a store and read a row of its log.

Each figure is the median of some processes, in seconds of a core: our own share is measured once
numpy, Arrow and Lance (with pandas, where it is installed) are there, the whole without.
"""

from __future__ import annotations

import os
import sys

from bench import data
from bench.measure import median
from bench.start import OPENING, WHOLE, taken_by
from bench.workload import Metrics, Place

_REPEATS = 7


class Starting:
    name = "start"
    title = "a cold start: import, open, first get"

    def prepare(self, peer: Place) -> None:
        peer.store.upsert_one(next(data.rows(2, 1)))
        peer.close()

    def measure(self, peer: Place, turn: int) -> Metrics:
        del turn
        compiled = {"PYTHONPYCACHEPREFIX": str(peer.path.with_name("compiled"))}
        environment = {**os.environ, **compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def cpu_ms(code: str) -> float:
            command = [sys.executable, "-c", code, "accounts", str(peer.path)]
            found = [taken_by(command, peer.path, environment)[1] for _ in range(_REPEATS + 1)]
            return 1e3 * median(found[1:])  # the first one compiles

        return {"our own CPU ms": cpu_ms(OPENING), "CPU ms with libraries": cpu_ms(WHOLE)}
