"""Threads: calls of a store that an event loop waits for.

They have threads of their own. A handler that waits in one of the framework's threads, perhaps for
what a transaction holds, never keeps that transaction from its commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
    """Return what `work` returns; who is cancelled once it has begun waits for its end."""
    async with _of(_calls, CALLS_MAX):
        return await _whole(run_sync(work, limiter=CapacityLimiter(1)))


async def ended(work: Callable[[], T]) -> T:
    """As `called`, but not to be cancelled before it begins: it ends what is open."""
    with CancelScope(shield=True):
        return await _whole(called(work))
    raise AssertionError  # nobody cancels the scope itself


async def _whole(call: Coroutine[Any, Any, T]) -> T:
    """Wait for the end of a call, also if the task is cancelled by asyncio.

    AnyIO's scopes shield from AnyIO's cancellation alone, not from `Task.cancel`, which timeouts
    and servers that end use (https://anyio.readthedocs.io/en/stable/cancellation.html).
    """
    try:
        task = asyncio.get_running_loop().create_task(call)
    except RuntimeError:  # another event loop, which has AnyIO's cancellation alone
        return await call
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # nobody hears of it: the request was given up
    raise cancelled


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
