"""Aside: calls that a thread makes one after the other, for callers that wait for none of them.

    add ─▶ at most `held_max` wait ─▶ the thread, which ends when none is left
            └─ full: dropped, counted, and told in its place once there is room

The thread is a daemon and lives only while calls wait: a target that blocks for ever keeps neither
a commit nor the end of the process, and in a closed store nothing runs.

Lock: one, held while there is a thread; no caller waits for it. Signal handlers may call.
"""

from __future__ import annotations

import os
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress

HELD_MAX = 1024


class Aside:
    """See the module. `tell_lost` is called with how many calls were dropped, by the thread."""

    def __init__(
        self, name: str, tell_lost: Callable[[int], object], *, held_max: int = HELD_MAX
    ) -> None:
        self._name, self._tell_lost, self._held_max = name, tell_lost, held_max
        self._reset()

    def _reset(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._is_at_work = allocate_lock()
        self._lost, self._pid = 0, os.getpid()
        self._thread: threading.Thread | None = None

    def _reset_in_child(self) -> None:
        """Begin anew in the child of a fork: the thread is not there, nor what it was to write."""
        if self._pid != os.getpid():
            self._reset()

    def add(self, call: Callable[[], object]) -> None:
        """Have `call` made soon; it is dropped if too many wait."""
        self._reset_in_child()
        if len(self._calls) >= self._held_max:
            self._lost += 1  # two threads may count one: it says that much was lost
            return
        self._calls.append(call)
        self._go_on()

    def drain(self, timeout_s: float) -> bool:
        """Wait until all calls so far are made; False: it took too long."""
        self._reset_in_child()
        if not self._calls and not self._is_at_work.locked():
            return True
        done, until_s = threading.Event(), time.monotonic() + timeout_s
        self._calls.append(done.set)
        self._go_on()
        is_done, thread = done.wait(timeout_s), self._thread
        if is_done and thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, until_s - time.monotonic()))  # it has nothing left to do
        return is_done

    def _go_on(self) -> None:
        if self._is_at_work.acquire(blocking=False):
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
                self._thread = thread
            except (RuntimeError, MemoryError):  # no thread: the next caller tries again
                self._is_at_work.release()

    def _work(self) -> None:
        has_turn = True
        while has_turn:
            while self._calls:
                with suppress(Exception):  # a target's own trouble
                    self._calls.popleft()()
                if self._lost and len(self._calls) < self._held_max:
                    lost, self._lost = self._lost, 0
                    with suppress(Exception):
                        self._tell_lost(lost)
            self._is_at_work.release()
            # Who added a call just before the release found the thread at work, and left it to it.
            has_turn = bool(self._calls) and self._is_at_work.acquire(blocking=False)
