"""Rest: an owner's work on its log when no more commits come: at its end, or after a minute.

    at the end    a checkpoint if the log is worth one, or if the store has a mirror; otherwise the
                  next open replays the log
    idle          deletes ready segments, and flushes unflushed rows

A log is worth a checkpoint if the next open would notice it, by the time of the replay or by the
size of the file. A few rows are not: the files and the record of a checkpoint take more space than
the rows, and an owner that writes a row every other minute would create thousands. So idle owners
flush a few rows at most once in `SMALL_INTERVAL_S`.

Lock: none; one thread at a time calls `when_idle`, and `at_the_end` after it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from siltstone.engine.commit.committer import Committer
from siltstone.errors import in_words
from siltstone.storage.wal.wal import Wal

COMMITS_WORTH = 256
"""This many commits replay in a few milliseconds."""
BYTES_WORTH = 1 << 20
SMALL_INTERVAL_S = 3600.0
_log = logging.getLogger(__name__)


class Rest:
    """See the module."""

    def __init__(
        self,
        *,
        committer: Committer,
        log: Wal,
        checkpoint: Callable[[], object],
        fit: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        is_mirrored: bool = False,
    ) -> None:
        """`fit` hears how large the newest segment is, once it is small.

        `is_mirrored`: what is flushed at the end goes into a bucket, which has no log.
        """
        self._is_mirrored = is_mirrored
        self._committer, self._log, self._checkpoint = committer, log, checkpoint
        self._fit, self._clock, self._small_at = fit, clock, -math.inf

    def when_idle(self) -> bool:
        """Use as little of the disk as possible; False: too few rows wait, call again later.

        Raises:
            SiltstoneError: As a checkpoint; nothing was lost, call again later.
        """
        self._log.rest()
        if not self._unflushed():
            return True
        if not self._is_worth_it():
            if self._clock() - self._small_at < SMALL_INTERVAL_S:
                return False
            self._small_at = self._clock()
        self._checkpoint()
        self._fit(self._log.size)
        return True

    def at_the_end(self) -> None:
        """Leave a small log; if that fails, keep the present log, which loses nothing."""
        if self._committer.poisoned or not self._unflushed():
            return
        if not (self._is_mirrored or self._is_worth_it()):
            return
        try:
            self._log.rest()
            self._checkpoint()
            self._fit(self._log.size)
        except Exception as error:  # noqa: BLE001 - the store must close whatever Lance raises
            _log.warning(
                "no checkpoint at the end, the next open replays the log: %s", in_words(error)
            )

    def _unflushed(self) -> int:
        """Return how many commits are in the log alone."""
        view = self._committer.state.view
        return view.log.count + sum(generation.log.count for generation in view.sealed)

    def _is_worth_it(self) -> bool:
        return self._unflushed() >= COMMITS_WORTH or self._log.size > BYTES_WORTH
