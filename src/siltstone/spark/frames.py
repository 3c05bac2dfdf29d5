"""Frames: the planned reads of a snapshot as frames, through `mapInArrow`.

    range(size / 8) ──filter: one number a task──▶ mapInArrow: the rows of the task

Spark takes the size of such a frame from what it is made of. So that is a range with as many
numbers as the rows have bytes / 8, of which a filter leaves the first number of each partition:
Spark does not count on filters in its estimates. It makes 10^9 numbers a second.

A frame is planned once, by the driver, and Spark plans no query of it anew. Its tasks travel with
the function, or, if they are large, in a broadcast.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from siltstone.errors import ClosedError
from siltstone.spark.task_rows import Told, rows_of
from siltstone.spark.workers import Sealed, one_sentence, sealed

if TYPE_CHECKING:
    from siltstone.api.tasks import ScanTask
    from siltstone.spark.partitions import Partition

WITH_FUNCTION_BYTES_MAX = 256 << 10
"""Spark itself broadcasts a function of 1 MiB, and deletes that when the application ends."""
_NUMBER_BYTES = 8

Packed: TypeAlias = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """What the tasks of a frame need; pickles.

    Args:
        name: What Spark's pages call the read: see `descriptions`.
        schema: The columns in Spark.
        told: The read to record.
        open_mark: A path on the driver's machine, there as long as the snapshot is open.
        step: How far the numbers of neighbouring tasks are apart.
        tasks: The scan tasks of each partition, pickled; perhaps a broadcast of that.
    """

    name: str
    schema: StructType
    told: Told
    open_mark: str | None
    step: int
    tasks: Packed | Broadcast[Packed]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the tasks with the numbers in `batches`.

        Raises:
            ClosedError: The snapshot is closed.
            SnapshotExpiredError, UnavailableError, SchemaMismatchError: See `rows_of`.
        """
        with one_sentence():
            tell_and_check(self.told, self.open_mark)
            packed = self.tasks.value if isinstance(self.tasks, Broadcast) else self.tasks
            for batch in batches:
                numbers: list[Any] = batch.column(0).to_pylist()
                for number in numbers:
                    for task in _unpacked(packed[number // self.step]):
                        yield from rows_of(task, self.schema)

    @property
    def __name__(self) -> str:
        """The name of the step of `mapInArrow` in Spark's plans."""
        return self.name

    def __reduce__(self) -> Sealed:
        """Pickle as what another version of siltstone refuses."""
        fields = self.name, self.schema, self.told, self.open_mark, self.step, self.tasks
        return sealed(PlannedRows, *fields)


def tell_and_check(told: Told, open_mark: str | None) -> None:
    """Record a read from its task.

    Raises:
        ClosedError: The snapshot is closed, as this process can see.
    """
    told.tell_again()
    if open_mark and told.is_near and not Path(open_mark).exists():
        raise ClosedError("the snapshot of this frame is closed; open another one")


def _unpacked(tasks: bytes) -> tuple[ScanTask, ...]:
    return pickle.loads(tasks)  # noqa: S301 - ours


def frame_of(
    spark: SparkSession,
    partitions: Sequence[Partition],
    size: int,
    rows: Callable[[int, Packed | Broadcast[Packed]], PlannedRows],
) -> tuple[DataFrame, Broadcast[Packed] | None]:
    """Return partitions as a frame of about `size` bytes, and the broadcast to destroy in the end.

    Args:
        spark: The session.
        partitions: The tasks.
        size: What the rows have in Spark, in bytes.
        rows: Makes what tasks need, of the step between their numbers, and of the tasks.
    """
    packed = tuple(pickle.dumps(tasks) for tasks in partitions) or (pickle.dumps(()),)
    shared = broadcast_of(spark, packed)
    step = max(1, size // _NUMBER_BYTES // len(packed))
    work = rows(step, packed if shared is None else shared)
    numbers = spark.range(0, step * len(packed), 1, len(packed)).where(f"id % {step} = 0")
    return numbers.mapInArrow(work, work.schema), shared


def broadcast_of(
    spark: SparkSession, packed: Packed, functions: int = 1
) -> Broadcast[Packed] | None:
    """Return a broadcast of tasks; None: they travel with so many functions, or have to."""
    if functions * sum(map(len, packed)) <= WITH_FUNCTION_BYTES_MAX:
        return None
    try:
        return spark.sparkContext.broadcast(packed)
    except (PySparkException, AttributeError):  # a client of Spark Connect has no broadcasts
        return None
