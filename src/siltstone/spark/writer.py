"""Batch writer: one frame into one table, in one commit.

Spark creates the writer in the planning process, sends it to executors, and returns it for the
commit or the abort in another Python process. It is a value and holds only fields that pickle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from siltstone.api.tasks import Staged
from siltstone.errors import RequestError
from siltstone.spark import automatic_merge, stores
from siltstone.spark.application import of_process
from siltstone.spark.guards import Unchanged
from siltstone.spark.options import WriteOptions
from siltstone.spark.staging import FramePiece, StageJob, commit, plan


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
        self._options, self._piece, self._unchanged = options, piece, unchanged

    @classmethod
    def plan(cls, options: WriteOptions, schema: StructType, *, is_overwrite: bool) -> BatchWriter:
        """Check the write before any row is written.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            UnavailableError: Spark does not tell which application overwrites.
        """
        if options.expect_seq is not None and not is_overwrite:
            raise RequestError(
                "option 'expectSeq' is only for overwrites; an 'append' replaces no rows"
            )
        application = of_process(os.environ)
        with stores.reader(options.uri) as db:
            piece = plan(db, options, schema, application, is_overwrite=is_overwrite)
        return cls(options, piece, piece.unchanged(options.expect_seq))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """Stage the rows of one task; see `Piece.write`."""
        return BatchWritten(self._piece.write(iterator), self._piece.is_near)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the staged rows, through the owner of the store or as its owner.

        Raises:
            OwnedError: The owner does not serve: call `serve_local()` there.
            DuplicateKeyError, ConflictError, InDoubtError: See `staging.commit`.
        """
        jobs = [self._job(messages)]
        with stores.owner(self._options.uri) as db:
            commit(db, jobs, self._options.token)
            tables, root = automatic_merge.due(db, jobs, self._options.merge), db.path
        automatic_merge.merge_detached(root, tables)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the known files. Failed tasks report none; vacuum deletes theirs."""
        self._job(messages).discard()

    def _job(self, messages: Sequence[WriterCommitMessage | None]) -> StageJob:
        written = [message for message in messages if isinstance(message, BatchWritten)]
        is_near = all(message.is_near for message in written)
        return self._piece.job((m.staged for m in written), self._unchanged, is_near=is_near)
