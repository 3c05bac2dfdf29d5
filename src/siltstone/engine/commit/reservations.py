"""Reservations: the servers that gave out transaction ids for future commits.

A server gives a client the id of its next commit in advance. The outcome of such an id, through any
interface, must stay true for ever; so a call of `outcome` invalidates the id first.
Lock: one, over the list only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Spend = Callable[[str], bool]


class Reservations:
    """See the module. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spends: list[Spend] = []

    def add(self, spend: Spend) -> None:
        """Add a server; its `spend` returns whether the commit of an id can no longer run."""
        with self._lock:
            self._spends.append(spend)

    def remove(self, spend: Spend) -> None:
        """Remove a server that has answered its last request."""
        with self._lock:
            self._spends = [other for other in self._spends if other != spend]

    def spend(self, transaction_id: str) -> bool:
        """Invalidate an id, so that no commit can use it; False if its commit is running."""
        with self._lock:
            spends = list(self._spends)
        return all(spend(transaction_id) for spend in spends)
