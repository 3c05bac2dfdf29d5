"""Retry: work that is done again because another writer won; the one loop for it.

The number of tries is bounded. Nothing waits between two, unless `on_loss` does: losers of a busy
row take turns (`turns`). `engine.write.submission` has its own loop: it sends its write set
again, in part anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from siltstone.arguments import count_of
from siltstone.errors import ConflictError

T = TypeVar("T")


class Retry(msgspec.Struct, frozen=True):
    """How often work is tried at most, and the errors after which it is tried again."""

    attempts: int
    errors: tuple[type[Exception], ...] = (ConflictError,)

    def run(
        self,
        work: Callable[[], T],
        *,
        may_repeat: Callable[[], bool] = lambda: True,
        on_loss: Callable[[Exception], object] = lambda _: None,
    ) -> T:
        """Return what `work` returns.

        Args:
            work: Begins anew each time, with a new snapshot.
            may_repeat: Asked after each try that lost: whether `work` can be done once more.
            on_loss: Called with each try that lost, before the next one begins.

        Raises:
            RequestError: `attempts` is no integer from 1; nothing was tried.
            Exception: One of `errors`: the last try lost, too. A ConflictError says how many did.
        """
        count_of("attempts", self.attempts, 1)
        for tried in range(1, self.attempts + 1):
            try:
                return work()
            except self.errors as error:
                if tried == self.attempts or not may_repeat():
                    if isinstance(error, ConflictError):
                        error.tell_tries(tried)
                    raise
                lost = error
            on_loss(lost)
            del lost  # with the frames of its try
        raise AssertionError
