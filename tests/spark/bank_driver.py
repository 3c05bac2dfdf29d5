"""A bank of two tables that agree at each seq; run, it moves money up to 200 times a second.

python -m tests.spark.bank_driver STORE

It says "ready", and moves until its stdin ends.
"""

from __future__ import annotations

import sys
import threading
import time

import siltstone as st

MOVES_PER_S = 200


def made(db: st.Store) -> None:
    """Make the tables `a` and `b`."""
    for name in ("a", "b"):
        table = db.create_table(name, {"id": "int64", "x": "int64"}, primary_key="id")
        table.upsert([{"id": n, "x": 0} for n in range(100)])
    db.checkpoint()
    db.merge()


def move(db: st.Store, x: int) -> None:
    """Write `x` to both tables, in one transaction."""
    with db.transaction() as tx:
        tx["a"].upsert({"id": 0, "x": x})
        tx["b"].upsert({"id": 0, "x": x})


def main(path: str) -> None:
    stop = threading.Event()
    with st.connect(path) as db:
        move(db, 1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
        x, next_s = 2, time.monotonic()
        while not stop.wait(max(0.0, next_s - time.monotonic())):
            next_s = max(next_s + 1 / MOVES_PER_S, time.monotonic())
            move(db, x)
            x += 1


if __name__ == "__main__":
    main(sys.argv[1])
