"""Watch: the thread that interrupts statements which must stop; one for all of this process.

DuckDB does not stop by itself. Every `LOOK_S` the thread looks at each statement: at the deadline
of the thread that reads it now, and at what the statement reads. It ends `LINGER_LOOKS` looks after
the last statement, so statements that follow each other find it there.

Lock: one, to start the thread once. Statements come and go by single steps of a dict: a finalizer,
which may run in the middle of any other call here, ends a statement.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from siltstone.process import deadline, threads

LOOK_S = 0.1
LINGER_LOOKS = 50


class Interruptible(Protocol):
    """The connection of a statement."""

    def interrupt(self) -> None:
        """Have what runs there fail soon; from any thread."""
        ...


class Watched:
    """A statement under way. `end` is set by its reader, `reason` by the thread."""

    def __init__(self, connection: Interruptible, check: Callable[[], object]) -> None:
        """Have a statement watched until it is `left`.

        Raises:
            UnavailableError: The system gives no thread.
        """
        self.end: deadline.Deadline | None = None
        self.reason: Exception | None = None
        self._connection, self._check = connection, check
        _watch.add(self)

    def leave(self) -> None:
        """Have it watched no more. Again: nothing."""
        _watch.watched.pop(id(self), None)

    def look(self) -> None:
        """Interrupt it if it must stop."""
        end = self.end
        try:
            self._check()
            if end is not None:
                end.check()
        except Exception as reason:  # noqa: BLE001 - whatever it is: others are watched, too
            self.reason = self.reason or reason
            with suppress(Exception):  # it ended meanwhile: DuckDB says so in its own words
                self._connection.interrupt()  # and again: between two steps it is not heard


class _Watch:
    """See the module."""

    def __init__(self) -> None:
        self.watched: dict[int, Watched] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, statement: Watched) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="siltstone-sql", daemon=True)
                threads.start(thread)
                self._thread = thread
            self.watched[id(statement)] = statement

    def _look(self) -> None:
        looks = 0
        while looks < LINGER_LOOKS or not self._is_over():
            time.sleep(LOOK_S)
            found = list(self.watched.values())
            for statement in found:
                statement.look()
            looks = 0 if found else looks + 1

    def _is_over(self) -> bool:
        with self._lock:
            if not self.watched:
                self._thread = None
            return self._thread is None


_watch = _Watch()


def watched_count() -> int:
    """Return how many statements of this process are under way."""
    return len(_watch.watched)


os.register_at_fork(after_in_child=_watch.__init__)
