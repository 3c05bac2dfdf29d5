"""Batch writer: one frame into one table, in one commit.

Spark makes the writer where it plans, sends it to executors, and gives it back for the commit or
the abort in another Python process: it is a value, and holds only what pickles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from siltstone.engine.write.stage_task import Staged
from siltstone.errors import RequestError
from siltstone.spark import automatic_merge, stores
from siltstone.spark.application import of_process
from siltstone.spark.guards import Unchanged
from siltstone.spark.options import WriteOptions
from siltstone.spark.staging import FramePiece, StageJob, commit, plan


@dataclass(frozen=True)
class BatchWritten(WriterCommitMessage):
    """What one task has staged, and whether it ran where the driver does."""

    staged: Staged
    is_near: bool = False


class BatchWriter(DataSourceArrowWriter):
    """Stages in tasks, commits once; tasks that failed or ran twice leave what vacuum takes."""

    def __init__(
        self,
        options: WriteOptions,
        piece: FramePiece,
        *,
        is_overwrite: bool,
        unchanged: Unchanged | None,
    ) -> None:
        self._options, self._piece, self._is_overwrite = options, piece, is_overwrite
        self._unchanged = unchanged

    @classmethod
    def plan(cls, options: WriteOptions, schema: StructType, *, is_overwrite: bool) -> BatchWriter:
        """Check all that can be checked before a row is written, beside any owner.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            UnavailableError: An overwrite, and Spark does not say of which application.
        """
        if options.expect_seq is not None and not is_overwrite:
            raise RequestError("option 'expectSeq' is of overwrites; an 'append' replaces no table")
        application = of_process(os.environ)
        with stores.reader(options.uri) as db:
            piece = plan(
                db,
                options.table,
                schema,
                op=options.op,
                order_by=options.order_by,
                is_overwrite=is_overwrite,
                missing=options.missing,
                application=application,
            )
        unchanged = None
        if is_overwrite:
            unchanged = Unchanged.plan(piece.stage, application, options.expect_seq)
        return cls(options, piece, is_overwrite=is_overwrite, unchanged=unchanged)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """Stage the rows of one task; see `Piece.write`."""
        return BatchWritten(self._piece.write(iterator), self._piece.is_near)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks staged, through the owner of the store or as its owner.

        Raises:
            OwnedError: The owner does not serve others: `serve_local()` there lets them in.
            DuplicateKeyError, ConflictError, InDoubtError: See `staging.commit`.
        """
        jobs = [self._job(messages)]
        with stores.owner(self._options.uri) as db:
            commit(db, jobs, self._options.token)
            tables, root = automatic_merge.due(db, jobs, self._options.merge), db.path
        automatic_merge.merge_detached(root, tables)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what is known of; tasks that failed sent nothing, vacuum takes theirs."""
        self._job(messages).discard()

    def _job(self, messages: Sequence[WriterCommitMessage | None]) -> StageJob:
        written = [message for message in messages if isinstance(message, BatchWritten)]
        unchanged, piece = self._unchanged, self._piece
        if unchanged is not None and not all(message.is_near for message in written):
            unchanged = unchanged.far()
        return piece.job(tuple(m.staged for m in written), unchanged, self._is_overwrite)
