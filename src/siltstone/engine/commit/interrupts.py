"""Interrupts: defers signals while the main thread is in the committer's queue.

Python calls a signal's handler between any two bytecodes of the main thread, and a handler may
raise: KeyboardInterrupt, a timeout's error, or any error of a user's handler. Raised in a leader,
it would leave the followers waiting for ever, or put the commit in doubt; raised in the next
leader, it would leave a queue without a leader. So the signal is recorded, and its handler runs
after the commit.

Every signal with a handler in Python is deferred; others cannot raise. A mask (`pthread_sigmask`)
does not help: then another thread gets the signal, and Python still calls the handler in the main
thread. Each commit reads all handlers, which takes a microsecond, because a program may install one
at any time. In all this costs a commit 3 us.
"""

from __future__ import annotations

import os
import threading

# `signal` without its enums, which cost ten times as much:
from _signal import getsignal, signal, valid_signals  # pyright: ignore[reportMissingImports]
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]

_ALL: tuple[int, ...] = tuple(sorted(valid_signals()))
_seen: tuple[list[object], list[tuple[int, Handler]]] = ([], [])
main = threading.main_thread().ident
"""The thread that runs the handlers of signals; in a forked child another one."""


def _handlers_among(found: list[object]) -> list[tuple[int, Handler]]:
    """Return the signals that have a handler in Python, and remember them: they rarely change."""
    global _seen  # noqa: PLW0603 - one assignment, by the main thread alone
    handlers = [(n, h) for n, h in zip(_ALL, found, strict=True) if callable(h)]
    _seen = (found, handlers)
    return handlers


def _note_main() -> None:
    global main  # noqa: PLW0603 - the thread that forked is the child's only one
    main = threading.get_ident()


os.register_at_fork(after_in_child=_note_main)


class DeferredSignals:
    """A context manager: at its end the handlers of the signals that came are called, once each."""

    __slots__ = ("_heard", "_replaced")

    def __enter__(self) -> Self:
        self._replaced: list[tuple[int, Handler]] = []
        self._heard: dict[int, FrameType | None] = {}
        if get_ident() == main:
            replaced, note = self._replaced, self._note
            found, (known, handlers) = list(map(getsignal, _ALL)), _seen
            if found != known:
                handlers = _handlers_among(found)
            try:
                for each in handlers:
                    replaced.append(each)  # first: what is replaced must be put back
                    signal(each[0], note)
            except BaseException:  # one that was not replaced yet
                self.__exit__()
                raise
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._heard[number] = frame

    def __exit__(self, *_: object) -> None:
        """Put each handler back and call it if its signal came; one that raises stops no other.

        The lowest signal is the last, so of several errors KeyboardInterrupt is the one raised.
        """
        try:
            while self._replaced:
                number, handler = self._replaced[-1]
                signal(number, handler)
                self._replaced.pop()
                if number in self._heard:
                    handler(number, self._heard.pop(number))
        finally:
            if self._replaced:
                self.__exit__()
