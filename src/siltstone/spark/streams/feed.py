"""Feed: the changes of a table as a stream; an offset is the last seq that was read.

    {"seq": 40, "reader": "<uuid>", "begins": true, "is_new": true}   where a new query starts
    {"seq": 40, "reader": "<uuid>", "begins": true}    after the first batch: from "earliest" it is
                                                       the rows at seq 40, else empty
    {"seq": 90, "reader": "<uuid>"}                    after the changes up to seq 90

Spark logs the end of a batch, but not the start of the first one. So the end of the first batch
holds all facts about it: after a kill the batch is the same again.

The planner runs in its own Python process next to the driver, as long as the query runs. It
reads with or without an owner. For each query it keeps the tag `spark-<reader>` at an offset that
Spark has committed: the store keeps all changes from there on, even over a kill, because the
reader's name is in Spark's log of offsets. The tag lasts as long as the store's retention (an hour
at least), and the query sets it again while it runs; without new changes, with an empty batch now
and then. If a query stays away for longer, the next vacuum removes its tag. A store in a bucket
takes no tag: there changes are kept for as long as its own retention says (ADR 126).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from siltstone.api.tasks import ChangeTask
from siltstone.bucket_url import is_bucket_url
from siltstone.errors import (
    BusyError,
    InDoubtError,
    OwnedError,
    RequestError,
    SiltstoneError,
    SnapshotExpiredError,
    UnavailableError,
)
from siltstone.local.store import LocalStore
from siltstone.spark.context import schemas, stores
from siltstone.spark.context.options import FeedOptions
from siltstone.spark.context.workers import Sealed, one_sentence, sealed
from siltstone.spark.reads.task_rows import rows_of

TAG_PREFIX = "spark-"
TAG_LASTS_S_MIN = 3_600.0
TAG_EVERY_S = 10.0
IDLE_S = 600.0


@dataclass(frozen=True, slots=True)
class Offset:
    """See the module. `begins`: the first batch has the rows that exist at `seq`."""

    seq: int
    reader: str
    begins: bool = False
    is_new: bool = False

    @classmethod
    def parse(cls, found: dict[str, object]) -> Offset:
        """Return an offset from Spark's log.

        Raises:
            RequestError: It is not an offset of this source.
        """
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            raise RequestError(
                f"the checkpoint holds an offset of another source: {found!r}"
            ) from error

    def to_dict(self) -> dict[str, object]:
        """Return the offset for Spark's log; equal offsets give equal texts."""
        return {name: value for name, value in asdict(self).items() if value is not False}


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run of a query has decided: another reader that gets it goes on with the run.

    `initial`: where the query starts. `target`: the seq where the run ends. `columns_seq`: the one
    of which it has the columns.
    """

    initial: Offset | None = None
    target: int | None = None
    columns_seq: int | None = None


def describe(options: FeedOptions) -> spark.StructType:
    """Return the columns of a feed: `_seq`, `_op`, and those of the table, null in a delete.

    Raises:
        RequestError: There is no such table, it is a plain table, or Spark lacks the type of a
            column.
    """
    with stores.reader(options.uri) as db:
        table = db[options.table]
        if not table.primary_key:
            raise RequestError(f"{options.table!r} is a plain table: it has versions, not changes")
        keys = table.primary_key
        columns = [f.with_nullable(f.name not in keys) for f in table.schema]
    marks = [
        pa.field("_seq", pa.int64(), nullable=False),
        pa.field("_op", pa.string(), nullable=False),
    ]
    return schemas.to_spark(pa.schema([*marks, *columns]))


def seq_before(db: LocalStore, moment: str) -> int:
    """Return the seq of the last commit before a time: the next one is the first to be read.

    Raises:
        SnapshotExpiredError: The store does not keep the time, or it is in the future.
    """
    return seq_at(db, dt.datetime.fromisoformat(moment) - dt.timedelta(microseconds=1))


def seq_at(db: LocalStore, moment: dt.datetime) -> int:
    """Return the seq of the last durable commit at a time or before; see `seq_before`."""
    with db.snapshot(at=moment) as snapshot:
        return min(snapshot.seq, db.durable_seq)


def _readable_from(db: LocalStore, table: str, seq: int) -> int:
    """Return the first seq from `seq` on at which a table can be read.

    A bucket has no record from before its first mirror; if the table was merged before that, what
    was older is not there.
    """
    if _is_readable(db, table, seq):
        return seq
    seqs = range(seq, db.durable_seq)
    return seq + bisect_left(seqs, True, key=lambda each: _is_readable(db, table, each))


def _is_readable(db: LocalStore, table: str, seq: int) -> bool:
    try:
        with db.snapshot(seq=seq) as snapshot:
            snapshot[table].scan(limit=0).close()
    except SnapshotExpiredError:
        return False
    return True


class ChangeTaskReader(DataSourceStreamReader):
    """The changes of one task, as the batches that Spark demands; all that executors need."""

    def __init__(self, schema: spark.StructType) -> None:
        self._schema = schema

    def __reduce__(self) -> Sealed:
        """Pickle as what executors need, whatever planned the batch."""
        return sealed(ChangeTaskReader, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of a partition.

        Raises:
            SnapshotExpiredError: The store no longer keeps the changes of the task.
            UnavailableError: This machine does not see the store's path.
            SchemaMismatchError: Spark cannot hold a value.
        """
        task = partition.value
        assert isinstance(task, ChangeTask)
        with one_sentence():
            yield from rows_of(task, self._schema)


class RefusedReader(DataSourceStreamReader):
    """A stream that cannot be read; it says so when Spark asks it for an offset.

    After an error of `streamReader` PySpark 4.3 raises another one, and shows both with traces.
    """

    def __init__(self, error: SiltstoneError) -> None:
        self._error = error

    @one_sentence()
    def _refuse(self, *_: object, **__: object) -> Any:
        """Raise the error, whatever Spark asks: a query may go on with a batch of before."""
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names


class FeedReader(ChangeTaskReader, SupportsTriggerAvailableNow):
    """Plans the batches of one run of a query."""

    def __init__(
        self,
        options: FeedOptions,
        schema: spark.StructType,
        clock_s: Callable[[], float] = time.monotonic,
        run: RunState | None = None,
    ) -> None:
        """Begin a run, or go on with one: `run` is what a reader before this one had decided."""
        super().__init__(schema)
        self._options, self._clock_s = options, clock_s
        self._open: LocalStore | None = None
        self._tagged_s: float | None = None
        self._reader: str | None = None
        found = run or RunState()
        self._initial, self._target = found.initial, found.target
        self._columns_seq = found.columns_seq

    @property
    def run(self) -> RunState:
        """What the run has decided so far."""
        return RunState(self._initial, self._target, self._columns_seq)

    @property
    def _columns_at(self) -> int:
        """The seq of which this run has the columns: the newest one when it plans its first batch.

        So all batches that end below it have the same columns, however far the run is behind.
        """
        if self._columns_seq is None:
            self._columns_seq = self._db.durable_seq
        return self._columns_seq

    @property
    def _db(self) -> LocalStore:
        if self._open is None:
            self._open = stores.reader(self._options.uri)
        return self._open

    @property
    def _is_far(self) -> bool:
        return is_bucket_url(self._options.uri)

    # offsets

    @one_sentence()
    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Return the offset at which a new query starts.

        Raises:
            SnapshotExpiredError: No commit has the seq `startingSeq` yet.
        """
        if self._initial is None:  # Spark asks more than once
            start, db = self._options.start, self._db
            seq = start if isinstance(start, int) else db.durable_seq
            if start == "earliest":
                seq = db.changes_from(self._options.table)
                seq = _readable_from(db, self._options.table, seq) if self._is_far else seq
            if self._options.start_at is not None:
                seq = seq_before(db, self._options.start_at)
            if seq > db.durable_seq:
                raise SnapshotExpiredError(f"changes since seq {seq}", 0, db.durable_seq)
            reader = uuid.uuid4().hex
            self._initial = Offset(seq, reader, begins=start == "earliest", is_new=True)
        return self._initial.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit from `maxRowsPerTrigger`."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present end of the changes: the run ends there."""
        self._target = self._db.durable_seq

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802 - Spark's name
        """Return the offset of the store's newest durable commit."""
        if self._reader is None:
            return None
        return Offset(self._db.durable_seq, self._reader).to_dict()

    @one_sentence()
    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; `start` itself if there is nothing to read.

        A batch ends with a commit: a commit with more changes than the limit stays in one batch,
        and so do the first rows of a query from "earliest".

        Raises:
            SnapshotExpiredError: The store no longer keeps the changes since the offset.
            OwnedError: The owner does not serve: call `serve_local()` there.
        """
        offset = Offset.parse(start)
        self._reader = offset.reader
        if self._tagged_s is None:  # of a query that goes on it may have been forgotten
            self._tag(offset)
        if offset.is_new:
            return replace(offset, is_new=False).to_dict()
        until = self._db.durable_seq if self._target is None else self._target
        if until <= offset.seq:
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 1
        seq, rows = self._db.changes_upto(self._options.table, offset.seq, rows_max, until)
        if not rows and not self._is_older_than(IDLE_S):
            return start  # commits that touched other tables, or our own tag
        end = seq if isinstance(limit, ReadMaxRows) else until
        return Offset(end, offset.reader).to_dict()

    @one_sentence()
    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return a partition for each task of a batch.

        Raises:
            SnapshotExpiredError: The store no longer keeps the changes since `start`.
            SchemaMismatchError: A column of the stream was dropped or renamed while the query ran,
                or another table has the name now, with another key or a column of another type.
        """
        begin, until = Offset.parse(start), Offset.parse(end)
        if until.seq > self._db.durable_seq and not self._is_far:
            # A reader knows by a mark how far the log is durable. After a power loss the mark may
            # be older than what Spark has logged of it; the owner of the store finds the rest.
            stores.owner(self._options.uri, force=self._options.force).close()
        is_first = begin.is_new  # of a first batch again, `start` is a newer one than it had
        if is_first and not until.begins:
            return []
        since = until.seq if is_first else begin.seq
        columns_at = self._columns_at if until.seq <= self._columns_at else None
        tasks = self._db.change_tasks(
            self._options.table, since, until.seq, begins=is_first, columns_at=columns_at
        )
        for task in tasks[:1]:
            schemas.wanted_columns(self._schema, task.schema, self._options.table)
        return [InputPartition(task) for task in tasks]

    # the tag

    def commit(self, end: dict[str, object]) -> None:
        """Move the tag now and then: the changes below `end` have been processed."""
        if self._is_older_than(TAG_EVERY_S):
            # Where that fails the tag stays behind, and keeps more than is needed.
            with contextlib.suppress(BusyError, InDoubtError, OwnedError, UnavailableError):
                self._tag(Offset.parse(end))

    def _is_older_than(self, seconds: float) -> bool:
        return self._tagged_s is None or self._clock_s() - self._tagged_s >= seconds

    def _tag(self, offset: Offset) -> None:
        if not self._is_far:
            lasts_s = max(self._db.options.retention_s, TAG_LASTS_S_MIN)
            with stores.owner(self._options.uri, force=self._options.force) as db:
                db.tag(TAG_PREFIX + offset.reader, offset.seq, lasts=lasts_s)
        self._tagged_s = self._clock_s()

    def stop(self) -> None:
        """Close the store. The tag stays for the next run."""
        if self._open is not None:
            self._open.close()
