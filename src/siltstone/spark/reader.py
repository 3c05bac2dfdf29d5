"""Batch reader: one table at one seq, planned once, read by executors task by task.

schema()        what the table is to Spark                  a Python process beside the driver
BatchReader     opens one snapshot, takes filters, plans    another one, for each query
TaskReader      all that travels to executors: the schema   executors
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from siltstone.errors import UnavailableError
from siltstone.handles import Snapshot
from siltstone.query.scan.scan_task import ScanTask
from siltstone.spark import application, schemas, stores
from siltstone.spark.application import Application, Read, store_of
from siltstone.spark.filters import pushed
from siltstone.spark.options import ReadOptions


@contextmanager
def opened(options: ReadOptions) -> Generator[tuple[str, Snapshot]]:
    """Open a store, as `store_of` calls it, and the snapshot that the options mean."""
    with (
        stores.reader(options.uri) as store,
        store.snapshot(seq=options.seq, at=options.at, tag=options.tag) as snapshot,
    ):
        yield store_of(store.path, store.store_id), snapshot


def describe(options: ReadOptions) -> tuple[StructType, int]:
    """Return the columns of a read, all or those that the options name, and its seq.

    Raises:
        RequestError: No such table, column or seq; a filter that does not parse.
    """
    with opened(options) as (_, snapshot):
        table = snapshot[options.table]
        table.scan(filter=options.filter, limit=0).close()
        schema, seq = table.schema, snapshot.seq
    if options.columns is not None:
        schema = pa.schema(
            [schemas.stored(name, schema, options.table) for name in options.columns]
        )
    return schemas.to_spark(schema), seq


@dataclass(frozen=True, slots=True)
class Told:
    """What is read, and the application that is told of it; None: Spark does not say which."""

    read: Read
    application: Application | None

    @classmethod
    def of(cls, snapshot: Snapshot, table: str, store: str) -> Told:
        """Return what this process tells of a table of a snapshot."""
        read = Read(store, snapshot[table].id, table, snapshot.seq)
        return cls(read, application.of_process(os.environ))

    def tell(self) -> None:
        """Note the read where overwrites look for it; nobody overwrites without a note of it."""
        if self.application is not None:
            self.application.tell_read(self.read)

    def tell_again(self) -> None:
        """Note it from a task: its plan may be an old one, of a frame that is used once more."""
        if self.application is not None and self.application.is_here:
            self.application.tell_read(self.read)


class BatchReader(DataSourceReader):
    """The plan of one read of one table; lives in the process that plans."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Open the table and hold it against the schema that the query was made for.

        Raises:
            SchemaMismatchError: The caller's own schema does not fit the table.
        """
        self._options, self._schema = options, schema
        self._filters = (
            [] if options.filter is None else [f"({options.filter}\n)"]
        )  # it may end in a comment
        self._open = opened(options)
        store, self._snapshot = self._open.__enter__()
        self._stored = self._snapshot[options.table].schema
        self._columns = schemas.wanted_columns(schema, self._stored, options.table)
        self._told = Told.of(self._snapshot, options.table, store)

    def __reduce__(self) -> tuple[type[ScanTaskReader], tuple[StructType, Told]]:
        """Pickle as what executors need."""
        return ScanTaskReader, (self._schema, self._told)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each scan task; the snapshot is let go."""
        wanted = " AND ".join(self._filters) or None
        try:
            tasks = self._snapshot.scan_tasks(self._options.table, self._columns, wanted)
            self._told.tell()
        finally:
            self._open.__exit__(None, None, None)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read here what executors read elsewhere."""
        return ScanTaskReader(self._schema, self._told).read(partition)


class PushingReader(BatchReader):
    """A read that takes filters of its query: for frames that stand in one query, once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that the store answers exactly as Spark would; return the others."""
        for each in filters:
            text = pushed(each, self._stored)
            if text is None:
                yield each
            else:
                self._filters.append(text)


class ScanTaskReader(DataSourceReader):
    """The rows of one scan task, as the batches that Spark demands."""

    def __init__(self, schema: StructType, told: Told) -> None:
        self._schema, self._told = schema, told

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; none if the table is empty.

        Raises:
            SnapshotExpiredError: The task came later than the store keeps its seq.
            UnavailableError: This machine does not see the store's path.
            SchemaMismatchError: A value that Spark cannot hold.
        """
        self._told.tell_again()
        task = partition.value
        if task is None:  # Spark plans one partition where a reader has none
            return
        assert isinstance(task, ScanTask)
        require_path(task.root)
        wanted = schemas.arrow_schema(self._schema)
        for batch in task.read():
            yield schemas.as_schema(batch, wanted)


def require_path(root: str) -> None:
    """Say what is wrong where an executor does not see the store.

    Raises:
        UnavailableError: There is no store at the path, on this machine.
    """
    if not (Path(root) / "manifest").is_dir():
        raise UnavailableError(
            f"the executor on {socket.gethostname()} sees no store at {root}; driver and executors"
            " need the same path, on a disk that they share"
        )
