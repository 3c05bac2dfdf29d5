"""Stopping: Ctrl-C stops the statement that runs, and not the shell.

A statement runs in another thread, under a deadline that Ctrl-C ends. DuckDB hears of that within
a tenth of a second, wherever it is; an exception in the main thread would wait until DuckDB comes
back to Python, which may take a minute. A statement is stopped before its commit, or not at all: so
it did nothing, or its answer says what it did.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from siltstone.errors import InDoubtError, SiltstoneError
from siltstone.process.deadline import Deadline, within

T = TypeVar("T")
_LOOK_S = 0.5


class Interrupted(Exception):
    """Ctrl-C stopped a statement, which changed nothing."""


class Stoppable:
    """Runs one call at a time. The main thread alone uses it."""

    def __init__(self, give_up: Callable[[], object]) -> None:
        """Make the thread. `give_up` is called while a call goes on after Ctrl-C."""
        self._threads = ThreadPoolExecutor(1, "siltstone-shell")
        self._give_up = give_up

    def run(self, call: Callable[[], T]) -> T:
        """Return what a call returns.

        Raises:
            Interrupted: Ctrl-C stopped it.
            SiltstoneError: What it raised.
        """
        stop = threading.Event()
        with _instead_of_ctrl_c(stop):
            running = self._threads.submit(_within, stop, call)
            while not wait([running], _LOOK_S).done:
                if stop.is_set():
                    self._give_up()
        error = running.exception()
        is_told = not isinstance(error, SiltstoneError) or isinstance(error, InDoubtError)
        if stop.is_set() and not is_told:
            raise Interrupted from error
        return running.result()


@contextmanager
def _instead_of_ctrl_c(stop: threading.Event) -> Generator[None]:
    def note(_: int, __: FrameType | None) -> None:
        stop.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _within(stop: threading.Event, call: Callable[[], T]) -> T:
    with within(Deadline(0, stop.is_set)):
        return call()
