"""Tries that lost take turns: no writer of a busy row gives up, and nobody else waits for them."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from tests.engine.seams import Threads, until
from tests.isolation.stores import with_two_rows

LONG_S = 10.0
"""No wait for a turn is as long, and no test that passes takes it."""


def add_one(tx: st.Transaction, table: str = "t", row: int = 1) -> None:
    tx[table].update(row, v=tx[table].get(row)["v"] + 1)


@pytest.mark.parametrize("threads", [6, 16])
def test_no_increment_of_one_row_gives_up(threads: int) -> None:
    db, todo = with_two_rows(), itertools.count()

    def work() -> None:
        while next(todo) < 400:
            db.run(add_one)

    crew = Threads()
    for _ in range(threads):
        crew.start(work)
    crew.join(lambda: db.seq)
    assert db["t"].get(1)["v"] == 410


def test_arrivals_at_an_open_rate_all_commit() -> None:
    db, crew, pace = with_two_rows(), Threads(), threading.Event()
    for _ in range(150):
        crew.start(db.run, add_one)
        pace.wait(0.003)
    crew.join(lambda: db.seq)
    assert db["t"].get(1)["v"] == 160


def loses(
    db: LocalStore, tries: int, then: Callable[[], object] = lambda: None, row: int = 1
) -> Callable:
    """Return work on a row that loses `tries` times; in the next try it does `then`."""
    tried = itertools.count()

    def work(tx: st.Transaction) -> None:
        add_one(tx, row=row)
        if next(tried) < tries:
            db["t"].update(row, v=0)
        else:
            then()

    return work


@contextmanager
def held(db: LocalStore, losses: int = 1) -> Iterator[Threads]:
    """Run the block while a thread holds the turn of `t`, in a try that has not ended."""
    begun, end, crew = threading.Event(), threading.Event(), Threads()

    def then() -> None:
        begun.set()
        end.wait()

    crew.start(db.run, loses(db, losses, then))
    until(begun.is_set)
    try:
        yield crew
    finally:
        end.set()
        crew.join()


def test_one_that_lost_begins_again_when_the_one_before_it_is_done() -> None:
    db, order = with_two_rows(), []
    with held(db) as crew:
        crew.start(db.run, loses(db, 1, lambda: order.append(db["t"].get(1)["v"])))
        until(lambda: db.core.turns.waiting("t") == 1)
        assert not order
    assert order == [1]  # what the first holder wrote
    assert not db.core.turns.is_held("t")


def test_turns_are_of_tables() -> None:
    db = with_two_rows()
    db.create_table("other", {"id": "int64", "v": "int64"}, "id").upsert({"id": 1, "v": 0})
    tried = itertools.count()

    def work(tx: st.Transaction) -> None:
        add_one(tx, "other")
        if not next(tried):
            db["other"].update(1, v=5)
        else:
            assert db.core.turns.is_held("other")
            assert db.core.turns.is_held("t")

    with held(db):
        db.run(work)
    assert db["other"].get(1)["v"] == 6


def test_a_try_gives_its_turn_up_before_it_takes_another() -> None:
    db = with_two_rows()
    db.create_table("other", {"id": "int64", "v": "int64"}, "id").upsert({"id": 1, "v": 0})
    tables, seen = iter(["t", "other", None]), []

    def work(tx: st.Transaction) -> None:
        seen.append([name for name in ("t", "other") if db.core.turns.is_held(name)])
        add_one(tx, "t")
        add_one(tx, "other")
        rival = next(tables)
        if rival is not None:
            db[rival].update(1, v=0)

    db.run(work)
    assert seen == [[], ["t"], ["other"]]


def test_work_that_does_not_touch_the_busy_row_waits_for_nobody() -> None:
    db = with_two_rows()

    def other_row(tx: st.Transaction) -> None:
        tx["t"].update(2, v=tx["t"].get(2)["v"] + 1)

    with held(db):
        crew = Threads()
        crew.start(db.run, other_row)
        crew.join()
        assert db["t"].get(2)["v"] == 21


def test_no_commit_waits_for_a_turn() -> None:
    db = with_two_rows()
    with held(db) as crew:
        with db.transaction() as tx:
            tx["t"].update(2, v=1)
        db["t"].update(2, v=3)
        assert db["t"].get(2)["v"] == 3
        db["t"].update(1, v=100)  # the holder's snapshot is older: it loses, whatever turn it has
        assert not crew.errors
    assert db["t"].get(1)["v"] == 101


def test_a_holder_may_wait_for_the_run_of_another_thread() -> None:
    db, began = with_two_rows(), time.monotonic()

    def wait_for_another() -> None:
        crew = Threads()
        crew.start(db.run, loses(db, 1, row=2))  # it loses; who waits for it has the turn
        crew.join()

    db.run(loses(db, 1, wait_for_another))
    assert (db["t"].get(1)["v"], db["t"].get(2)["v"]) == (1, 1)
    assert 0.9 < time.monotonic() - began < LONG_S


def test_a_nested_run_keeps_the_turn() -> None:
    db, seen = with_two_rows(), []

    def nested() -> None:
        with db.transaction() as tx:  # the outer try must not lose to the nested one
            tx["t"].update(2, v=0)
        rival = itertools.count()

        def inner(tx: st.Transaction) -> None:
            tx["t"].update(2, v=tx["t"].get(2)["v"] + 1)
            if not next(rival):
                db["t"].update(2, v=7)

        began = time.monotonic()
        db.run(inner)
        seen.append(time.monotonic() - began)
        seen.append(db.core.turns.is_held("t"))

    db.run(loses(db, 1, nested))
    assert seen[0] < 0.9  # it did not wait for itself
    assert seen[1]
    assert (db["t"].get(1)["v"], db["t"].get(2)["v"]) == (1, 8)
    assert not db.core.turns.is_held("t")


def test_after_three_losses_in_turn_first_tries_wait_as_well() -> None:
    db = with_two_rows()
    arrived = threading.Event()

    def arrival(tx: st.Transaction) -> int:
        arrived.set()
        add_one(tx)
        return tx["t"].get(1)["v"]

    values: list[int] = []
    with held(db, losses=4) as crew:  # one without a turn, three with it
        crew.start(lambda: values.append(db.run(arrival)))
        until(lambda: db.core.turns.waiting("t") == 1)
        assert arrived.is_set()
        assert not values
    assert values == [2]
    assert not db.core.turns.closed


def test_a_first_try_that_waits_goes_on_after_a_second() -> None:
    db = with_two_rows()

    def other_row(tx: st.Transaction) -> None:
        tx["t"].update(2, v=5)

    with held(db, losses=4):
        began = time.monotonic()
        db.run(other_row)
        assert 0.9 < time.monotonic() - began < LONG_S
        assert db["t"].get(2)["v"] == 5


def test_a_first_try_that_hides_its_end_is_tried_again_whole() -> None:
    db, tried = with_two_rows(), itertools.count()
    db.create_table("log", {"id": "int64", "v": "int64"}, "id")

    def careless(tx: st.Transaction) -> None:
        tx["log"].insert({"id": next(tried), "v": 0})
        with contextlib.suppress(Exception):
            tx["t"].update(2, v=5)

    with held(db, losses=4) as crew:
        crew.start(db.run, careless)
        until(lambda: db.core.turns.waiting("t") == 1)
    assert db["log"].to_arrow()["id"].to_pylist() == [1]
    assert db["t"].get(2)["v"] == 5


def commits_within(tx: st.Transaction, number: int) -> None:
    tx["log"].insert({"id": number, "v": 0})
    with contextlib.suppress(Exception):
        tx["t"].update(2, v=5)
    tx.commit()


def raises_its_own(tx: st.Transaction, number: int) -> None:
    tx["log"].insert({"id": number, "v": 0})
    try:
        tx["t"].update(2, v=5)
    except Exception as error:
        raise LookupError(str(error)) from error


def creates_what_it_does_not_find(tx: st.Transaction, number: int) -> None:
    tx["log"].insert({"id": number, "v": 0})
    try:
        table = tx["t"]
    except Exception:  # noqa: BLE001 - as people write it
        table = tx.create_table("t", {"id": "int64", "v": "int64"}, "id")
    table.update(2, v=5)


@pytest.mark.parametrize("work", [commits_within, raises_its_own, creates_what_it_does_not_find])
def test_whatever_work_makes_of_its_end_it_is_tried_again_whole(
    work: Callable[[st.Transaction, int], None],
) -> None:
    db, tried = with_two_rows(), itertools.count()
    db.create_table("log", {"id": "int64", "v": "int64"}, "id")
    with held(db, losses=4) as crew:
        crew.start(db.run, lambda tx: work(tx, next(tried)))
        until(lambda: db.core.turns.waiting("t") == 1)
        assert db["log"].count() == 0
    assert db["log"].to_arrow()["id"].to_pylist() == [1]
    assert db["t"].get(2)["v"] == 5


def test_work_that_fails_gives_its_turn_up() -> None:
    db = with_two_rows()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.run(loses(db, 1, fail))
    assert not db.core.turns.is_held("t")


def test_a_transaction_takes_turns_before_its_snapshot() -> None:
    db, seqs = with_two_rows(), []

    def second() -> None:
        with db.transaction(turns=["t"]) as tx:
            seqs.append(tx.read_seq)

    crew = Threads()
    with db.transaction(turns=["t"]) as tx:
        crew.start(second)
        until(lambda: db.core.turns.waiting("t") == 1)
        add_one(tx)
    crew.join()
    assert seqs == [tx.seq]
    assert not db.core.turns.is_held("t")


def test_transactions_that_take_two_turns_do_not_wait_for_each_other() -> None:
    db, began = with_two_rows(), time.monotonic()
    db.create_table("other", {"id": "int64", "v": "int64"}, "id")
    crew = Threads()

    def take(*names: str) -> None:
        for _ in range(50):
            with db.transaction(turns=names):
                pass

    crew.start(take, "t", "other")
    crew.start(take, "other", "t", "t")
    crew.join()
    assert time.monotonic() - began < LONG_S


@pytest.mark.parametrize("end", ["commit", "rollback", "forget", "close"])
def test_the_turn_of_a_transaction_ends_with_it(end: str) -> None:
    db = with_two_rows()
    turns, tx = db.core.turns, db.transaction(turns=["t"])
    assert turns.is_held("t")
    if end == "forget":
        del tx
    elif end == "close":
        db.close()
    else:
        getattr(tx, end)()
    assert not turns.is_held("t")


@pytest.mark.parametrize(
    ("turns", "error", "words"),
    [
        ("t", st.RequestError, "turns must be a list of names of tables; got 't'"),
        (7, st.RequestError, "turns must be a list of names of tables; got 7"),
        ([1], st.RequestError, "turns must be a list of names of tables; got 1"),
        (["t", "nope"], st.TableNotFoundError, "nope"),
    ],
)
def test_turns_of_no_table_are_refused(turns: object, error: type, words: str) -> None:
    db = with_two_rows()
    with pytest.raises(error, match=words):
        db.transaction(turns=turns)
    assert not db.core.turns.is_held("t")


def test_the_last_conflict_says_how_often_it_tried_and_which_row() -> None:
    db = with_two_rows()
    with pytest.raises(st.ConflictError, match=r"tried 3 times.* t\[1\].* seq \d+") as caught:
        db.run(loses(db, 99), attempts=3)
    assert (caught.value.tries, caught.value.table, caught.value.key) == (3, "t", 1)
    assert not db.core.turns.is_held("t")
