"""No update is lost, at whatever line of a transaction another one commits.

Chance never meets the moment between two lines. So each line that a transaction runs in its own
files is visited: there, in the same thread, others commit, and what they wrote is let go of if
nobody is known to need it. Inside a commit, and under the lock of the open transactions, nobody
can commit, so these lines are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.commit import recent_writes
from siltstone.maintenance.flush.bulk_load import load
from tests.isolation.stores import with_two_rows
from tests.support.traced import NthLine

LINES_MIN = 40


WHERE = (
    "engine/write/transaction.py",
    "engine/write/transaction_rows.py",
    "engine/commit/recent_writes.py",
    "engine/write/submission.py",
    "maintenance/flush/bulk_load.py",
)
COMMIT = "engine/commit/committer.py"


@pytest.fixture(autouse=True)
def _every_commit_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each commit forget what nobody needs; a store does so after many."""
    monkeypatch.setattr(recent_writes, "_FORGET_EVERY", 1)


def is_in_a_commit(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.endswith(COMMIT):
            return True
        frame = frame.f_back
    return False


def at_every_line(
    db: Store,
    meddle: Callable[[], object],
    act: Callable[[], object],
    check: Callable[[bool], None],
) -> None:
    """Let `act` run again and again, disturbed at another line each time; `check` hears who won."""
    lock = db._core.transactions._lock

    def is_nobodys_turn(frame: FrameType) -> bool:
        return lock.locked() or is_in_a_commit(frame)

    nth = 0
    while True:
        nth += 1
        with NthLine(nth, meddle, *WHERE, passed=is_nobodys_turn) as line:
            try:
                act()
                has_won = True
            except (st.ConflictError, st.DuplicateKeyError):
                has_won = False
        if not line.has_acted:
            break
        check(has_won)
    assert nth > LINES_MIN


def rows(first: int, v: int) -> pa.Table:
    """Return so many rows that their keys are compared as codes."""
    return pa.table({"id": list(range(first, first + 600)), "v": [v] * 600})


def by_row(tx: st.Transaction, v: int) -> None:
    tx["t"].upsert({"id": 1, "v": v})


def by_update(tx: st.Transaction, v: int) -> None:
    tx["t"].update(1, v=v)


def by_batch(tx: st.Transaction, v: int) -> None:
    tx["t"].upsert(rows(1, v))


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("write", [by_row, by_update, by_batch])
def test_of_two_that_count_up_neither_is_lost_at_whatever_line_they_meet(
    write: Callable[[st.Transaction, int], None], isolation: str
) -> None:
    db = with_two_rows()

    def value() -> int:
        row = db["t"].get(1)
        assert row is not None
        return row["v"]

    def count_up() -> None:
        with db.transaction(isolation=isolation) as tx:
            row = tx["t"].get(1)
            assert row is not None
            write(tx, row["v"] + 1)

    def meddle() -> None:
        db["t"].upsert({"id": 1, "v": value() + 1})
        db["t"].upsert({"id": 2, "v": 0})  # its admission forgets what nobody needs

    counted = value()

    def check(has_won: bool) -> None:
        nonlocal counted
        counted += 2 if has_won else 1
        assert value() == counted

    at_every_line(db, meddle, count_up, check)


def test_of_two_that_insert_one_key_one_wins_though_the_other_comes_in_bulk() -> None:
    db = with_two_rows()
    table, table_schema = db["t"]._table_schema()
    free, is_inserted = 1_000, False

    def attach() -> None:
        load(db._core, table, table_schema, rows(free, 7), may_repeat=False, bytes_min=1)

    def meddle() -> None:
        nonlocal is_inserted
        with suppress(st.DuplicateKeyError):  # the others have won already
            db["t"].insert({"id": free, "v": -1})
            is_inserted = True
        db["t"].upsert({"id": 2, "v": 0})

    def check(has_won: bool) -> None:
        nonlocal free, is_inserted
        assert has_won != is_inserted
        assert db["t"].get(free) == {"id": free, "v": 7 if has_won else -1}
        free, is_inserted = free + 1_000, False

    at_every_line(db, meddle, attach, check)


def to_other_keys(db: Store) -> Callable[[], object]:
    """Return what commits to keys that nobody else writes, and so often that others forget."""

    def meddle() -> None:
        for _ in range(2):
            db["t"].upsert({"id": 10**6, "v": 0})

    return meddle


def wins(has_won: bool) -> None:
    """What was written since a seq that is let go of is no longer known: its reader conflicts."""
    assert has_won


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("write", [by_row, by_update, by_batch])
def test_nobody_conflicts_with_another_key_at_whatever_line_they_meet(
    write: Callable[[st.Transaction, int], None], isolation: str
) -> None:
    db = with_two_rows()

    def act() -> None:
        with db.transaction(isolation=isolation) as tx:
            assert tx["t"].get(1) is not None
            write(tx, 7)

    at_every_line(db, to_other_keys(db), act, wins)


def test_rows_in_bulk_conflict_with_no_other_key_at_whatever_line_they_meet() -> None:
    db = with_two_rows()
    table, table_schema = db["t"]._table_schema()
    firsts = iter(range(1_000, 10**6, 1_000))

    def attach() -> None:
        written = rows(next(firsts), 7)
        load(db._core, table, table_schema, written, may_repeat=False, bytes_min=1)

    at_every_line(db, to_other_keys(db), attach, wins)


def test_a_truncate_takes_no_row_that_it_did_not_see_at_whatever_line_they_meet() -> None:
    db = with_two_rows()
    made, is_seen = 100, False

    def truncate() -> None:
        nonlocal is_seen
        is_seen = False
        with db.transaction() as tx:
            is_seen = tx["t"].get(made) is not None
            tx["t"].truncate()

    def meddle() -> None:
        db["t"].upsert({"id": made, "v": 1})
        db["t"].upsert({"id": 2, "v": 0})

    def check(has_won: bool) -> None:
        nonlocal made
        is_there = db["t"].get(made) is not None
        assert is_there != (has_won and is_seen)
        made += 1

    at_every_line(db, meddle, truncate, check)
