"""Interrupts: Ctrl-C waits while the main thread stands in the committer's queue.

Python raises KeyboardInterrupt between any two bytecodes of the main thread. Raised in a leader it
would leave its followers asleep for ever, or put in doubt what is written; raised in an heir, a
queue that nobody leads. So the signal is noted, and its handler called when the commit is through.
Only a handler written in Python can raise; without one nothing is done.
"""

from __future__ import annotations

import threading

# `signal` without its enums, which cost ten times as much:
from _signal import SIGINT, SIGTERM, getsignal, signal  # pyright: ignore[reportMissingImports]
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (SIGINT, SIGTERM)


class Deferred:
    """A context manager: at its end the handlers of the signals that came are called, once each."""

    __slots__ = ("_handlers", "_heard")

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._heard: dict[int, FrameType | None] = {}

    def __enter__(self) -> Self:
        if threading.get_ident() == threading.main_thread().ident:
            for number in _SIGNALS:
                handler = getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler  # first: what is noted must be called
                    signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._heard[number] = frame

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal(number, handler)
        for number, frame in self._heard.items():
            self._handlers[number](number, frame)
