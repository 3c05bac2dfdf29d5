"""Threads: start a thread, with an error if the system refuses; let another one go on."""

from __future__ import annotations

import threading
import time

from siltstone.errors import UnavailableError


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        UnavailableError: The system has no more threads, or no memory for the stack.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise UnavailableError(f"cannot start the thread {thread.name}: {error}") from error


def give_way() -> None:
    """Give up the interpreter's lock once, for another thread that waits for it."""
    time.sleep(0)
