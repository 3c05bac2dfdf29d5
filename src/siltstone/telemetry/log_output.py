"""Log output: the log of a program of ours: one line for each event, as text or JSON.

A thread writes (`aside.py`): a reader of stderr that does not read blocks nothing. Lines that do
not fit are dropped, and their number is written in their place.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from siltstone.telemetry import notices
from siltstone.telemetry.aside import Aside

LogForm = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
LINE_CHARACTERS_MAX = 16_384
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
"""What would end a line, or command a terminal."""


class TextLine(logging.Formatter):
    """`2026-11-30T10:00:00.123Z INFO siltstone.work checkpoint: ...`, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; control characters, and the ends of lines, are written as in Python."""
        text = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        trace = _trace(record)
        return _in_one_line(f"{text}\n{trace}" if trace else text)[:LINE_CHARACTERS_MAX]


class JsonLine(logging.Formatter):
    """An object: `time`, `level`, `logger`, `message`; more of an access, `trace` of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:LINE_CHARACTERS_MAX],
            **getattr(record, "fields", {}),
        }
        trace = _trace(record)
        if trace:
            line["trace"] = trace[-LINE_CHARACTERS_MAX:]
        return json.dumps(line, default=str)


class LogOutput(logging.Handler):
    """Hands lines to the thread that writes them. Any thread; waits for nothing.

    It writes to the descriptor itself: the lock of `sys.stderr` would be held while that blocks,
    and Python aborts a process that ends meanwhile.
    """

    def __init__(self, descriptor: int, form: LogForm) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.setFormatter(JsonLine() if form == "json" else TextLine())
        self._aside = Aside("siltstone-log-output", self._tell_lost)

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written soon."""
        self._aside.add(partial(self._write, self.format(record)))

    def _write(self, line: str) -> None:
        left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _tell_lost(self, lines: int) -> None:
        text = f"{lines} lines of the log were dropped: their reader is too slow"
        record = logging.LogRecord("siltstone", logging.WARNING, __file__, 0, text, (), None)
        self._write(self.format(record))

    def settle(self, timeout_s: float = notices.END_TIMEOUT_S) -> bool:
        """Wait until all lines so far are written; False: the reader is too slow."""
        return self._aside.drain(timeout_s)


@contextmanager
def log_to(descriptor: int, *, form: LogForm = "text", level: LogLevel = "info") -> Generator[None]:
    """Write the log of this process to a descriptor alone, and at the end what is left of it."""
    root, output = notices.root, LogOutput(descriptor, form)
    before = root.level, root.handlers
    root.handlers = [output]
    root.setLevel(level.upper())
    try:
        yield
    finally:
        notices.settle()
        output.settle()
        root.handlers = before[1]
        root.setLevel(before[0])


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str:
    if record.exc_info is None:
        return ""
    return logging.Formatter().formatException(record.exc_info)


def _in_one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
