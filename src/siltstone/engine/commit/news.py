"""News: who waits for the next commit of the store that this process owns, and hears of it once.

Register, then look whether the commit is there, then wait: one that came in between was told, too.

Lock: one, over the list; nothing is called under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

Told = Callable[[], object]


class News:
    """See the module. Any thread; what is told must not wait, nor raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Told] = []

    @contextmanager
    def heard(self, told: Told) -> Generator[None]:
        """Within the block `told` is called when a group is through, or the handle closes; once."""
        with self._lock:
            self._waiting.append(told)
        try:
            yield
        finally:
            with self._lock:
                self._waiting = [each for each in self._waiting if each is not told]

    def tell(self) -> None:
        """Tell all who wait."""
        if not self._waiting:  # without the lock: who registers just now looks for itself
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for told in waiting:
            told()
