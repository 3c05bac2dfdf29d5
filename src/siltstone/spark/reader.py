"""Batch reader: one table at one seq, planned once, read by executors task by task.

describe()      the Spark schema of the table               a Python process of the driver
BatchReader     opens one snapshot, takes filters, plans    another one, for each query
ScanTaskReader  all that travels to executors: the schema   executors
PlannedReader   a plan that the driver has made itself      one of the first two

A process that plans for Spark opens the store itself, and can read only the retained past, not all
that a snapshot in the driver's process keeps. So a snapshot plans its own reads and leaves them in
a file on the driver's machine, where those processes run; the internal option `plan` names the
file.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from siltstone import malloc
from siltstone.api.snapshot import Snapshot
from siltstone.api.tasks import ChangeTask, ScanTask
from siltstone.errors import ClosedError, UnavailableError
from siltstone.spark import application, schemas, stores
from siltstone.spark.application import Application, Read, store_of
from siltstone.spark.filters import pushed
from siltstone.spark.options import ReadOptions

PLAN = "plan"


@contextmanager
def opened(options: ReadOptions) -> Generator[tuple[str, Snapshot]]:
    """Open a store and the snapshot of the options; return the store's identity, too."""
    with (
        stores.reader(options.uri) as store,
        store.snapshot(seq=options.seq, at=options.at, tag=options.tag) as snapshot,
    ):
        yield store_of(store.path, store.store_id), snapshot


def describe(options: ReadOptions) -> tuple[StructType, int]:
    """Return the columns of a read, all or those in the options, and its seq.

    Raises:
        RequestError: There is no such table, column or seq, or the filter is invalid.
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
    """The rows of one scan task, as the batches that Spark demands; all that executors need."""

    def __init__(self, schema: StructType, told: Told) -> None:
        self._schema, self._told = schema, told

    def __reduce__(self) -> tuple[type[ScanTaskReader], tuple[StructType, Told]]:
        """Pickle as what executors need, whatever planned the read."""
        return ScanTaskReader, (self._schema, self._told)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; none if the table is empty.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq of the task.
            UnavailableError: This machine does not see the store's path.
            SchemaMismatchError: Spark cannot hold a value.
        """
        self._told.tell_again()
        task = partition.value
        if task is None:  # Spark plans one partition where a reader has none
            return
        assert isinstance(task, ScanTask)
        yield from rows_of(task, self._schema)


class BatchReader(ScanTaskReader):
    """Plans one read of one table, in the planning process."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Open the table and hold it against the schema that the query was made for.

        Raises:
            SchemaMismatchError: The caller's own schema does not fit the table.
        """
        self._options = options
        # The filter may end in a comment.
        self._filters = [] if options.filter is None else [f"({options.filter}\n)"]
        self._open = opened(options)
        store, self._snapshot = self._open.__enter__()
        self._stored = self._snapshot[options.table].schema
        self._columns = schemas.wanted_columns(schema, self._stored, options.table)
        super().__init__(schema, Told.of(self._snapshot, options.table, store))

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each scan task; close the snapshot."""
        wanted = " AND ".join(self._filters) or None
        try:
            tasks = self._snapshot.scan_tasks(self._options.table, self._columns, wanted)
            self._told.tell()
        finally:
            self._open.__exit__(None, None, None)
        return [InputPartition(task) for task in tasks]


class PushingReader(BatchReader):
    """A read that accepts filters of its query: for frames that occur in one query, once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept the filters that the store answers exactly as Spark would; return the others."""
        for each in filters:
            text = pushed(each, self._stored)
            if text is None:
                yield each
            else:
                self._filters.append(text)


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns of a read, its tasks, and the read to record."""

    schema: StructType
    tasks: tuple[ScanTask, ...]
    read: Read

    def save(self, path: Path) -> None:
        """Write the plan to a file that only this user reads."""
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: str) -> Plan:
        """Return the plan at `path`.

        Raises:
            ClosedError: The snapshot is closed, its plans are deleted.
        """
        try:
            return pickle.loads(Path(path).read_bytes())  # noqa: S301 - `save` wrote it
        except FileNotFoundError:
            raise ClosedError("the snapshot of this frame is closed; open another one") from None


class PlannedReader(ScanTaskReader):
    """A plan as a reader of Spark's API."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.schema, Told(plan.read, application.of_process(os.environ)))
        self._tasks = plan.tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each scan task."""
        self._told.tell()
        return [InputPartition(task) for task in self._tasks]


def rows_of(task: ScanTask | ChangeTask, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as Spark wants them, if this machine sees the store."""
    require_path(task.root)
    malloc.bound()  # a worker's process is Spark's, and stays for the next tasks
    wanted = schemas.arrow_schema(schema)
    for batch in task.read():
        yield schemas.as_schema(batch, wanted)


def require_path(root: str) -> None:
    """Check that this machine sees the store.

    Raises:
        UnavailableError: There is no store at the path, on this machine.
    """
    if not (Path(root) / "manifest").is_dir():
        raise UnavailableError(
            f"the executor on {socket.gethostname()} sees no store at {root}; driver and executors"
            " need the same path, on a disk that they share"
        )
