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
from siltstone.telemetry.spans import Spans, found_spans

WORK_BOUNDS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1800.0),
)
GET_BOUNDS_S = (
    *(1e-06, 2.5e-06, 5e-06, 1e-05, 2.5e-05, 5e-05, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.1, 1.0),
)
_log = NoticeLog("siltstone.work")
T = TypeVar("T")


class WorkTimes:
    """One kind of work. Any thread."""

    __slots__ = ("_spans", "kind", "latency")

    def __init__(self, kind: str, spans: Spans | None = None) -> None:
        self.kind, self.latency, self._spans = kind, Latency(WORK_BOUNDS_S), spans

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
        self._count(time.monotonic() - begun_s)

    def done(self, took_s: float, words: str) -> None:
        """Count work that ended just now, and tell of it."""
        self._count(took_s)
        _log.info("%s: %s, in %.2f s", self.kind, words, took_s)

    def _count(self, took_s: float) -> None:
        self.latency.add(took_s)
        if self._spans is not None:
            self._spans.ended(f"siltstone.{self.kind}", took_s)


KINDS = ("checkpoint", "merge", "optimize", "vacuum", "backup", "sql")


class Works:
    """The kinds of work of one open store, and its spans; None: the application traces nothing.

    `sql` has statements, of which no line tells. `gets` has samples of `get`.
    """

    __slots__ = (*KINDS, "gets", "spans")

    def __init__(self) -> None:
        self.spans = found_spans()
        self.checkpoint = WorkTimes("checkpoint", self.spans)
        self.merge = WorkTimes("merge", self.spans)
        self.optimize = WorkTimes("optimize", self.spans)
        self.vacuum = WorkTimes("vacuum", self.spans)
        self.backup = WorkTimes("backup", self.spans)
        self.sql = WorkTimes("sql", self.spans)
        self.gets = Latency(GET_BOUNDS_S)

    def __iter__(self) -> Iterator[WorkTimes]:
        """Yield all kinds."""
        return (getattr(self, name) for name in KINDS)
