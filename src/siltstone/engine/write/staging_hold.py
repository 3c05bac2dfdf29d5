"""Staging hold: keeps from vacuum what a transaction stages, or names, until it ends."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from siltstone.engine.commit.core import Core
from siltstone.storage.tables.jobs import Begun


class StagingHold:
    """See the module. One thread at a time; a finalizer may close it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._held = ExitStack()
        self._begun: Begun | None = None
        self._since_us: int | None = None

    def keep(self) -> None:
        """Keep what is staged from now on.

        First held, then compared with the gc horizon, as in `Core.submit`: what is staged later is
        newer than the horizon.
        """
        if self._begun is None:
            begun = self._core.begun()
            self._held.enter_context(self._core.hold(begun.first_us))
            self._begun = replace(begun, above_us=max(begun.above_us, self._core.gc_horizon_us()))

    def names_since(self, since_us: int) -> None:
        """Note that the commit names files staged elsewhere, the first of them at `since_us`."""
        self._since_us = since_us if self._since_us is None else min(self._since_us, since_us)

    def oldest_us(self) -> int:
        """Return the time (us) of the oldest file that the commit may name."""
        assert self._begun is not None
        started_us = self._begun.started_us(self._core.now_us)
        return started_us if self._since_us is None else min(started_us, self._since_us)

    def close(self) -> None:
        """Release everything."""
        self._held.close()
