"""Formats that write as "siltstone" does, with a task that goes wrong; executors import them.

failing    a task fails after it has staged its rows, on its first attempt
repeated   each task is attempted twice and stages both times; Spark hears of the later one
full       the disk has no room for one task, on its first attempt
unseen     the executor of one task sees no store at the path, on its first attempt
stopping   the owner is killed after one task has staged its rows: the process of `pid_file`
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from siltstone.spark.context.options import WriteOptions
from siltstone.spark.sessions.source import SiltstoneSource
from siltstone.spark.writes.writer import BatchWriter, BatchWritten

FILE_BYTES_MAX = 512


def is_unlucky() -> bool:
    """Say whether this is the first attempt of the task in whose name things go wrong."""
    task = TaskContext.get()
    return task is not None and task.partitionId() == 1 and task.attemptNumber() == 0


class FailingWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        written = super().write(iterator)
        if is_unlucky():
            raise RuntimeError("the executor has a fever")
        return written


class RepeatedWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        batches = list(iterator)
        super().write(iter(batches))
        return super().write(iter(batches))


class FullWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        if not is_unlucky():
            return super().write(iterator)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, before[1]))
        try:
            return super().write(iterator)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


class UnseenWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        if is_unlucky():
            stage = replace(self._piece.stage, root="/nowhere")
            return BatchWritten(replace(self._piece, stage=stage).write(iterator))
        return super().write(iterator)


class StoppingWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        written = super().write(iterator)
        if is_unlucky():
            process = os.pidfd_open(int(pid_file(self._piece.stage.root).read_text()))
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [])  # until it has ended
        return written


def pid_file(root: str | Path) -> Path:
    """Return the file with the number of the process that owns a store."""
    return Path(f"{root}.pid")


class FaultySource(SiltstoneSource):
    WRITER: type[BatchWriter]

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self.WRITER.plan(WriteOptions.parse(self.options), schema, is_overwrite=overwrite)


class Failing(FaultySource):
    WRITER = FailingWriter


class Repeated(FaultySource):
    WRITER = RepeatedWriter


class Full(FaultySource):
    WRITER = FullWriter


class Unseen(FaultySource):
    WRITER = UnseenWriter


class Stopping(FaultySource):
    WRITER = StoppingWriter


def register(spark: SparkSession) -> None:
    for source in (Failing, Repeated, Full, Unseen, Stopping):
        spark.dataSource.register(source)
