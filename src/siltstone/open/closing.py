"""Closing: the thread of this process that closes stores, and the steps of an exit.

    the main thread ends
      ─▶ servers end           before Python ends the executors that answer for them
      ─▶ threads are joined    those that are no daemons: a user's may write until its end
      ─▶ stores are closed     by the thread, for at most `EXIT_TIMEOUT_S`; the log is synced
      ─▶ Python stops daemon threads wherever they are

The last step is why the others are needed: Python before 3.14 ends a daemon thread by unwinding its
stack when it next asks for the interpreter, and where Rust is on that stack the process is aborted
(SIGABRT, "FATAL: exception not rethrown").

Lock: none is held while anything is called. `Closer.ask` may be called by a finalizer, which runs
in any thread, between any two of its steps, and so under any lock: `SimpleQueue.put` takes none.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog(__name__)
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_ELSEWHERE = tuple(
    _PACKAGE + name.replace("/", os.sep)
    for name in (
        *("joined/", "maintenance/merge/lifeline", "query/sql/duckdbs/watch"),
        *("telemetry/aside", "telemetry/notices", "telemetry/log_output"),
    )
)
"""They wait, for another process, the next statement, or a reader of the log; no Lance is directly
below them."""
_PAUSE_S = 0.005
EXIT_TIMEOUT_S = 60.0
"""The longest wait of an exit; a running checkpoint takes some seconds."""


class Closer:
    """A thread that runs the requested functions one after the other; `start` starts it."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def ident(self) -> int | None:
        """The thread's ident; None before `start`."""
        return None if self._thread is None else self._thread.ident

    def start(self) -> None:
        """Start the thread, once. If the system refuses, the requested work runs at the exit."""
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="siltstone-closer", daemon=True)
                with contextlib.suppress(RuntimeError, MemoryError):
                    thread.start()
                    self._thread = thread

    def ask(self, work: Callable[[], object]) -> None:
        """Ask the thread to call `work` soon. A finalizer may call this."""
        self._asked.put(work)

    def run(self, work: Callable[[], object], timeout_s: float) -> bool:
        """Call `work` in the thread after all earlier requests, and wait; False: a timeout."""
        done = threading.Event()

        def work_and_tell() -> None:
            try:
                work()
            finally:
                done.set()

        self.ask(work_and_tell)
        if self._thread is None:
            while not self._asked.empty():
                _guarded(self._asked.get())
        return done.wait(timeout_s)

    def _loop(self) -> None:
        while True:
            _guarded(self._asked.get())


def _guarded(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the thread is there for all stores
        _log.error("a store was not closed as it should be", exc_info=error)


closer = Closer()
_stores: list[Callable[[], object]] = []
_hurries: list[Callable[[], object]] = []


def register() -> None:
    """Register the hook that closes stores: after threads are joined, before daemons are killed.

    Hooks run last first, so those that a program registers after this one still have its stores.
    """
    atexit.register(_close_stores)


def at_exit(
    *,
    end_servers: Callable[[], object],
    close_stores: Callable[[], object],
    hurry: Callable[[], object] = lambda: None,
) -> None:
    """Register two functions for the exit, in the closer's thread; the module says when they run.

    `hurry` is called, in the main thread, when a signal interrupts the wait for `close_stores`.

    The caller has imported `concurrent.futures.thread`: of the hooks that run before threads are
    joined the last registered is the first called, and servers end before executors do.
    """
    _stores.append(close_stores)
    _hurries.append(hurry)
    register = getattr(threading, "_register_atexit", None)
    if register is not None:  # private: without it servers end with their stores, a little late
        with contextlib.suppress(RuntimeError):  # imported while the interpreter ends
            register(lambda: closer.run(end_servers, EXIT_TIMEOUT_S))


def _close_stores() -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for work in _stores:
        if not _run(work, deadline):
            _log.warning(
                "the stores of this process did not close within %s s of its end; what was"
                " acknowledged as durable is, and the next open recovers the log",
                EXIT_TIMEOUT_S,
            )
    while _is_inside() and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def _run(work: Callable[[], object], deadline: float) -> bool:
    """Have the closer do some work; Ctrl-C makes it hurry, a second one ends the wait."""
    try:
        return closer.run(work, max(0.0, deadline - time.monotonic()))
    except (KeyboardInterrupt, SystemExit):
        for hurry in _hurries:
            hurry()
        return closer.run(lambda: None, max(0.0, deadline - time.monotonic()))


def is_after_an_error() -> bool:
    """Say whether the process ends by an exception that nothing caught: Python has printed it."""
    return hasattr(sys, "last_value") and not hasattr(sys, "ps1")


def _is_inside() -> bool:
    """Say whether a daemon thread of the user is inside a call of ours, and so perhaps in Lance.

    The stores are closed: it hears so at its next call, and this one ends by itself.
    """
    mine = {threading.get_ident(), closer.ident}
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
    return any(_is_ours(frame) for ident, frame in frames.items() if ident not in mine)


def _is_ours(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and not name.startswith(_ELSEWHERE):
            return True
        frame = frame.f_back
    return False


# The child of a fork has none of its parent's threads; and a lock may have been held.
os.register_at_fork(after_in_child=closer.__init__)
