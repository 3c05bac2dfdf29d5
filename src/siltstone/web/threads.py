"""Threads: calls of a store that an event loop waits for.

They have threads of their own. A handler that waits in one of the framework's threads, perhaps for
what a transaction holds, never keeps that transaction from its commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
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
_threads: RunVar[ThreadPoolExecutor] = RunVar("siltstone_web_threads")


async def called(work: Callable[[], T]) -> T:
    """Return what `work` returns; who is cancelled once it has begun waits for its end."""
    async with _of(_calls, partial(CapacityLimiter, CALLS_MAX)):
        return await ended(work)


async def ended(work: Callable[[], T]) -> T:
    """As `called`, but not to be cancelled before it begins: it ends what is open."""
    with CancelScope(shield=True):  # within it, or AnyIO cancels anew at each step of the loop
        return await _whole(work)
    raise AssertionError  # nobody cancels the scope itself


async def _whole(work: Callable[[], T]) -> T:
    """Wait for the end of a call, also if the task is cancelled by asyncio.

    AnyIO's scopes shield from AnyIO's cancellation alone, not from `Task.cancel`, which timeouts
    and servers that end use (https://anyio.readthedocs.io/en/stable/cancellation.html). A call is
    no task of its own: a loop that ends cancels all tasks.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # another event loop, which has AnyIO's cancellation alone
        return await run_sync(work, limiter=CapacityLimiter(1))
    pool = _of(_threads, partial(ThreadPoolExecutor, CALLS_MAX + WAITS_MAX, "siltstone-web"))
    call = loop.run_in_executor(pool, copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return call.result()
    call.exception()  # nobody hears of it: the request was given up
    raise cancelled


async def waited(work: Callable[[], T]) -> T:
    """As `called`, for what waits for other requests: these go on meanwhile."""
    async with _of(_waits, partial(CapacityLimiter, WAITS_MAX)):
        return await ended(work)


def _of(kept: RunVar[T], make: Callable[[], T]) -> T:
    try:
        return kept.get()
    except LookupError:
        made = make()
        kept.set(made)
        return made
