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
import sys
import threading

# `signal` without its enums, which cost ten times as much:
from _signal import SIGCHLD, SIGCONT, SIGURG, SIGWINCH, getsignal, signal, valid_signals  # pyright: ignore[reportMissingImports]
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]

_ALL: tuple[int, ...] = tuple(sorted(valid_signals()))
_seen: tuple[list[object], list[tuple[int, Handler]]] = ([], [])
main = threading.main_thread().ident
"""The thread that runs the handlers of signals; in a forked child another one."""
_IGNORED = frozenset((SIGCHLD, SIGCONT, SIGURG, SIGWINCH))
"""They tell a program something, and want nothing of it."""
_waiting: set[int] = set()


def is_pending() -> bool:
    """Return whether a signal that wants something waits for the end of what defers it."""
    return not _waiting <= _IGNORED


def is_in_handler() -> bool:
    """Return whether the handler of a signal called this, as far as the stack can tell."""
    if get_ident() != main:
        return False
    codes = {_code_of(handler) for handler in map(getsignal, _ALL) if callable(handler)}
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame is not None


def _code_of(handler: object) -> object:
    """Return the code of a handler; None: it is none of Python's."""
    handler = getattr(handler, "func", handler)  # a partial
    found = getattr(handler, "__func__", handler)  # a method
    if not hasattr(found, "__code__"):
        found = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    return getattr(found, "__code__", None)


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
        _waiting.add(number)

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
                    _waiting.discard(number)
                    handler(number, self._heard.pop(number))
        finally:
            if self._replaced:
                self.__exit__()
