"""Feeds: the changes of tables: as streams, by `FeedReader`, and as ranges, by `RangeReader`.

    shop.orders.changes                  the stream: a reader for each run of a query
    orders CHANGES FROM VERSION 5 TO ..  the range: found when its frame is made, cut into tasks for
                                         each query

The JVM names a run by a token, and sends with each step what the run has decided so far. So if this
process dies, the next one makes a reader that goes on with the run: from the same offset, to the
same end, with the same columns. Each step may be taken again.

Lock: one for the table of runs, and one for each run, as a query may be stopped while it plans.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from siltstone.errors import RequestError, TableNotFoundError
from siltstone.local.store import LocalStore
from siltstone.spark.context import stores
from siltstone.spark.context.options import (
    START,
    ChangeOptions,
    FeedOptions,
    is_feed,
    without_known,
)
from siltstone.spark.daemon import messages
from siltstone.spark.daemon.messages import Answer, ChangeBound, FeedStep
from siltstone.spark.reads.task_rows import RowsTask
from siltstone.spark.streams import changes, feed
from siltstone.spark.streams.feed import FeedReader, seq_at

_OF_CATALOG = ("uri", "table", "path")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_DEDUPS = ("none", "dropCarryovers")
"""What Spark may leave of changes: a commit here never has rows that it did not change."""


def describe(asked: messages.DescribeFeed) -> dict[str, object]:
    """Return the columns of the stream of a table's changes; `missing` if there is no such table.

    Raises:
        RequestError: It is a plain table, or Spark lacks the type of a column.
    """
    try:
        schema = feed.describe(FeedOptions(asked.uri, asked.table))
    except TableNotFoundError:
        return {"missing": True}
    return {"schema": schema.json()}


def packed(tasks: Iterable[RowsTask]) -> Answer:
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

    def take(self, asked: FeedStep) -> Answer:
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
    given = without_known(asked.options, _OF_CATALOG, "stream of a catalog")
    if not is_feed(given):
        given[START.lower()] = "earliest"
    return FeedOptions.parse({**given, "uri": asked.uri, "table": asked.table})


def _limit(reader: FeedReader, _asked: FeedStep) -> Answer:
    found = reader.getDefaultReadLimit()
    return {"rows": found.max_rows if isinstance(found, ReadMaxRows) else None}, []


def _target(reader: FeedReader, _asked: FeedStep) -> Answer:
    reader.prepareForTriggerAvailableNow()
    return {}, []


def _latest(reader: FeedReader, asked: FeedStep) -> Answer:
    limit: ReadLimit = ReadAllAvailable() if asked.rows is None else ReadMaxRows(asked.rows)
    start = _offset(asked.start)
    found = reader.latestOffset(start, limit)
    return {"offset": asked.start if found == start else json.dumps(found)}, []


def _newest(reader: FeedReader, _asked: FeedStep) -> Answer:
    found = reader.reportLatestOffset()
    return {"offset": None if found is None else json.dumps(found)}, []


def _plan(reader: FeedReader, asked: FeedStep) -> Answer:
    found = reader.partitions(_offset(asked.start), _offset(asked.end))
    return packed(each.value for each in found)


def _commit(reader: FeedReader, asked: FeedStep) -> Answer:
    reader.commit(_offset(asked.end))
    return {}, []


_STEPS: Mapping[str, Callable[[FeedReader, FeedStep], Answer]] = {
    "limit": _limit,
    "initial": lambda reader, _: ({"offset": json.dumps(reader.initialOffset())}, ()),
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


# ranges


def find(asked: messages.FindChanges, newest: int) -> dict[str, object]:
    """Return the columns and the key of a range of changes, and its seqs, `since` exclusive.

    `newest`: where it ends if it has no end. `missing`: there is no such table.

    Raises:
        RequestError: It is a plain table, has no start, or ends before it begins; or it is asked
            for what the feed does not know.
        SnapshotExpiredError: The range is not kept, or ends in the future.
    """
    _refuse_what_the_feed_lacks(asked)
    try:
        with stores.reader(asked.uri) as db:
            since, until = _span(db, asked, newest)
            key = db[asked.table].primary_key
        schema, _ = changes.describe(ChangeOptions(asked.uri, asked.table, start=since, end=until))
    except TableNotFoundError:
        return {"missing": True}
    return {"schema": schema.json(), "key": key, "since": since, "until": until}


def plan(asked: messages.PlanChanges) -> Answer:
    """Return the tasks of a range.

    Raises:
        SnapshotExpiredError: The store no longer keeps it.
        SchemaMismatchError: The table has other columns now.
    """
    options = ChangeOptions(asked.uri, asked.table, start=asked.since, end=asked.until)
    schema = StructType.fromJson(json.loads(asked.columns))
    return packed(changes.RangeReader(options, schema).marked())


def _refuse_what_the_feed_lacks(asked: messages.FindChanges) -> None:
    if asked.dedup not in _DEDUPS:
        raise RequestError(
            f"the changes of a store have no deduplicationMode {asked.dedup!r}: they do not say"
            f" whether a row was there before; it may be {' or '.join(_DEDUPS)}"
        )
    if asked.updates:
        raise RequestError(
            "the changes of a store have no computeUpdates: they have a row after an update as"
            " update_postimage, and none before it"
        )


def _span(db: LocalStore, asked: messages.FindChanges, newest: int) -> tuple[int, int]:
    """Return the seqs (since, until] of a range; one that excludes its only commit is empty."""
    if asked.start is None:
        raise RequestError(
            "a batch read of changes needs a start: CHANGES FROM VERSION .., or the option"
            " startingVersion"
        )
    since = _seq_of(db, asked.start, is_before=asked.start.inclusive)
    end = asked.end
    until = newest if end is None else _seq_of(db, end, is_before=not end.inclusive)
    if asked.end is not None and _is_before(db, asked.end, asked.start):
        raise RequestError(f"the changes of {asked.table!r} end before they begin")
    return since, max(until, since)


def _seq_of(db: LocalStore, bound: ChangeBound, *, is_before: bool) -> int:
    """Return the seq that a bound names, or the one before it."""
    if bound.time_us is not None:
        return seq_at(db, _EPOCH + (bound.time_us - is_before) * _MICROSECOND)
    return max(_version(db, bound) - is_before, 0)


def _is_before(db: LocalStore, end: ChangeBound, start: ChangeBound) -> bool:
    if start.time_us is not None and end.time_us is not None:
        return end.time_us < start.time_us
    return _version(db, end) < _version(db, start)


def _version(db: LocalStore, bound: ChangeBound) -> int:
    """Return the seq that a version names: itself, or that of a tag.

    Raises:
        RequestError: There is no such tag.
    """
    text = bound.version or ""
    if text.isascii() and text.isdigit():
        return int(text)
    with db.snapshot(tag=text) as snapshot:
        return snapshot.seq
