"""Shipped waits: the requests of a server that wait for the bucket of its store.

A commit that is to be shipped holds its thread until the bucket has it, and so does who asks for it
again, or waits for any commit. All clients of a server share its threads, so of these a few are
inside at once, and the next one is refused before anything is begun.

`_lock` guards which transactions are to be shipped.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager

from siltstone.errors import BusyError
from siltstone.local.transaction import LocalTransaction

SHIPPED_WAITS_MAX = 24
"""Three quarters of the threads of a server."""


class ShippedWaits:
    """See the module. Any thread."""

    def __init__(self, most: int = SHIPPED_WAITS_MAX) -> None:
        self._most, self._free = most, threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._to_ship = weakref.WeakValueDictionary[str, LocalTransaction]()

    def expect(self, key: str, tx: LocalTransaction) -> None:
        """Hear of an open transaction that is to be shipped, and what it is asked for by."""
        with self._lock:
            self._to_ship[key] = tx

    def expects(self, key: str) -> bool:
        """Say whether a transaction is to be shipped; no lock is asked for."""
        return key in self._to_ship

    @contextmanager
    def one(self, *, is_shipped: bool = True) -> Generator[None]:
        """Be one of those that may wait for the bucket, if this is one that will.

        Raises:
            BusyError: As many as may do so already; nothing was begun.
        """
        if not is_shipped:
            yield
            return
        if not self._free.acquire(blocking=False):
            raise BusyError(
                f"{self._most} requests wait for the bucket; this one did nothing, ask again"
            )
        try:
            yield
        finally:
            self._free.release()
