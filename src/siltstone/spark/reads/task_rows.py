"""Rows of tasks: all that executors need for a read, and what they import for it.

A worker's first task waits for its imports, so this module and those below it bring nothing of what
plans a read or opens a store.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from siltstone.bucket_url import is_bucket_url
from siltstone.errors import UnavailableError
from siltstone.process import malloc
from siltstone.spark.context import application, schemas
from siltstone.spark.context.application import Application, Read
from siltstone.spark.context.workers import Sealed, one_sentence, sealed

if TYPE_CHECKING:
    from siltstone.api.snapshot import Snapshot
    from siltstone.api.tasks import ScanTask

LIVE_COLUMN = "_siltstone_live"
PIECE_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Told:
    """A read, and the application that records it; None: Spark does not tell which."""

    read: Read
    application: Application | None

    @classmethod
    def of(cls, snapshot: Snapshot, table: str, store: str) -> Told:
        """Return the record of a read of a table of a snapshot."""
        read = Read(store, snapshot[table].id, table, snapshot.seq)
        return cls(read, application.of_process(os.environ))

    def tell(self) -> None:
        """Record the read for later overwrites; without a record there is no overwrite."""
        if self.application is not None:
            self.application.tell_read(self.read)

    def tell_again(self) -> None:
        """Record it from a task, whose plan may be an old one of a frame that is used again."""
        if self.application is not None and self.application.is_here:
            self.application.tell_read(self.read)


class ScanTaskReader(DataSourceReader):
    """The rows of some scan tasks, as the batches that Spark demands; all that executors need.

    `is_live`: the batches have `LIVE_COLUMN`, too.
    """

    def __init__(self, schema: StructType, told: Told, *, is_live: bool = False) -> None:
        self._schema, self._told, self._is_live = schema, told, is_live

    def __reduce__(self) -> Sealed:
        """Pickle as what executors need, whatever planned the read."""
        kind = partial(ScanTaskReader, is_live=self._is_live)
        return sealed(kind, self._schema, self._told)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; none if the table is empty.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq of the task.
            UnavailableError: This machine does not see the store's path.
            SchemaMismatchError: Spark cannot hold a value.
        """
        with one_sentence():
            self._told.tell_again()
            tasks: tuple[ScanTask, ...] = partition.value or ()  # None: the one of an empty table
            for task in tasks:
                for batch in rows_of(task, self._schema):
                    yield _as_live(batch) if self._is_live else batch


def _as_live(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(LIVE_COLUMN, pa.repeat(pa.scalar(value=True), batch.num_rows))


class RowsTask(Protocol):
    """What a worker reads: a scan task, a change task, or one with more columns."""

    @property
    def root(self) -> str:
        """The path of the store."""
        ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        ...


def rows_of(task: RowsTask, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as Spark wants them, if this machine sees the store."""
    require_path(task.root)
    malloc.bound()  # a worker's process is Spark's, and stays for the next tasks
    wanted = schemas.arrow_schema(schema)
    for batch in task.read():
        for piece in _pieces(batch):
            yield schemas.as_schema(piece, wanted)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces that are small enough for Spark's texts."""
    if batch.nbytes <= PIECE_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def require_path(root: str) -> None:
    """Check that this machine sees the store; all see a bucket, or say why not when they read.

    Raises:
        UnavailableError: There is no store at the path, on this machine.
    """
    if not is_bucket_url(root) and not (Path(root) / "manifest").is_dir():
        raise UnavailableError(
            f"the executor on {socket.gethostname()} sees no store at {root}; driver and executors"
            " need the same path, on a disk that they share"
        )
