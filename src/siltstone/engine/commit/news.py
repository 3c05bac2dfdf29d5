"""News: who waits for the next commit of the store that this process owns, and is told of it.

Register, then look whether the commit is there, then wait: one that came in between was told, too.

Lock: none. Each step is one operation of a dict, so that the handler of a signal, or the child of a
fork, may come in between any two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

Told = Callable[[], object]


class News:
    """See the module. Any thread; what is told must not wait, nor raise."""

    patience_s = 5.0
    """How long one who waits, and is not told, leaves the store alone."""

    def __init__(self) -> None:
        self.waiting: dict[object, Told] = {}
        """Who is told; a commit asks whether there is anybody, which costs it no call."""

    @contextmanager
    def heard(self, told: Told) -> Generator[None]:
        """Within the block `told` is called for each group, and when a handle closes."""
        key = object()
        self.waiting[key] = told
        try:
            yield
        finally:
            del self.waiting[key]

    def tell(self) -> None:
        """Tell all who wait."""
        for told in list(self.waiting.values()):
            told()
