"""Turns: requests about one name follow each other; and the versions that were refused lately.

Locks: one for each name, over a request; one over the table of those locks and of the refusals.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from copy import copy

from siltstone.errors import BusyError

WAIT_S_MAX = 60.0
"""A request that waits holds a thread of the server, and there are few."""
_REFUSED_MAX = 256
_REASON_CHARACTERS_MAX = 1_000


class Turns:
    """The turns of requests that commit to one table, or end one transaction. Any thread."""

    def __init__(self, wait_s_max: float = WAIT_S_MAX) -> None:
        self._wait_s_max, self._within = wait_s_max, ""
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, str, int], None] = {}
        self._reasons: dict[tuple[str, str], str] = {}
        # Each lives for as long as a request holds it or waits.
        self._turns = weakref.WeakValueDictionary[tuple[str, str], threading.Lock]()

    def within(self, transaction: str) -> Turns:
        """Return the turns of the statements of one transaction: its names are its own."""
        made = copy(self)
        made._within = transaction  # noqa: SLF001 - of its own kind
        return made

    @contextmanager
    def of(self, name: str) -> Generator[None]:
        """Wait for the requests about `name` that came before.

        Raises:
            BusyError: One of them took too long, and still runs; nothing was begun.
        """
        with self._lock:
            turn = self._turns.setdefault((self._within, name), threading.Lock())
        if not turn.acquire(timeout=self._wait_s_max):
            raise BusyError(
                f"another request about the same still runs after {self._wait_s_max:g} s; ask again"
            )
        try:
            yield
        finally:
            turn.release()

    def is_taken(self, name: str) -> bool:
        """Return whether a request about `name` is under way."""
        with self._lock:
            turn = self._turns.get((self._within, name))
        return turn is not None and turn.locked()

    def note_refused(self, name: str, number: int) -> None:
        """Note that no version of that number was made: its client asks for it next.

        The newest notes are kept, `_REFUSED_MAX` of them.
        """
        with self._lock:
            self._refused.pop((self._within, name, number), None)
            self._refused[self._within, name, number] = None
            if len(self._refused) > _REFUSED_MAX:
                del self._refused[next(iter(self._refused))]

    def note_outcome(self, name: str, refusal: str | None) -> None:
        """Note why the last commit to a table was refused; None: it was not.

        The newest reasons are kept, of `_REFUSED_MAX` tables.
        """
        with self._lock:
            self._reasons.pop((self._within, name), None)
            if refusal is not None:
                self._reasons[self._within, name] = refusal[:_REASON_CHARACTERS_MAX]
            if len(self._reasons) > _REFUSED_MAX:
                del self._reasons[next(iter(self._reasons))]

    def refusal_of(self, name: str) -> str | None:
        """Return why the last commit to a table was refused, as far as is known."""
        with self._lock:
            return self._reasons.get((self._within, name))

    def was_refused(self, name: str, number: int) -> bool:
        """Return whether a version of that number was refused, as far as is known."""
        with self._lock:
            return (self._within, name, number) in self._refused
