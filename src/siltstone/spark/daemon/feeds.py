"""Feeds: the changes of tables, as streams; all of their meaning is `feed.FeedReader`'s.

    shop.orders.changes     the stream of the changes of `orders`, a reader for each run of a query

The JVM names a run by a token, and sends with each step what the run has decided so far. So if this
process dies, the next one makes a reader that goes on with the run: from the same offset, to the
same end, with the same columns. Each step may be taken again.

Lock: one for the table of runs, and one for each run, as a query may be stopped while it plans.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from siltstone.errors import RequestError, TableNotFoundError
from siltstone.spark import feed
from siltstone.spark.daemon.messages import DescribeFeed, FeedStep
from siltstone.spark.feed import FeedReader
from siltstone.spark.options import START, FeedOptions, is_feed
from siltstone.spark.task_rows import RowsTask

_OF_CATALOG = ("uri", "table", "path")
_Answer = tuple[dict[str, object], list[bytes]]


def describe(asked: DescribeFeed) -> dict[str, object]:
    """Return the columns of the stream of a table's changes; `missing` if there is no such table.

    Raises:
        RequestError: It is a plain table, or Spark lacks the type of a column.
    """
    try:
        schema = feed.describe(FeedOptions(asked.uri, asked.table))
    except TableNotFoundError:
        return {"missing": True}
    return {"schema": schema.json()}


def packed(tasks: Iterable[RowsTask]) -> _Answer:
    """Return tasks that read changes, each a partition; no overwrite asks who has read them."""
    found = [pickle.dumps((None, (task,))) for task in tasks]
    return {"sizes": [len(each) for each in found]}, found


@dataclass(slots=True, eq=False)
class _Run:
    """A run of a query: its reader, which one thread uses at a time."""

    reader: FeedReader
    lock: threading.Lock = field(default_factory=threading.Lock)


class StreamRuns:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def take(self, asked: FeedStep) -> _Answer:
        """Take a step of a run; the answer has what the run has decided.

        Raises:
            RequestError: An option is missing, unknown or invalid; the message names it.
            SnapshotExpiredError, SchemaMismatchError, OwnedError: As `FeedReader`.
        """
        if asked.step == "stop":
            self._stop(asked.token)
            return {}, []
        run = self._run(asked)
        with run.lock:
            answer, payload = _STEPS[asked.step](run.reader, asked)
            return {**answer, "run": run.reader.run}, payload

    def count(self) -> int:
        """Return how many runs there are."""
        with self._lock:
            return len(self._runs)

    def _run(self, asked: FeedStep) -> _Run:
        with self._lock:
            found = self._runs.get(asked.token)
            if found is None:  # a reader opens its store when it needs it, not here
                schema = StructType.fromJson(json.loads(asked.columns))
                reader = FeedReader(_options_of(asked), schema, run=asked.run)
                found = self._runs[asked.token] = _Run(reader)
        return found

    def _stop(self, token: str) -> None:
        with self._lock:
            found = self._runs.pop(token, None)
        if found is not None:
            with found.lock:
                found.reader.stop()


def _options_of(asked: FeedStep) -> FeedOptions:
    """Return the options of a stream; its name says that it is one, so it may lack a start."""
    given = {name.lower(): text for name, text in asked.options.items()}
    for name in _OF_CATALOG:
        if name in given:
            raise RequestError(f"a stream of a catalog has no option {name!r}: the catalog knows it")
    if not is_feed(given):
        given[START.lower()] = "earliest"
    return FeedOptions.parse({**given, "uri": asked.uri, "table": asked.table})


def _limit(reader: FeedReader, _asked: FeedStep) -> _Answer:
    found = reader.getDefaultReadLimit()
    return {"rows": found.max_rows if isinstance(found, ReadMaxRows) else None}, []


def _initial(reader: FeedReader, _asked: FeedStep) -> _Answer:
    return {"offset": json.dumps(reader.initialOffset())}, []


def _target(reader: FeedReader, _asked: FeedStep) -> _Answer:
    reader.prepareForTriggerAvailableNow()
    return {}, []


def _latest(reader: FeedReader, asked: FeedStep) -> _Answer:
    limit: ReadLimit = ReadAllAvailable() if asked.rows is None else ReadMaxRows(asked.rows)
    start = _offset(asked.start)
    found = reader.latestOffset(start, limit)
    return {"offset": asked.start if found == start else json.dumps(found)}, []


def _newest(reader: FeedReader, _asked: FeedStep) -> _Answer:
    found = reader.reportLatestOffset()
    return {"offset": None if found is None else json.dumps(found)}, []


def _plan(reader: FeedReader, asked: FeedStep) -> _Answer:
    found = reader.partitions(_offset(asked.start), _offset(asked.end))
    return packed(each.value for each in found)


def _commit(reader: FeedReader, asked: FeedStep) -> _Answer:
    reader.commit(_offset(asked.end))
    return {}, []


_STEPS: Mapping[str, Callable[[FeedReader, FeedStep], _Answer]] = {
    "limit": _limit,
    "initial": _initial,
    "target": _target,
    "latest": _latest,
    "newest": _newest,
    "plan": _plan,
    "commit": _commit,
}


def _offset(text: str | None) -> dict[str, Any]:
    """Return an offset of Spark's log.

    Raises:
        RequestError: It is not an offset of this source.
    """
    try:
        found = json.loads(text or "")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RequestError(f"the checkpoint holds an offset of another source: {text!r}")
    return found
