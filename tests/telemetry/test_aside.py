"""Calls that nobody waits for are made in order, by a thread, and bounded; what is lost is told."""

from __future__ import annotations

import os
import threading
import warnings

from siltstone.telemetry.aside import Aside


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_calls_are_made_in_order_by_a_thread_that_ends() -> None:
    made: list[tuple[int, str]] = []
    aside = Aside("aside-order", lambda _: None)
    for number in range(100):
        aside.add(lambda number=number: made.append((number, threading.current_thread().name)))
    assert aside.drain(60)
    assert made == [(number, "aside-order") for number in range(100)]
    for thread in threads_named("aside-order"):
        thread.join(60)
    assert threads_named("aside-order") == []


def test_a_call_that_blocks_keeps_nobody_and_what_is_above_the_bound_is_counted() -> None:
    may_end, has_begun, made, lost = threading.Event(), threading.Event(), list[int](), list[int]()

    def block() -> None:
        has_begun.set()
        may_end.wait(60)

    aside = Aside("aside-bound", lost.append, held_max=3)
    aside.add(block)
    assert has_begun.wait(60)
    for number in range(10):
        aside.add(lambda number=number: made.append(number))
    assert not aside.drain(0)
    may_end.set()
    assert aside.drain(60)
    assert made == [0, 1, 2]
    assert lost == [7]


def test_a_call_that_fails_stops_none_behind_it() -> None:
    made: list[int] = []
    aside = Aside("aside-failing", lambda _: None)
    aside.add(lambda: 1 // 0)
    aside.add(lambda: made.append(1))
    assert aside.drain(60)
    assert made == [1]


def test_a_target_that_cannot_be_told_of_what_was_lost_stops_none_behind_it() -> None:
    may_end, has_begun, made = threading.Event(), threading.Event(), list[int]()

    def block() -> None:
        has_begun.set()
        may_end.wait(60)

    def refuse(_: int) -> None:
        raise BrokenPipeError

    aside = Aside("aside-untold", refuse, held_max=1)
    aside.add(block)
    assert has_begun.wait(60)
    for number in range(3):
        aside.add(lambda number=number: made.append(number))
    may_end.set()
    assert aside.drain(60)
    aside.add(lambda: made.append(9))
    assert aside.drain(60)
    assert made == [0, 9]


def test_many_threads_may_add() -> None:
    made: list[int] = []
    aside = Aside("aside-many", lambda _: None, held_max=100_000)

    def add() -> None:
        for _ in range(500):
            aside.add(lambda: made.append(1))

    adders = [threading.Thread(target=add) for _ in range(4)]
    for each in adders:
        each.start()
    for each in adders:
        each.join()
    assert aside.drain(60)
    assert len(made) == 2_000


def test_the_child_of_a_fork_has_a_thread_of_its_own() -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def block() -> None:
        has_begun.set()
        may_end.wait(60)

    aside = Aside("aside-fork", lambda _: None)
    aside.add(block)
    assert has_begun.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forked beside a thread, on purpose
        child = os.fork()
    if not child:
        is_free = aside.drain(0)  # it waits for no thread of its parent's
        made: list[int] = []
        aside.add(lambda: made.append(1))
        os._exit(0 if is_free and aside.drain(60) and made == [1] else 1)
    may_end.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
