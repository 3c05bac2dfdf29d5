"""Descriptions: what Spark's pages say of a read and of siltstone's own jobs.

    a read of a catalog     what it says of itself in the plan of each query
    a job of siltstone      the job's description, unless the caller has set one; and the name of
                            its step

The step of a `mapInArrow` is called as its function.
A client of Spark Connect cannot describe jobs.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from siltstone.api.tasks import ScanTask
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context.application import context_of

_PROPERTY = "spark.job.description"


def name_of_read(
    snapshot: LocalSnapshot, table: str, tasks: Sequence[ScanTask], newest: int
) -> str:
    """Return what a read of a table is called, with the number of its files and rows.

    `tasks`: those of a scan of all rows. `newest`: the newest seq of the store.
    """
    above = sum(task.rows for task in tasks if task.is_above_base)
    counts = [
        _count(snapshot[table].files_of(tasks), "file"),
        _count(sum(task.rows for task in tasks), "row"),
        f"{above:,} above base",
    ]
    if newest > snapshot.seq:
        counts.append(_count(newest - snapshot.seq, "commit") + " behind")
    return f"{table} at seq {snapshot.seq}: {', '.join(counts)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


@contextmanager
def described(spark: SparkSession, text: str) -> Generator[None]:
    """Describe the jobs that this thread runs in the block, unless the caller describes its own."""
    context = context_of(spark)
    if context is None or context.getLocalProperty(_PROPERTY):
        yield
        return
    context.setLocalProperty(_PROPERTY, text)
    try:
        yield
    finally:
        context.setLocalProperty(_PROPERTY, None)  # pyright: ignore[reportArgumentType] - unset
