"""Spares: things that cost much to make, kept for their next user: one at a time, and not many.

    made ──lent──▶ given back ──▶ kept ──lent──▶ ..
                        │           │
                        └───────────┴──▶ ended: there are enough, or the spares are closed

No lock: a finalizer may give a thing back in the middle of any other call here. Each step is one of
a deque, and who gives back looks after it whether the spares were closed in between.

The child of a fork begins without any: what a thread of the parent works for is of no use there.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import Protocol


class Spare(Protocol):
    """What may be kept."""

    def end(self) -> None:
        """End it; nobody uses it any more."""
        ...


class Spares:
    """See the module; `kept_max` are kept at most. Any thread."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._kept: deque[Spare] = deque()
        self._is_closed = False
        _all.add(self)

    def __len__(self) -> int:
        return len(self._kept)

    def taken(self) -> Spare | None:
        """Return the one that was used last, for the caller alone; None: make one."""
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def give_back(self, spare: Spare) -> None:
        """Keep what was taken, or made, for the next user; or end it."""
        self._kept.append(spare)
        self._end_above(0 if self._is_closed else self._kept_max)

    def close(self) -> None:
        """End all that is kept, and later all that is given back. Again: nothing."""
        self._is_closed = True
        self._end_above(0)

    def _end_above(self, count: int) -> None:
        while len(self._kept) > count:
            try:
                spare = self._kept.popleft()
            except IndexError:  # another thread was faster
                return
            spare.end()

    def forget(self) -> None:
        """Leave what the parent of this process keeps as it is: its threads are not here."""
        _of_parents.append(self._kept)
        self._kept = deque()


_all: weakref.WeakSet[Spares] = weakref.WeakSet()
_of_parents: list[object] = []
"""Never ended: that could wait for a thread, or take what a thread of the parent holds."""


def _forget_all() -> None:
    for spares in list(_all):
        spares.forget()


os.register_at_fork(after_in_child=_forget_all)
