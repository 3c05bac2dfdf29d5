"""Victim: an owner that commits from several threads until it is killed; run as a process.

    python -m tests.crash.victim ROOT ACKNOWLEDGED ROUND      begins when a line comes on stdin

Each transaction n of thread t puts a row (round, t, n) into `items`, and n + 1 into its row of
`totals`, under the token (app, n). What was acknowledged is a line of the file: "t n seq".
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import siltstone as st

THREADS = 4
SIZES = (1, 40, 700, 3000, 9, 65_536, 200)


def app(number: int, thread: int) -> str:
    return f"round{number}-{thread}"


def value(number: int, thread: int, n: int) -> bytes:
    """Return the value of one item: 1 B to 64 kB, as only this item has it."""
    stamp = b"%d/%d/%d." % (number, thread, n)
    size = SIZES[(number + thread + n) % len(SIZES)]
    return (stamp * (size // len(stamp) + 1))[: max(size, len(stamp))] if size > 1 else b"x"


def write(db: st.Store, number: int, thread: int, n: int) -> st.Receipt:
    with db.transaction(token=(app(number, thread), n)) as tx:
        row = {"round": number, "thread": thread, "n": n, "value": value(number, thread, n)}
        tx["items"].upsert(row)
        tx["totals"].upsert({"round": number, "thread": thread, "count": n + 1})
        if n % 7 == 6:
            tx["items"].delete((number, thread, n - 5))
    return tx.receipt


def lives(count: int) -> set[int]:
    """Return the n whose items live after `count` transactions of one thread."""
    gone = {n - 5 for n in range(count) if n % 7 == 6}
    return set(range(count)) - gone


def commit_for_ever(db: st.Store, number: int, thread: int, log: int) -> None:
    for n in itertools.count():
        receipt = write(db, number, thread, n)
        os.write(log, b"%d %d %d\n" % (thread, n, receipt.seq))


def maintain_for_ever(db: st.Store, number: int) -> None:
    for turn in itertools.count():
        db.checkpoint()
        if (turn + number) % 3 == 0:
            db._parts.owner.merge_child.start()
        elif (turn + number) % 3 == 1:
            db.merge()


def create(db: st.Store) -> None:
    if "items" in db.tables():
        return
    with db.transaction() as tx:
        keys = {"round": "int64", "thread": "int64"}
        tx.create_table(
            "items", {**keys, "n": "int64", "value": "binary"}, ["round", "thread", "n"]
        )
        tx.create_table("totals", {**keys, "count": "int64"}, ["round", "thread"])


def main() -> None:
    root, acknowledged, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.stdin.readline()
    db = st.connect(root, segment_bytes=65_536, memory_bytes_max=1 << 20)
    create(db)
    log = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    jobs = [(commit_for_ever, (db, number, t, log)) for t in range(THREADS)]
    jobs.append((maintain_for_ever, (db, number)))
    for job, args in jobs:
        threading.Thread(target=job, args=args, daemon=True).start()
    time.sleep(60)  # until killed


if __name__ == "__main__":
    main()
