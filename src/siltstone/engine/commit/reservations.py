"""Reservations: who has given out transaction ids for commits that are still to come.

A server tells a client the id of its next commit before it is asked for. Whoever asks for the
outcome of such an id, at whatever door, has to hear the truth for ever: so it is spent first.
Lock: one, over the list alone.
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
        """Hear of a server; `spend` says whether the commit of an id will not run any more."""
        with self._lock:
            self._spends.append(spend)

    def remove(self, spend: Spend) -> None:
        """Forget a server that has answered its last request."""
        with self._lock:
            self._spends = [other for other in self._spends if other != spend]

    def spend(self, transaction_id: str) -> bool:
        """Spend an id: nothing commits under it any more; False if that is running just now."""
        with self._lock:
            spends = list(self._spends)
        return all(spend(transaction_id) for spend in spends)
