"""Threads: start one, with an error if the system refuses; have one work; let another go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from siltstone.errors import UnavailableError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

R = TypeVar("R")
T = TypeVar("T")


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        UnavailableError: The system has no more threads, or no memory for the stack.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise UnavailableError(f"cannot start the thread {thread.name}: {error}") from error


def started(work: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that works; it does not keep the process.

    Raises:
        UnavailableError: As `start`.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    start(thread)
    return thread


def submitted(pool: ThreadPoolExecutor, work: Callable[[R], T], item: R) -> Future[T]:
    """Have a thread do some work; without one, when Python ends, it is done here and now."""
    try:
        return pool.submit(work, item)
    except RuntimeError:
        done = Future[T]()
        settle(done, lambda: work(item))
        return done


def settle(done: Future[T], work: Callable[[], T]) -> None:
    """Do some work; who asks `done` gets what it returns or raises."""
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
        done.set_exception(error)


def give_way() -> None:
    """Give up the interpreter's lock once, for another thread that waits for it."""
    time.sleep(0)
