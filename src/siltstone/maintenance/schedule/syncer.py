"""Syncer: makes asynchronous commits durable within the sync interval.

A thread that starts with the first `async` transaction and ends with the store. Lock: none; it asks
the committer, whose leader syncs between two groups.
"""

from __future__ import annotations

import threading

from siltstone.engine.commit.committer import Committer
from siltstone.errors import SiltstoneError
from siltstone.process import threads


class Syncer:
    """See the module."""

    def __init__(self, committer: Committer, interval_ms: int) -> None:
        self._committer, self._interval_s = committer, interval_ms / 1000
        self._start_lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
            UnavailableError: The system has no more threads; the next call tries again.
        """
        with self._start_lock:
            if self._thread is None:
                self._thread = threads.started(self._loop, "siltstone-syncer")

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._committer.sync()
            except SiltstoneError:
                return  # poisoned: every later commit says so
