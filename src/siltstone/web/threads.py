"""Threads: calls of a store that an event loop waits for.

They have threads of their own. A handler that waits in one of the framework's threads, perhaps for
what a transaction holds, never keeps that transaction from its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CancelScope, CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

T = TypeVar("T")
CALLS_MAX = 40
"""So many calls of one event loop run at a time, as many as handlers in the frameworks."""
WAITS_MAX = 8
"""So many requests of one event loop wait for turns; the others wait for these, without threads."""

_calls: RunVar[CapacityLimiter] = RunVar("siltstone_web_calls")
_waits: RunVar[CapacityLimiter] = RunVar("siltstone_web_waits")


async def called(work: Callable[[], T]) -> T:
    """Return what `work` returns; a caller that is cancelled waits for its end."""
    return await run_sync(work, limiter=_of(_calls, CALLS_MAX))


async def ended(work: Callable[[], T]) -> T:
    """As `called`, but not to be cancelled before it begins: it ends what is open."""
    with CancelScope(shield=True):
        return await called(work)
    raise AssertionError  # nobody cancels the scope itself


async def waited(work: Callable[[], T]) -> T:
    """As `called`, for what waits for other requests: these go on meanwhile."""
    return await run_sync(work, limiter=_of(_waits, WAITS_MAX))


def _of(kept: RunVar[CapacityLimiter], count: int) -> CapacityLimiter:
    try:
        return kept.get()
    except LookupError:
        made = CapacityLimiter(count)
        kept.set(made)
        return made
