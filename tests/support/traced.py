"""Traced lines: what a test does between two lines of ours, in the thread that runs them.

Chance never meets the moment between two lines. So a test visits each of them.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Self

Act = Callable[[FrameType], object]
COMMITTER = ("engine/commit/committer.py", "engine/commit/waiters.py")


class EveryLine:
    """Calls `act` before each line that this thread runs in some files or functions.

    Args:
        act: Is given the frame; what it raises is raised at that line.
        where: The ends of paths of files, or functions.
    """

    def __init__(self, act: Act, *where: str | Callable[..., object]) -> None:
        self._act = act
        self._files = tuple(each for each in where if isinstance(each, str))
        self._codes = {code_of(each) for each in where if not isinstance(each, str)}

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _arg: object):
        code = frame.f_code
        is_wanted = code in self._codes or code.co_filename.endswith(self._files)
        return self._line if is_wanted else None

    def _line(self, frame: FrameType, event: str, _arg: object):
        if event == "line":
            self._act(frame)
        return self._line


class NthLine:
    """Calls `act` once, before the nth such line (from 1); those that are `passed` do not count."""

    def __init__(
        self,
        nth: int,
        act: Callable[[], object],
        *where: str | Callable[..., object],
        passed: Callable[[FrameType], bool] = lambda _: False,
    ) -> None:
        self._left, self._do, self._passed = nth, act, passed
        self._lines = EveryLine(self._count, *where)
        self.at = ""
        """The file and the number of the line; "": there were fewer."""

    @property
    def has_acted(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__()

    def _count(self, frame: FrameType) -> None:
        if self._left > 0 and not self._passed(frame):
            self._left -= 1
            if not self._left:
                self.at = f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self._do()


def signalled(
    nth: int,
    *signals: int,
    where: str | tuple[str, ...] = COMMITTER,
    passed: Callable[[FrameType], bool] = lambda _: False,
) -> NthLine:
    """Raise signals, by default Ctrl-C, before the nth line that the main thread runs there."""

    def raise_signals() -> None:
        for number in signals or (signal.SIGINT,):
            signal.raise_signal(number)

    files = [where] if isinstance(where, str) else where
    return NthLine(nth, raise_signals, *files, passed=passed)


def code_of(function: Callable[..., object]) -> CodeType:
    return function.__code__  # type: ignore[attr-defined]
