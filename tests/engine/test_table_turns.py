"""A line for turns is in order, every wait in it ends, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import threading
import time

from siltstone.process.turns import TableTurn, TableTurns
from tests.engine.seams import Threads, until


def test_turns_go_round_in_the_order_in_which_they_were_asked_for() -> None:
    turns, crew, order = TableTurns(), Threads(), []

    def take(number: int) -> None:
        turn = turns.take("t", wait_s=30)
        order.append(number)
        turns.give_up(turn)

    first = turns.take("t")
    for number in range(5):
        crew.start(take, number)
        until(lambda number=number: turns.waiting("t") == number + 1)
    turns.give_up(first)
    crew.join()
    assert order == [0, 1, 2, 3, 4]
    assert not turns.is_held("t")
    assert not turns.waiting("t")


def test_a_wait_ends_without_a_turn_and_leaves_the_line() -> None:
    turns, found, crew = TableTurns(), [], Threads()
    first = turns.take("t")
    crew.start(lambda: found.append(turns.take("t", wait_s=0.05)))
    crew.join()
    assert found == [None]
    turns.give_up(first)
    assert not turns.is_held("t")


def test_a_turn_ends_by_itself_and_the_next_in_line_gets_it() -> None:
    turns, found, crew = TableTurns(hold_s=0.05), [], Threads()
    first = turns.take("t")
    crew.start(lambda: found.append(turns.take("t", wait_s=30)))
    crew.join()
    assert found[0] is not None
    assert not turns.note_loss(first)
    turns.give_up(first)  # of one that is over already: the next holder keeps its own
    assert turns.is_held("t") == (time.monotonic() < found[0].ends_s)


def test_a_turn_that_is_only_marked_as_over_is_free() -> None:
    turns = TableTurns()
    turns.take("t").is_over = True
    assert turns.take("t", wait_s=0) is not None


def test_a_thread_that_holds_a_turn_takes_another_only_if_it_is_free() -> None:
    turns, crew, began = TableTurns(), Threads(), time.monotonic()
    end = threading.Event()

    def hold() -> None:
        turn = turns.take("b")
        end.wait()
        turns.give_up(turn)

    crew.start(hold)
    until(lambda: turns.is_held("b"))
    assert turns.take("a") is not None
    assert turns.take("a") is None
    assert turns.take("b") is None
    assert time.monotonic() - began < 0.9
    assert turns.take("c") is not None
    end.set()
    crew.join()


def test_a_line_is_bounded() -> None:
    turns, crew = TableTurns(waiting_max=2), Threads()
    first = turns.take("t")
    for _ in range(2):
        crew.start(lambda: turns.give_up(turns.take("t", wait_s=30)))
    until(lambda: turns.waiting("t") == 2)
    began, found = time.monotonic(), []
    late = Threads()
    late.start(lambda: found.append(turns.take("t", wait_s=30)))
    late.join()
    assert found == [None]
    assert time.monotonic() - began < 20
    turns.give_up(first)
    crew.join()


def test_a_table_is_closed_from_the_third_loss_to_the_end_of_the_turn() -> None:
    turns = TableTurns()
    turn = turns.take("t")
    for _ in range(3):
        assert not turns.closed
        assert turns.note_loss(turn)
    assert turns.closed == {"t"}
    turns.give_up(turn)
    assert not turns.closed


def test_a_table_whose_holder_is_gone_is_open_to_the_next_that_waits() -> None:
    turns, crew, began = TableTurns(), Threads(), time.monotonic()
    turn = turns.take("t")
    for _ in range(3):
        turns.note_loss(turn)
    turn.is_over = True
    crew.start(turns.wait_open, "t", 30)
    crew.join()
    assert time.monotonic() - began < 20
    assert not turns.closed


class Interrupted(TableTurns):
    """The handler of a signal runs within it, and asks for turns."""

    asked: list[object]

    def _advance(self, table: str) -> None:
        super()._advance(table)
        if not hasattr(self, "asked"):
            self.asked = []
            self.asked += [self.take("t"), self.wait_open("t"), self.holds()]
            over = TableTurn("t", 0)
            self.give_up(over)
            self.asked += [self.note_loss(over), over.is_over]


def test_who_asks_from_the_handler_of_a_signal_within_a_line_gets_no_turn_and_waits_for_none() -> (
    None
):
    turns, found, crew = Interrupted(), [], Threads()
    crew.start(lambda: found.append(turns.take("t")))
    crew.join()
    assert turns.asked == [None, None, False, False, True]
    assert found[0] is not None
    turns.give_up(found[0])
    assert not turns.is_held("t")


def test_a_handler_at_the_edge_of_the_lock_keeps_nobody_waiting() -> None:
    """It runs when its thread has the lock, but has not said so yet, or no longer says so."""
    turns = TableTurns(hold_s=1_000)
    holder, crew, asked = turns.take("t"), Threads(), []

    class Edge(set[int]):
        def discard(self, thread: int) -> None:
            set.discard(self, thread)
            if not asked and thread == threading.get_ident():
                asked.append(None)
                signal.raise_signal(signal.SIGUSR1)

    def ask(*_: object) -> None:
        crew.start(turns.give_up, holder)
        asked.append(turns.take("t", wait_s=3))

    before = signal.signal(signal.SIGUSR1, ask)
    turns._within = Edge()
    try:
        turns.is_held("another")
    finally:
        signal.signal(signal.SIGUSR1, before)
    crew.join()
    assert asked[1] is not None, "the holder could give it up meanwhile"


def test_a_child_of_a_fork_does_not_wait_for_a_lock_that_nobody_gives_back() -> None:
    turns, crew = TableTurns(), Threads()
    turn = turns.take("t")
    is_locked, is_forked = threading.Event(), threading.Event()

    def have_the_lock() -> None:
        with turns._lock:
            is_locked.set()
            is_forked.wait()

    crew.start(have_the_lock)
    is_locked.wait()
    child = os.fork()
    if child == 0:
        turns.give_up(turn)
        os._exit(0 if turns.take("t") is None else 1)
    is_forked.set()
    crew.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
