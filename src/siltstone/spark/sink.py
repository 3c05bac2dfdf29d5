"""Sink: the micro-batches of a stream into one table, each in one commit, exactly once.

    plan, for each batch ─▶ write on executors ─▶ commit on the driver's machine
    the first one claims    staged; the message       the driver claims the app, then one
    the start               names its driver          transaction with the token (app, batch id)

The app is the query's id, which is in the checkpoint: a query that continues from a checkpoint
continues with its batches. If a batch was committed before a kill, it is committed again with its
token, and nothing happens. Of two drivers, the one that started last has the app (see `drivers`).

The commit runs in a process of its own, which knows only the messages of the tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from siltstone.api.tasks import Staged, StageTask
from siltstone.errors import UnavailableError
from siltstone.spark import drivers, stores
from siltstone.spark.application import Application, of_process
from siltstone.spark.drivers import Start
from siltstone.spark.guards import WholeRows
from siltstone.spark.options import SinkOptions
from siltstone.spark.staging import FramePiece, StageJob, commit, plan

QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True)
class SinkWritten(WriterCommitMessage):
    """The pieces that one task has staged, with their job, query and driver."""

    stage: StageTask
    staged: Staged
    query: str
    start: Start
    whole: WholeRows | None = None
    application: Application | None = None


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
    ) -> None:
        """Make what plans, or what commits: that one knows the seq of the run's `first_commit`."""
        self._options, self._schema, self._is_overwrite = options, schema, is_overwrite
        self._first_commit, self._environment = first_commit, environment
        self._planned: tuple[FramePiece, Start] | None = None

    def __reduce__(self) -> tuple[type[PieceWriter], tuple[FramePiece, Start]]:
        """Pickle as what executors need: here a job begins, which a commit does not.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            OwnedError: The owner does not serve: call `serve_local()` there.
        """
        if self._planned is None:
            options = self._options
            driver = drivers.driver_of(self._environment, options.checkpoint)
            with stores.reader(options.uri) as db:
                application = of_process(self._environment)
                overwrites = self._is_overwrite
                piece = plan(db, options, self._schema, application, is_overwrite=overwrites)
                stream = options.app or options.checkpoint
                self._planned = piece, drivers.started(db, options.uri, stream, driver)
        return PieceWriter, self._planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkWritten:
        """Stage the rows of one task; runs on executors."""
        writer, pieces = self.__reduce__()
        return writer(*pieces).write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch once.

        Raises:
            FencedError: A later driver has claimed the app; this one must stop.
            OwnedError: The owner does not serve: call `serve_local()` there.
            DuplicateKeyError, ConflictError, InDoubtError: See `staging.commit`.
        """
        written = _written(messages)
        if not written:  # a batch without a partition: it has no row, and no token to spend
            return
        app = self._options.app or written[0].query
        with stores.owner(self._options.uri) as db:
            claim = drivers.take(db, app, written[0].start, self._first_commit)
            commit(db, [self._job(written)], (app, batchId), claim=claim)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete the known files. Failed tasks report none; vacuum deletes theirs."""
        del batchId
        written = _written(messages)
        if written:
            self._job(written).discard()

    def _job(self, written: Sequence[SinkWritten]) -> StageJob:
        staged, one = tuple(message.staged for message in written), written[0]
        # Output mode "complete" is the query's own state, not what it read: it overwrites blindly.
        return StageJob(one.stage, staged, self._is_overwrite, None, one.whole, one.application)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[SinkWritten]:
    return [message for message in messages if isinstance(message, SinkWritten)]


class PieceWriter(DataSourceStreamArrowWriter):
    """Stages the rows of a batch on executors."""

    def __init__(self, piece: FramePiece, start: Start) -> None:
        self._piece, self._start = piece, start

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
        piece = self._piece
        staged = piece.write(iterator)
        return SinkWritten(piece.stage, staged, query, self._start, piece.whole, piece.application)
