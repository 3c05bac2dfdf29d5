"""Bank: tables of which any snapshot tells what each row must be, and the writers over them.

Each writer counts n = 0, 1, 2, ... over all lives of the store. Transaction n of writer w moves
money between two accounts, or to one of many savings, of which a merge thus hides a few each time.
It stamps its slot n % 50, at times deletes another slot, and every 50th time appends to the
journal. So the highest n of a writer says what each of its rows is.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import siltstone as st
from proof.lines import lines_of

WRITERS = 4
ACCOUNTS = 24
SAVINGS = range(ACCOUNTS, ACCOUNTS + 2_000)
TOTAL = ACCOUNTS * 1_000
SLOTS = 50
TAGS_MAX = 6
OPTIONS: dict[str, Any] = {
    "segment_bytes": 65_536,
    "memtable_bytes_max": 131_072,
    "retention": "3s",
}


def create(db: st.Store) -> None:
    """Make the tables with the money in them."""
    with db.transaction() as tx:
        accounts = tx.create_table("accounts", {"id": "int64", "balance": "int64"}, "id")
        accounts.upsert([{"id": n, "balance": TOTAL // ACCOUNTS} for n in range(ACCOUNTS)])
        accounts.upsert([{"id": n, "balance": 0} for n in SAVINGS])
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


def check(snapshot: Any) -> dict[int, int]:
    """Check all that a snapshot shows; return the last n of each writer."""
    balances = snapshot["accounts"].to_arrow()["balance"].to_pylist()
    expected = ACCOUNTS + len(SAVINGS), TOTAL
    assert (len(balances), sum(balances)) == expected, f"seq {snapshot.seq}: {balances}"
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


def check_filters(snapshot: Any, last: dict[int, int]) -> None:
    """Check what columns answer that an index may be on, or not."""
    slots = {writer: [*stamped(each).values()] for writer, each in last.items()}
    for n in last.values():
        found = sorted(snapshot["stamps"].to_arrow(filter=f"n = {n}")["writer"].to_pylist())
        assert found == [writer for writer in slots if n in slots[writer]], (snapshot.seq, n)
    floor = min(last.values())
    wanted = sum(n > floor for each in slots.values() for n in each)
    found = snapshot["stamps"].count(f"n > {floor}")
    assert found == wanted, f"seq {snapshot.seq}: {found} stamps above {floor}, not {wanted}"


def transfer(db: st.Store, writer: int, n: int, chance: random.Random) -> st.Receipt:
    """Do transaction n of a writer, until no other one is in its way."""
    one, other = chance.sample(range(ACCOUNTS), 2)
    other = chance.choice(SAVINGS) if n % 2 else other
    amount = chance.randrange(100)

    def move(tx: Any) -> None:
        for account, change in ((one, -amount), (other, amount)):
            balance = tx["accounts"].get(account)["balance"]
            tx["accounts"].upsert({"id": account, "balance": balance + change})
        row = {"writer": writer, "slot": n % SLOTS, "n": n, "text": text(writer, n)}
        tx["stamps"].upsert(row)
        if n % 5 == 4:
            tx["stamps"].delete((writer, (n - 2) % SLOTS))
        if n % SLOTS == SLOTS - 1:
            tx["journal"].append([{"writer": writer, "n": n}])

    while True:
        try:
            with db.transaction() as tx:
                move(tx)
        except st.ConflictError:
            continue
        assert tx.receipt is not None
        return tx.receipt


# tags


@dataclass(frozen=True)
class Tagged:
    """What the bank was at a tag."""

    name: str
    seq: int
    last: dict[int, int]


def tag(db: st.Store, name: str, told: Path) -> None:
    """Note what the bank is now, then name it; keep a few such names."""
    with db.snapshot() as snapshot:
        last = check(snapshot)
        with told.open("a") as file:
            file.write(json.dumps([name, snapshot.seq, [*last.values()]]) + "\n")
        db.tag(name, snapshot.seq)
    for old in sorted(db.tags(), key=lambda each: db.tags()[each])[:-TAGS_MAX]:
        db.untag(old)


def tagged(told: Path, newest: int = 0) -> list[Tagged]:
    """Return what was noted for all tags, or for the newest ones: some may be gone, or not be."""
    found = [json.loads(line) for line in lines_of(told)[-newest:]]
    return [Tagged(name, seq, dict(enumerate(last))) for name, seq, last in found]


def is_at_tag(db: Any, wanted: Tagged) -> bool:
    """Check the past at a tag; False if the tag is not there yet, or not any more."""
    try:
        snapshot = db.snapshot(tag=wanted.name)
    except st.RequestError:
        return False
    with snapshot:
        assert (snapshot.seq, check(snapshot)) == (wanted.seq, wanted.last), wanted
    return True
