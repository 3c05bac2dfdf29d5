"""Start: what a process pays to import siltstone, open a store and read a row of its log.

Each figure is the median of some processes, in seconds of a core: our own share is measured once
numpy, Arrow and Lance (with pandas, where it is installed) are there, the whole without.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench import data
from bench.measure import median
from bench.workload import Metrics, Place

_REPEATS = 7
_WHOLE = """
import sys, time
core = time.process_time()
import siltstone
with siltstone.connect(sys.argv[2], background=False) as db:
    db[sys.argv[1]].get(1)
    print(1e3 * (time.process_time() - core))
"""
"""What a child runs, with the name of a table and the path of its store; it measures itself."""


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
            found = list[float]()
            for _ in range(_REPEATS + 1):
                done = subprocess.run(
                    command, cwd=peer.path, env=environment, capture_output=True, check=True
                )
                found.append(float(done.stdout))
            return median(found[1:])  # the first one compiles

        opening = f"import lance{_WHOLE}"
        return {"our own CPU ms": cpu_ms(opening), "CPU ms with libraries": cpu_ms(_WHOLE)}
