"""Changes: a range of the change feed as a batch, in the columns that Delta's consumers know.

    the table's columns    of a delete only the key, all else is null
    _change_type           "update_postimage" for an upsert, "delete"; "insert" for the rows with
                           which a feed from the beginning starts if their first versions are gone
    _commit_version        the seq of the commit
    _commit_timestamp      its time

The feed does not know whether an upsert replaced a row, nor the row before it: there is no
"update_preimage", and an upsert of a new key is an "update_postimage", too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from siltstone.api.tasks import ChangeTask
from siltstone.errors import RequestError, SnapshotExpiredError
from siltstone.local.store import LocalStore
from siltstone.spark.context import schemas, stores
from siltstone.spark.context.options import ChangeOptions
from siltstone.spark.context.workers import Sealed, one_sentence, sealed
from siltstone.spark.reads.task_rows import rows_of
from siltstone.spark.streams.feed import seq_at, seq_before

_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TYPES = {"upsert": "update_postimage", "snapshot": "insert", "delete": "delete"}
_MARKS = (
    spark.StructField("_change_type", spark.StringType(), nullable=False),
    spark.StructField("_commit_version", spark.LongType(), nullable=False),
    spark.StructField("_commit_timestamp", spark.TimestampType()),
)


def describe(options: ChangeOptions) -> tuple[spark.StructType, int]:
    """Return the columns of a batch of changes, and the newest durable seq.

    Raises:
        RequestError: There is no such table, it is a plain table, it has a column with one of the
            names above, or Spark lacks the type of a column.
        SnapshotExpiredError: The range is not kept, or ends in the future.
    """
    with stores.reader(options.uri) as db:
        table, seq = db[options.table], db.durable_seq
        keys = table.primary_key
        if not keys:
            raise RequestError(f"{options.table!r} is a plain table: it has versions, not changes")
        taken = sorted({mark.name for mark in _MARKS} & set(table.schema.names))
        if taken:
            raise RequestError(
                f"{options.table!r} has a column {taken[0]!r}, which a batch of changes adds;"
                " rename it, or read the changes as a stream"
            )
        since, until = _span(db, options.pinned(seq))
        feed = db.changes(since, until, [options.table])[options.table].schema
    columns = [f.with_nullable(f.name not in keys) for f in list(feed)[2:]]
    return spark.StructType([*schemas.to_spark(pa.schema(columns)).fields, *_MARKS]), seq


def _span(db: LocalStore, options: ChangeOptions) -> tuple[int, int]:
    """Return the seqs (since, until] of a range whose end is given.

    Raises:
        SnapshotExpiredError: It begins or ends in the future, or at a time that is not kept.
    """
    since, until, newest = options.start, options.end, db.durable_seq
    if options.start_at is not None:
        since = seq_before(db, options.start_at)
    if options.end_at is not None:
        until = seq_at(db, dt.datetime.fromisoformat(options.end_at))
    if since == "earliest":
        since = 0
    assert isinstance(since, int)
    assert isinstance(until, int)
    for which, seq, version in (("since", since, since + 1), ("until", until, until)):
        if seq > newest:
            raise SnapshotExpiredError(f"changes {which} version {version}", 0, newest)
    return since, until


class CommitTimes:
    """The times of the commits of a range; pickles. A commit that is not kept has none."""

    def __init__(self, seqs: np.ndarray, times_us: np.ndarray) -> None:
        self._seqs, self._times_us = seqs, times_us

    @classmethod
    def of(cls, db: LocalStore, since: int, until: int) -> CommitTimes:
        """Return the times of the commits (since, until]."""
        entries = [each for each in db.log(db.seq - since + 1) if each.seq <= until]
        entries.reverse()
        times = [(each.time - _EPOCH) // _MICROSECOND for each in entries]
        seqs = [each.seq for each in entries]
        return cls(np.array(seqs, np.int64), np.array(times, np.int64))

    def column(self, seqs: np.ndarray) -> pa.Array:
        """Return the time of each seq."""
        places = np.searchsorted(self._seqs, seqs)
        known = np.append(self._seqs, -1)[places] == seqs
        found = np.append(self._times_us, 0)[places]
        return pa.array(found, mask=~known).cast(pa.timestamp("us", tz="UTC"))


@dataclass(frozen=True, slots=True)
class MarkedTask:
    """The changes of one task, in the columns of a batch of changes; pickles."""

    task: ChangeTask
    times: CommitTimes

    @property
    def root(self) -> str:
        """The path of the store."""
        return self.task.root

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes.

        Raises:
            SnapshotExpiredError: The store no longer keeps them.
        """
        for batch in self.task.read():
            yield self._marked(batch)

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the feed in the columns of this one."""
        names = pa.array(list(_TYPES))
        types = pa.array(list(_TYPES.values())).take(pc.index_in(batch.column("_op"), names))
        seqs = batch.column("_seq")
        columns = {name: batch.column(name) for name in batch.schema.names[2:]}
        columns["_change_type"], columns["_commit_version"] = types, seqs
        columns["_commit_timestamp"] = self.times.column(seqs.to_numpy())
        return pa.RecordBatch.from_pydict(columns)


class RangeTaskReader(DataSourceReader):
    """The changes of one task, as the batches that Spark demands; all that executors need."""

    def __init__(self, schema: spark.StructType, times: CommitTimes) -> None:
        self._schema, self._times = schema, times

    def __reduce__(self) -> Sealed:
        """Pickle as what executors need, whatever planned the read."""
        return sealed(RangeTaskReader, self._schema, self._times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of a partition.

        Raises:
            SnapshotExpiredError: The store no longer keeps the changes of the task.
            UnavailableError: This machine does not see the store's path.
            SchemaMismatchError: Spark cannot hold a value.
        """
        task = partition.value
        if task is None:  # Spark plans one partition where a reader has none
            return
        assert isinstance(task, ChangeTask)
        with one_sentence():
            yield from rows_of(MarkedTask(task, self._times), self._schema)


class RangeReader(RangeTaskReader):
    """Plans one read of a range of changes, in the planning process."""

    def __init__(self, options: ChangeOptions, schema: spark.StructType) -> None:
        """Cut the range into tasks.

        Raises:
            SnapshotExpiredError: The store no longer keeps the range.
            SchemaMismatchError: The caller's own schema does not fit the changes.
        """
        with stores.reader(options.uri) as db:
            since, until = _span(db, options)
            self._tasks = db.change_tasks(options.table, since, until)
            times = CommitTimes.of(db, since, until)
            found = db.changes(since, until, [options.table])[options.table].schema
        marks = schemas.arrow_schema(spark.StructType(list(_MARKS)))
        schemas.wanted_columns(schema, pa.schema([*list(found)[2:], *marks]), options.table)
        super().__init__(schema, times)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return [InputPartition(task) for task in self._tasks]

    def marked(self) -> list[MarkedTask]:
        """Return the tasks with what marks their changes."""
        return [MarkedTask(task, self._times) for task in self._tasks]
