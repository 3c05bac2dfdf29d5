"""Soak role: one process of the soak; it works until its standard input ends.

    python -m tests.races.soak_role owner|reader|optimizer|merger|vacuum ROOT ACKNOWLEDGED SEED

The owner's four writers each count n = 0, 1, 2, ... over all lives of the store. Transaction n of
writer w moves money between two accounts, stamps its slot n % 50, at times deletes another slot,
and every 50th time appends to the journal. So any snapshot tells by the highest n of a writer what
each of its rows must be. What was acknowledged is a line "w n seq" of the file.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import siltstone as st
from siltstone import beside

WRITERS = 4
ACCOUNTS = 24
TOTAL = ACCOUNTS * 1_000
SLOTS = 50
OWN_S = 30.0
OPTIONS = {
    "segment_bytes": 65_536,
    "memtable_bytes_max": 131_072,
    "retention": "3s",
}


def create(db: st.Store) -> None:
    """Make the tables with the money in them."""
    with db.transaction() as tx:
        accounts = tx.create_table("accounts", {"id": "int64", "balance": "int64"}, "id")
        accounts.upsert([{"id": n, "balance": TOTAL // ACCOUNTS} for n in range(ACCOUNTS)])
        stamps = {"writer": "int64", "slot": "int64", "n": "int64", "text": "string"}
        tx.create_table("stamps", stamps, ["writer", "slot"])
        tx.create_table("journal", {"writer": "int64", "n": "int64"})


def text(writer: int, n: int) -> str:
    """Return what only transaction n of a writer writes; 10 to 2,000 characters."""
    return f"{writer}/{n}." * (1 + (n * 7 + writer) % 300)


def stamped(last: int) -> dict[int, int]:
    """Return the n that stands in each slot behind transaction `last` of a writer."""
    slots: dict[int, int] = {}
    for n in range(max(0, last - 2 * SLOTS), last + 1):
        slots[n % SLOTS] = n
        if n % 5 == 4:
            slots.pop((n - 2) % SLOTS, None)
    return slots


def check(snapshot: st.Snapshot) -> dict[int, int]:
    """Check all that a snapshot shows; return the last n of each writer."""
    balances = snapshot["accounts"].to_arrow()["balance"].to_pylist()
    assert (len(balances), sum(balances)) == (ACCOUNTS, TOTAL), f"seq {snapshot.seq}: {balances}"
    rows = snapshot["stamps"].to_arrow().to_pylist()
    journal = snapshot["journal"].to_arrow().to_pylist()
    last: dict[int, int] = {}
    for writer in range(WRITERS):
        mine = {row["slot"]: row["n"] for row in rows if row["writer"] == writer}
        last[writer] = max(mine.values(), default=-1)
        where = f"seq {snapshot.seq}, writer {writer}, last {last[writer]}"
        assert mine == stamped(last[writer]), where
        entries = sorted(row["n"] for row in journal if row["writer"] == writer)
        assert entries == list(range(SLOTS - 1, last[writer] + 1, SLOTS)), where
    for row in rows:
        assert row["text"] == text(row["writer"], row["n"]), row
    return last


def check_acknowledged(last: dict[int, int], acknowledged: Path, upto: int) -> None:
    """Check that what was acknowledged at or before seq `upto` is there."""
    lines = acknowledged.read_text().splitlines() if acknowledged.exists() else []
    for writer, n, seq in (map(int, line.split()) for line in lines):
        if seq <= upto:
            assert n <= last[writer], f"writer {writer}: {n} at seq {seq} is lost"


def own(root: Path) -> st.Store:
    """Open the store; a vacuum without an owner owns it for a moment, and may be stopped there."""
    deadline = time.monotonic() + OWN_S
    while True:
        try:
            return st.connect(root, **OPTIONS)
        except st.OwnedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Owner:
    """The writers."""

    def __init__(self, root: Path, acknowledged: Path, seed: int) -> None:
        self._db = own(root)
        with self._db.snapshot() as snapshot:
            self._last = check(snapshot)
            check_acknowledged(self._last, acknowledged, snapshot.seq)
        self._file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._chance = [random.Random(f"{seed} {writer}") for writer in range(WRITERS)]
        self._failures: list[BaseException] = []

    def run(self, stop: threading.Event) -> None:
        """Write until told to stop."""
        with self._db:
            threads = [
                threading.Thread(target=self._write, args=(writer, stop))
                for writer in range(WRITERS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._failures:
                raise self._failures[0]

    def _write(self, writer: int, stop: threading.Event) -> None:
        try:
            n = self._last[writer]
            while not stop.is_set():
                n += 1
                receipt = self._transfer(writer, n)
                os.write(self._file, b"%d %d %d\n" % (writer, n, receipt.seq))
        except BaseException as error:  # noqa: BLE001 - it ends the process, with its trace
            self._failures.append(error)
            stop.set()

    def _transfer(self, writer: int, n: int) -> st.Receipt:
        chance = self._chance[writer]
        one, other = chance.sample(range(ACCOUNTS), 2)
        amount = chance.randrange(100)
        while True:
            try:
                with self._db.transaction() as tx:
                    for account, change in ((one, -amount), (other, amount)):
                        balance = tx["accounts"].get(account)["balance"]
                        tx["accounts"].upsert({"id": account, "balance": balance + change})
                    row = {"writer": writer, "slot": n % SLOTS, "n": n, "text": text(writer, n)}
                    tx["stamps"].upsert(row)
                    if n % 5 == 4:
                        tx["stamps"].delete((writer, (n - 2) % SLOTS))
                    if n % SLOTS == SLOTS - 1:
                        tx["journal"].append([{"writer": writer, "n": n}])
            except st.ConflictError:
                continue
            return tx.receipt


class Reader:
    """Looks at what is newest and at what is past."""

    def __init__(self, root: Path, acknowledged: Path, seed: int) -> None:
        self._db, self._acknowledged = st.connect(root, read_only=True), acknowledged
        self._chance = random.Random(seed)

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        seen = 0
        with self._db:
            while not stop.wait(0.02):
                lines = self._acknowledged.stat().st_size if self._acknowledged.exists() else 0
                with self._db.snapshot() as snapshot:
                    last, upto = check(snapshot), snapshot.seq
                    assert upto >= seen, f"seq {upto} after {seen}"
                    seen = upto
                    if lines % 7 == 0:
                        check_acknowledged(last, self._acknowledged, upto)
                    self._look_back(upto)
                    assert check(snapshot) == last, f"seq {upto} changed"

    def _look_back(self, upto: int) -> None:
        oldest = self._db.status().oldest_seq
        seq = self._chance.randint(min(max(oldest, 2), upto), upto)
        try:
            with self._db.snapshot(seq=seq) as past:
                check(past)
        except st.SnapshotExpiredError:
            return


def maintain(work: Callable[[], object], seed: int, rest_s: float) -> Callable[..., None]:
    """Return what does `work` again and again; late is no error, anything else is."""
    chance = random.Random(seed)

    def run(stop: threading.Event) -> None:
        while not stop.wait(chance.uniform(0, rest_s)):
            work()

    return run


def vacuum(root: Path) -> None:
    """Vacuum, unless the owner dies or recovers just then: nobody knows what its log names."""
    with contextlib.suppress(st.BusyError):
        beside.vacuum_beside(root, dry_run=False, grace_s=0, retention=OPTIONS["retention"])


def role(name: str, root: Path, acknowledged: Path, seed: int) -> Callable[..., None]:
    chance = random.Random(seed)
    if name == "owner":
        return Owner(root, acknowledged, seed).run
    if name == "reader":
        return Reader(root, acknowledged, seed).run
    work: dict[str, Callable[[], object]] = {
        "optimizer": lambda: beside.optimize_beside(root, target_rows=chance.choice([64, 1 << 20])),
        "merger": lambda: beside.merge_beside(root),
        "vacuum": lambda: vacuum(root),
    }
    return maintain(work[name], seed, 0.5)


def main() -> None:
    name, root, acknowledged, seed = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    stop = threading.Event()
    run = role(name, root, acknowledged, int(seed))
    sys.stdout.write("begun\n")
    sys.stdout.flush()

    def listen() -> None:
        os.read(sys.stdin.fileno(), 1)  # ends with our parent, too
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    run(stop)


if __name__ == "__main__":
    main()
