"""Deadline: when the statement that a thread runs must have ended.

No thread can be stopped from outside. So reads ask at every batch of rows, and between the pieces
of a scan that finds none; a statement asks before its commit is sent: behind that, it is not given
up any more. A thread that was given no deadline has all the time there is, and pays nothing for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

from siltstone.errors import RequestError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Deadline:
    """`seconds` from when it began; `is_over` says whether they are gone."""

    seconds: float
    is_over: Callable[[], bool]

    @classmethod
    def after(cls, seconds: float, clock_s: Callable[[], float]) -> Self:
        """Return the deadline that is over `seconds` from now."""
        end = clock_s() + seconds
        return cls(seconds, lambda: clock_s() >= end)

    def check(self) -> None:
        """Give up if it is over.

        Raises:
            RequestError: It is; nothing was changed.
        """
        if self.is_over():
            raise RequestError(
                f"the statement took longer than {self.seconds:g} s; ask for less, or in parts"
            )


class _Local(threading.local):
    deadline: Deadline | None = None


_local = _Local()


@contextmanager
def within(deadline: Deadline | None) -> Generator[None]:
    """Let what this thread does in the block end by `deadline`; None: it has all the time."""
    before, _local.deadline = _local.deadline, deadline
    try:
        yield
    finally:
        _local.deadline = before


def current() -> Deadline | None:
    """Return the deadline of this thread, for others that work for it."""
    return _local.deadline


def is_set() -> bool:
    """Say whether this thread has a deadline."""
    return _local.deadline is not None


def check() -> None:
    """Give up if the deadline of this thread is over.

    Raises:
        RequestError: It is; nothing was changed.
    """
    found = _local.deadline
    if found is not None:
        found.check()


def checked(given: Iterable[Item]) -> Iterable[Item]:
    """Return `given`; if this thread has a deadline now, it checks at each item and the end."""
    return given if _local.deadline is None else _each(given)


def _each(given: Iterable[Item]) -> Iterator[Item]:
    for item in given:
        check()
        yield item
    check()
