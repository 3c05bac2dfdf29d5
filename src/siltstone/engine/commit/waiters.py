"""Waiters: the callers in the committer's queue, and how each of them waits.

    WAITING ──its commit is through──▶ DONE
       └──the queue's head, when a leader is done──▶ LEAD ──▶ DONE

Lock: none here; the committer's lock of the queue.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections.abc import Callable
from typing import NoReturn

import msgspec

from siltstone.engine.commit.write_set import WriteSet

GROUP_BYTES_MAX = 32 << 20
WAITING, LEAD, DONE = 0, 1, 2


class Waiter(msgspec.Struct, eq=False):
    """One caller in the queue: a write set, or a step to run alone.

    `wake` is taken for it; who leads at once has none.
    """

    write_set: WriteSet | None = None
    step: Callable[[], object] | None = None
    state: int = WAITING
    error: BaseException | None = None
    result: object = None
    wake: LockType | None = None


def divided(queue: list[Waiter]) -> tuple[list[Waiter], list[Waiter]]:
    """Return what the leader takes, the write sets or the one step at the head, and the rest."""
    size = count = 0
    for waiter in queue:
        if waiter.write_set is None:
            break
        size += waiter.write_set.nbytes
        if count and size > GROUP_BYTES_MAX:
            break
        count += 1
    count = count or 1
    return queue[:count], queue[count:]


def taken_lock() -> LockType:
    """Return a lock that its waiter waits for."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def wait(wake: LockType) -> BaseException | None:
    """Wait until the waiter is done, or made the next leader; return a Ctrl-C that came meanwhile.

    A follower that left the queue would be an heir that never leads: all later commits would hang.
    """
    interrupt: BaseException | None = None
    while True:
        try:
            wake.acquire()
        except BaseException as error:  # noqa: BLE001 - a signal handler may raise anything
            interrupt = error
        else:
            return interrupt


def fail(waiter: Waiter, interrupt: BaseException | None) -> NoReturn:
    """Raise what interrupted the caller, or the error of its work."""
    try:
        raise interrupt or waiter.error or AssertionError
    finally:  # else this frame and the error hold each other, and so a lease, until a gc
        waiter.error = interrupt = None
