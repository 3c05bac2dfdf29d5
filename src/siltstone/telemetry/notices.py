"""Notices: lines of the log, which a thread writes, so that no caller depends on the log's target.

Commits, the background that they wait for, and the event loop of a server hand their lines over
(`aside.py`). So a handler of the application that blocks keeps no commit; what it cannot take is
dropped, and the number of dropped lines is logged in their place. The end of a store, and of the
process, waits a moment for its last lines.

All loggers are below `siltstone`, which has a NullHandler: a library writes nowhere by itself.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from functools import partial

from siltstone.telemetry.aside import Aside

END_TIMEOUT_S = 1.0
"""So long the end of a store waits for its last lines."""

root = logging.getLogger("siltstone")
root.addHandler(logging.NullHandler())


def _tell_lost(lines: int) -> None:
    root.warning("%d lines of the log were dropped: their target was too slow", lines)


_aside = Aside("siltstone-log", _tell_lost)


def settle(timeout_s: float = END_TIMEOUT_S) -> bool:
    """Wait until all lines so far are written; False: the target is too slow."""
    return _aside.drain(timeout_s)


atexit.register(settle)  # the thread ends with the process, written or not


class NoticeLog:
    """A logger whose callers never wait. What its lines are about must not change any more."""

    __slots__ = ("_log",)

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def info(
        self, text: str, *arguments: object, fields: Mapping[str, object] | None = None
    ) -> None:
        """Tell what was done; `fields` are members of a line of JSON."""
        self._tell(logging.INFO, text, arguments, None, fields)

    def warning(self, text: str, *arguments: object) -> None:
        """Tell of something that needs no help yet."""
        self._tell(logging.WARNING, text, arguments, None, None)

    def error(self, text: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """Tell of something that needs help; `exc_info` is the error that has the traceback."""
        self._tell(logging.ERROR, text, arguments, exc_info, None)

    def _tell(
        self,
        level: int,
        text: str,
        arguments: tuple[object, ...],
        error: BaseException | None,
        fields: Mapping[str, object] | None,
    ) -> None:
        log = self._log
        if not log.isEnabledFor(level):
            return
        path, line, function, _ = log.findCaller(stacklevel=3)
        trace = None if error is None else (type(error), error, error.__traceback__)
        extra = None if fields is None else {"fields": fields}
        record = log.makeRecord(
            log.name, level, path, line, text, arguments, trace, function, extra
        )
        _aside.add(partial(log.handle, record))
