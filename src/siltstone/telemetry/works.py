"""Works: how often each kind of work was done in this process, how long it took, when it ended.

Work that succeeds is counted, and told in one line of the log `siltstone.work`; work that fails is
an error, or a warning of who tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from siltstone.process.latency import Latency
from siltstone.telemetry.notices import NoticeLog

WORK_BOUNDS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1800.0),
)
_log = NoticeLog("siltstone.work")
T = TypeVar("T")


class Work:
    """One kind of work. Any thread."""

    __slots__ = ("kind", "latency")

    def __init__(self, kind: str) -> None:
        self.kind, self.latency = kind, Latency(WORK_BOUNDS_S)

    def run(self, work: Callable[[], T], words: Callable[[T], str]) -> T:
        """Do some work, count it, and tell of it in the words for its result."""
        begun_s = time.monotonic()
        result = work()
        self.done(time.monotonic() - begun_s, words(result))
        return result

    @contextmanager
    def timed(self) -> Generator[None]:
        """Count what is done within, of which no line tells."""
        begun_s = time.monotonic()
        yield
        self.latency.add(time.monotonic() - begun_s)

    def done(self, took_s: float, words: str) -> None:
        """Count work that ended just now, and tell of it."""
        self.latency.add(took_s)
        _log.info("%s: %s, in %.2f s", self.kind, words, took_s)


class Works:
    """The kinds of work of one open store. `sql` has statements, of which no line tells."""

    __slots__ = ("backup", "checkpoint", "merge", "optimize", "sql", "vacuum")

    def __init__(self) -> None:
        self.checkpoint, self.merge, self.optimize = (
            Work("checkpoint"),
            Work("merge"),
            Work("optimize"),
        )
        self.vacuum, self.backup, self.sql = Work("vacuum"), Work("backup"), Work("sql")

    def __iter__(self) -> Iterator[Work]:
        """Yield all kinds."""
        return (getattr(self, name) for name in self.__slots__)
