"""Spans: what OpenTelemetry shows of a store, if the application has set it up.

    request ─┬─ transaction ─┬─ read
             │               └─ commit ─┬─ wait   until the log has the frame in hand
             │                          └─ sync   until it is durable
             └─ read, sql, checkpoint, merge, ...

An application that traces has imported `opentelemetry.trace` and set a provider before it opens a
store; otherwise nothing here is imported, and `Works.spans` is None, which is all that a commit
looks at. Spans have names, numbers and the names of tables: no key, no statement, no text of an
error.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
READS = ("get", "get_many", "scan", "range", "count", "search")
_SYNCS_MAX = 64


class _Sync(NamedTuple):
    """A write to the log: the seqs of its frame, and when it began and ended, in ns of 1970."""

    first_seq: int
    last_seq: int
    begun_ns: int
    ended_ns: int


class TimedLog:
    """A log that remembers how long its last writes took; see `engine.commit.committer.Log`.

    The leader alone writes; any thread may look.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._syncs: deque[_Sync] = deque(maxlen=_SYNCS_MAX)
        self.tell, self.sync, self.rotate = log.tell, log.sync, log.rotate

    @property
    def durable_seq(self) -> int:
        """See `Log`."""
        return self._log.durable_seq

    def append(self, *, first_seq: Any, last_seq: Any, payload: Any, sync: bool = True) -> None:
        """See `Log`."""
        begun_ns = time.time_ns()
        self._log.append(first_seq=first_seq, last_seq=last_seq, payload=payload, sync=sync)
        self._syncs.append(_Sync(first_seq, last_seq, begun_ns, time.time_ns()))

    def found(self, seq: int) -> _Sync | None:
        """Return the write of a commit, if it is one of the last."""
        known = (each for each in tuple(self._syncs) if each.first_seq <= seq <= each.last_seq)
        return next(known, None)


class Spans:
    """See the module. Any thread. `log` is that of the store's committer, where it has one."""

    def __init__(self, api: Any, tracer: Any) -> None:
        self._api, self._tracer = api, tracer
        self.log: TimedLog | None = None
        self._kinds: dict[type, type] = {}

    def timed(self, log: Any) -> TimedLog:
        """Return the log for the committer."""
        self.log = TimedLog(log)
        return self.log

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        parent: Any = None,
        **more: Any,
    ) -> Generator[Any]:
        """Be within a span; `parent` is another one than the current one."""
        if parent is not None:
            more["context"] = self._api.set_span_in_context(parent)
        with self._tracer.start_as_current_span(
            name,
            attributes=attributes,
            record_exception=False,  # its text may have keys and values
            set_status_on_exception=False,
            **more,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(self._api.StatusCode.ERROR)
                raise

    @contextmanager
    def request(self, method: str, route: str, headers: Mapping[str, str]) -> Generator[Any]:
        """Be within the span of a request, below that of its client if its headers name one."""
        context = import_module("opentelemetry.propagate").extract(dict(headers))
        attributes = {"http.request.method": method, "http.route": route}
        kind = self._api.SpanKind.SERVER
        with self.span(f"{method} {route}", attributes, context=context, kind=kind) as span:
            yield span

    def begin(self, name: str) -> Any:
        """Return a span that its caller ends; the current one is its parent."""
        return self._tracer.start_span(name)

    def within(self, span: Any, work: Callable[[], T]) -> T:
        """Do some work below a span."""
        with self._api.use_span(span, record_exception=False, set_status_on_exception=False):
            return work()

    def ended(self, name: str, took_s: float) -> None:
        """Show work that ended just now."""
        begun_ns = time.time_ns() - int(took_s * 1e9)
        self._tracer.start_span(name, start_time=begun_ns).end()

    def commit(self, commit: Callable[[Any], Any], write_set: Any) -> Any:
        """Commit; the receipt tells which write to the log was its own."""
        with self.span("siltstone.commit") as span:
            begun_ns = time.time_ns()
            receipt = commit(write_set)
            span.set_attribute("siltstone.seq", int(receipt.seq))
            span.set_attribute("siltstone.rows", int(receipt.rows or 0))
            self._show_sync(int(receipt.seq), begun_ns)
        return receipt

    def commit_all(self, commit: Callable[[Any], Any], write_sets: Sequence[Any]) -> Any:
        """Commit a group."""
        with self.span("siltstone.commit", {"siltstone.commits": len(write_sets)}):
            return commit(write_sets)

    def _show_sync(self, seq: int, begun_ns: int) -> None:
        sync = None if self.log is None else self.log.found(seq)
        if sync is not None:
            begun = self._tracer.start_span("siltstone.commit.wait", start_time=begun_ns)
            begun.end(max(begun_ns, sync.begun_ns))
            begun = self._tracer.start_span("siltstone.commit.sync", start_time=sync.begun_ns)
            begun.end(sync.ended_ns)

    def kind(self, kind: type[T]) -> type[T]:
        """Return the kind of table whose reads are spans, until their first rows."""
        if kind not in self._kinds:
            methods = {name: self._read(name, getattr(kind, name)) for name in READS}
            self._kinds[kind] = type(kind.__name__, (kind,), {"__slots__": (), **methods})
        return self._kinds[kind]

    def _read(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def read(table: Any, *arguments: Any, **named: Any) -> Any:
            about = {"siltstone.operation": name, "db.collection.name": table.name}
            parent = getattr(getattr(table, "_tx", None), "span", None)
            with self.span("siltstone.read", about, parent=parent):
                return method(table, *arguments, **named)

        return read


def found_spans() -> Spans | None:
    """Return the spans of an application that has set up OpenTelemetry by now; None: it has not."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return Spans(api, provider.get_tracer("siltstone"))
