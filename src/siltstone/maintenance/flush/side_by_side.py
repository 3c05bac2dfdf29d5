"""Side by side: the same work for many tables, two at a time.

Lance writes without the interpreter's lock, and each table waits for syncs of its own. Lock: none;
the items lie in a queue, and each thread fills places of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.errors import UnavailableError
from siltstone.process import threads

ITEMS_MIN = 16
"""Fewer are done one after the other: a thread costs more than it saves."""
T = TypeVar("T")
R = TypeVar("R")


class _Both(Generic[T, R]):
    """What two threads share: the items that wait, and what came of the others."""

    def __init__(self, items: Sequence[T], work: Callable[[T], R]) -> None:
        self._items, self._work = items, work
        self._waiting: SimpleQueue[int] = SimpleQueue()
        for number in range(len(items)):
            self._waiting.put(number)
        self.done: dict[int, R] = {}
        self.failed: list[BaseException] = []

    def run(self) -> None:
        """Do what waits, until there is no more, or something failed in either thread."""
        try:
            while not self.failed:
                number = self._waiting.get_nowait()
                self.done[number] = self._work(self._items[number])
        except Empty:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised when both have ended
            self.failed.append(error)


def side_by_side(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Return what `work` returns for each item, in their order; the items are independent.

    Raises:
        BaseException: What `work` raised first, or a signal's handler. Nothing of it runs any more,
            and some items are left.
    """
    if len(items) < ITEMS_MIN:
        return [work(item) for item in items]
    both = _Both(items, work)
    thread = threading.Thread(target=both.run, name="siltstone-flush", daemon=True)
    with suppress(UnavailableError):  # then this one does it all
        threads.start(thread)
    both.run()
    with DeferredSignals():
        if thread.ident is not None:
            thread.join()
    if both.failed:
        raise both.failed[0]
    return [both.done[number] for number in range(len(items))]
