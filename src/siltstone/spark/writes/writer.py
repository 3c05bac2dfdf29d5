"""Writers: one frame into one table in one commit, and the micro-batches of a stream, exactly once.

Spark creates a writer in the planning process, sends it to executors, and returns it for the commit
or the abort in another Python process. It is a value and holds only fields that pickle.

A `Sink` writes the micro-batches of a stream, each in one commit:

    plan, for each batch ─▶ write on executors ─▶ commit on the driver's machine
    the first one claims    staged; the message       the driver claims the app, then one
    the start               names its driver          transaction with the token (app, batch id)

The app is the query's id, which is in the checkpoint: a query that continues from a checkpoint
continues with its batches. If a batch was committed before a kill, it is committed again with its
token, and nothing happens. Of two drivers, the one that started last has the app (see `drivers`).

Its commit runs in a process that knows only the messages of the tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from siltstone.api.tasks import Staged
from siltstone.errors import RequestError, UnavailableError
from siltstone.spark.context import stores
from siltstone.spark.context.application import of_process
from siltstone.spark.context.options import SinkOptions, WriteOptions
from siltstone.spark.context.workers import Sealed, one_sentence, sealed
from siltstone.spark.writes import automatic_merge, drivers
from siltstone.spark.writes.drivers import Start
from siltstone.spark.writes.guards import Unchanged
from siltstone.spark.writes.staging import FramePiece, StageJob, StatementRead, commit, plan, tidy

QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True)
class BatchWritten(WriterCommitMessage):
    """The pieces that one task has staged, and whether it ran on the driver's machine."""

    staged: Staged
    is_near: bool = False


class BatchWriter(DataSourceArrowWriter):
    """Stages rows in tasks, commits once. Vacuum deletes files of failed or repeated tasks."""

    def __init__(
        self, options: WriteOptions, piece: FramePiece, unchanged: Unchanged | None
    ) -> None:
        self.options, self._piece, self._unchanged = options, piece, unchanged

    @classmethod
    def plan(
        cls,
        options: WriteOptions,
        schema: StructType,
        *,
        is_overwrite: bool,
        environment: Mapping[str, str] = os.environ,
    ) -> BatchWriter:
        """Check the write before any row is written.

        `environment`: says which application writes.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            UnavailableError: Spark does not tell which application overwrites.
        """
        if options.expect_seq is not None and not is_overwrite:
            raise RequestError(
                "option 'expectSeq' is only for overwrites; an 'append' replaces no rows"
            )
        if options.replaces is not None and (
            not is_overwrite or options.op not in {None, "upsert"}
        ):
            raise RequestError("option 'replaceWhere' needs mode 'overwrite', and no other op")
        application = of_process(environment)
        with stores.planner(options.uri) as db:
            piece = plan(db, options, schema, application, is_overwrite=is_overwrite)
        return cls(options, piece, piece.unchanged(options.expect_seq))

    def __reduce__(self) -> Sealed:
        """Pickle for executors, and for the process that commits."""
        return sealed(type(self), self.options, self._piece, self._unchanged)

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch], task: int | None = None) -> BatchWritten:
        """Stage the rows of one task; see `Piece.write`."""
        return BatchWritten(self._piece.write(iterator, task), self._piece.is_near)

    @one_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the staged rows, through the owner of the store or as its owner.

        Raises:
            OwnedError: The owner does not serve: call `serve_local()` there.
            DuplicateKeyError, ConflictError, InDoubtError: See `staging.commit`.
        """
        commit_all([(self, messages)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the known files. Failed tasks report none; vacuum deletes theirs."""
        tidy([self.job(messages)], "nothing was committed of the staged rows")

    def job(self, messages: Sequence[WriterCommitMessage | None]) -> StageJob:
        """Return what tasks have staged, to be committed."""
        written = [message for message in messages if isinstance(message, BatchWritten)]
        is_near = all(message.is_near for message in written)
        return self._piece.job((m.staged for m in written), self._unchanged, is_near=is_near)


def commit_all(
    writes: Sequence[tuple[BatchWriter, Sequence[WriterCommitMessage | None]]],
    read: StatementRead | None = None,
) -> None:
    """Commit what the tasks of some writers with the same options staged, as one.

    Raises:
        OwnedError, DuplicateKeyError, ConflictError, InDoubtError: As `BatchWriter.commit`.
    """
    options = writes[0][0].options
    jobs = [writer.job(messages) for writer, messages in writes]
    with stores.owner(options.uri, force=options.force) as db:
        commit(db, jobs, options.token, read=read, attempts=options.attempts)
        tables = automatic_merge.due(db, jobs, options.merge)
    automatic_merge.report(db, tables)


@dataclass(frozen=True)
class SinkWritten(WriterCommitMessage):
    """The pieces that one task has staged, with their job, query and driver."""

    piece: FramePiece
    staged: Staged
    query: str
    start: Start


class Sink(DataSourceStreamArrowWriter):
    """One batch of a stream, in the process that plans or commits it."""

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        is_overwrite: bool,
        first_commit: int,
        environment: Mapping[str, str] = os.environ,
        start: Start | None = None,
    ) -> None:
        """Make what plans, or what commits: that one knows the seq of the run's `first_commit`.

        `start`: that of the run, if its driver has claimed it and remembers.
        """
        self._options, self._schema, self._is_overwrite = options, schema, is_overwrite
        self._first_commit, self._environment = first_commit, environment
        self._start = start
        self._planned: tuple[FramePiece, Start] | None = None

    def __reduce__(self) -> Sealed:
        """Pickle as what executors need: here a job begins, which a commit does not."""
        return sealed(PieceWriter, *self.planned())

    @one_sentence()
    def planned(self) -> tuple[FramePiece, Start]:
        """Begin the job of the batch; return what stages its rows, and the driver's start.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            OwnedError: The owner does not serve: call `serve_local()` there.
        """
        if self._planned is None:
            options = self._options
            driver = drivers.driver_of(self._environment, options.checkpoint)
            with stores.planner(options.uri) as db:
                application = of_process(self._environment)
                overwrites = self._is_overwrite
                piece = plan(db, options, self._schema, application, is_overwrite=overwrites)
                stream = options.app or options.checkpoint
                start = self._start or drivers.started(db, options, stream, driver)
                self._planned = piece, start
        return self._planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkWritten:
        """Stage the rows of one task; runs on executors."""
        return PieceWriter(*self.planned()).write(iterator)

    @one_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch once.

        Raises:
            FencedError: A later driver has claimed the app; this one must stop.
            OwnedError: The owner does not serve: call `serve_local()` there.
            DuplicateKeyError, ConflictError, InDoubtError: See `staging.commit`.
        """
        written = _written(messages)
        if written:  # a batch without a partition has no row, and no token to spend
            commit_batch(self._options, written, batchId, self._first_commit)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete the known files. Failed tasks report none; vacuum deletes theirs."""
        del batchId
        abort_batch(_written(messages))


def commit_batch(
    options: SinkOptions, written: Sequence[SinkWritten], batch: int, first_commit: int
) -> None:
    """Commit a batch of a run once, whose first commit was at the seq `first_commit`.

    Raises:
        FencedError, OwnedError, DuplicateKeyError, ConflictError, InDoubtError: As `Sink.commit`.
    """
    app = options.app or written[0].query
    with stores.owner(options.uri, force=options.force) as db:
        claim = drivers.take(db, app, written[0].start, first_commit)
        commit(db, [_job(written)], (app, batch), claim=claim)
    automatic_merge.report(db, ())


def abort_batch(written: Sequence[SinkWritten]) -> None:
    """Delete what tasks of a batch staged."""
    if written:
        tidy([_job(written)], "nothing was committed of the staged rows")


def _job(written: Sequence[SinkWritten]) -> StageJob:
    # Output mode "complete" is the query's own state, not what it read: it overwrites blindly.
    return StageJob(written[0].piece, tuple(message.staged for message in written))


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[SinkWritten]:
    return [message for message in messages if isinstance(message, SinkWritten)]


class PieceWriter(DataSourceStreamArrowWriter):
    """Stages the rows of a batch on executors."""

    def __init__(self, piece: FramePiece, start: Start) -> None:
        self._piece, self._start = piece, start

    def __reduce__(self) -> Sealed:
        """Pickle for executors."""
        return sealed(type(self), self._piece, self._start)

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkWritten:
        """Stage the rows of one task; see `Piece.write`.

        Raises:
            UnavailableError: Spark does not tell the query of the task.
        """
        context = TaskContext.get()
        query = context and context.getLocalProperty(QUERY_PROPERTY)
        if not query:
            raise UnavailableError(
                f"this Spark does not tell tasks their query ({QUERY_PROPERTY}), so no batch can be"
                " committed once"
            )
        return SinkWritten(self._piece, self._piece.write(iterator), query, self._start)
