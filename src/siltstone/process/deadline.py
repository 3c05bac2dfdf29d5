"""Deadline: the time by which the statement of a thread must end.

Nothing can stop a thread from outside. Therefore reads check the deadline at every batch of rows,
and between the pieces of a scan that finds none. A statement checks it before it sends its commit,
and is never given up afterwards. A thread without a deadline has no limit and no cost.
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
    """A limit of `seconds`; `is_over` returns whether they have passed."""

    seconds: float
    is_over: Callable[[], bool]
    is_gone: Callable[[], bool] | None = None
    """Returns whether the client that asked went away."""

    @classmethod
    def after(cls, seconds: float, clock_s: Callable[[], float]) -> Self:
        """Return the deadline that is over `seconds` from now."""
        end = clock_s() + seconds
        return cls(seconds, lambda: clock_s() >= end)

    def check(self) -> None:
        """Check the deadline.

        Raises:
            RequestError: The deadline is over; nothing was changed.
        """
        if self.is_gone is not None and self.is_gone():
            raise RequestError("the client went away")
        if self.is_over():
            raise RequestError(
                f"the statement took longer than {self.seconds:g} s; request less, or split it"
            )


class _Local(threading.local):
    deadline: Deadline | None = None


_local = _Local()


@contextmanager
def within(deadline: Deadline | None) -> Generator[None]:
    """Limit the work of this thread in the block to `deadline`; None: no limit."""
    before, _local.deadline = _local.deadline, deadline
    try:
        yield
    finally:
        _local.deadline = before


def current() -> Deadline | None:
    """Return the deadline of this thread, for threads that work on its behalf."""
    return _local.deadline


def is_set() -> bool:
    """Return whether this thread has a deadline."""
    return _local.deadline is not None


def check() -> None:
    """Check the deadline of this thread, if it has one.

    Raises:
        RequestError: The deadline is over; nothing was changed.
    """
    found = _local.deadline
    if found is not None:
        found.check()


def checked(given: Iterable[Item]) -> Iterable[Item]:
    """Return `given`. If this thread has a deadline, check it at each item and at the end."""
    return given if _local.deadline is None else _each(given)


def _each(given: Iterable[Item]) -> Iterator[Item]:
    for item in given:
        check()
        yield item
    check()
