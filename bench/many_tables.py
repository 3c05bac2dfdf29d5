"""What a store of many tables costs: `python -m bench.many_tables [TABLES]`.

Prints milliseconds of the process's CPU (of the best of three calls) of what looks at tables, with
100 tables and with TABLES (1,000), and the ratio: 1 if what did not change costs nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import siltstone as st

FEW, MANY = 100, 1_000


def filled(root: Path, tables: int) -> st.Store:
    """Return a store of so many tables, each with one row in base, and one commit above them."""
    db = st.connect(root, background=False)
    with db.transaction() as tx:
        for number in range(tables):
            tx.create_table(f"t{number}", {"id": "int64", "v": "string"}, "id")
    with db.transaction() as tx:
        for number in range(tables):
            tx[f"t{number}"].upsert({"id": 1, "v": "x"})
    begun_s = time.perf_counter()
    db.checkpoint()
    took_ms = (time.perf_counter() - begun_s) * 1_000
    print(f"first checkpoint of {tables} tables: {took_ms / tables:.1f} ms a table")
    db.merge()
    for number in range(20):
        db["t0"].upsert({"id": 2, "v": f"turn {number}"})
    return db


def cost_ms(call: Callable[[], object]) -> float:
    found: list[float] = []
    for _ in range(4):  # the first one may remember what the others need
        begun_s = time.process_time()
        call()
        found.append((time.process_time() - begun_s) * 1_000)
    return min(found[1:])


def measured(root: Path, tables: int) -> dict[str, float]:
    db = filled(root, tables)
    calls = {"log(20)": lambda: db.log(20), "status()": db.status, "idle merge()": db.merge}
    found = {name: cost_ms(call) for name, call in calls.items()}
    db.close()
    return found | {"open": cost_ms(lambda: st.connect(root, background=False).close())}


def main() -> None:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else MANY
    with tempfile.TemporaryDirectory() as folder:
        few, more = (measured(Path(folder) / str(n), n) for n in (FEW, many))
    for name, cost in few.items():
        print(f"{name:14} {cost:8.2f} {more[name]:8.2f} ms  {more[name] / cost:5.1f} x")


if __name__ == "__main__":
    main()
