"""Given ids: under which ids one call commits, for a caller that may leave before it ends.

A thread that makes a call for a task notes the ids of its commits in `GivenIds`. The task may
withdraw: from then on no commit of the call begins, and the last id is the only one that may still
be on its way.

Lock: one for each call, held for one step of a list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

T = TypeVar("T")
_thread = threading.local()


class WithdrawnError(Exception):
    """Who asked for a commit left before it began; nothing was written."""


class GivenIds:
    """See the module. Any thread. `begun` and `ended` hear each id, once."""

    def __init__(self, begun: Callable[[str], object], ended: Callable[[str], object]) -> None:
        self._begun, self._ended = begun, ended
        self._lock = threading.Lock()
        self._ids: list[str] = []
        self._is_withdrawn = False

    @property
    def last(self) -> str | None:
        """The id of the last commit that began."""
        return self._ids[-1] if self._ids else None

    def take(self, transaction_id: str) -> None:
        """Note that a commit begins.

        Raises:
            WithdrawnError: It must not.
        """
        with self._lock:
            if self._is_withdrawn:
                raise WithdrawnError
            self._ids.append(transaction_id)
        self._begun(transaction_id)

    def withdraw(self) -> str | None:
        """Let no commit begin from now on; return the id of the last one that did."""
        with self._lock:
            self._is_withdrawn = True
        return self.last

    def noted(self, call: Callable[[], T]) -> T:
        """Make the call; this thread's commits are noted here."""
        _thread.given = self
        try:
            return call()
        finally:
            _thread.given = None
            for each in self._ids:
                self._ended(each)


class NotedNumbers:
    """The numbers of commits, each of which is noted for the thread that takes it."""

    def __init__(self, numbers: Iterator[int], id_of: Callable[[int], str]) -> None:
        self._numbers, self._id_of = numbers, id_of

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        number = next(self._numbers)
        if getattr(_thread, "given", None) is not None:
            note(self._id_of(number))
        return number


def note(transaction_id: str) -> None:
    """Note that a commit of this thread begins, for the caller that waits for it.

    Raises:
        WithdrawnError: That caller has left; the commit must not begin.
    """
    given: GivenIds | None = getattr(_thread, "given", None)
    if given is not None:
        given.take(transaction_id)
