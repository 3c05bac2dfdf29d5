"""Maintenance on Spark: the driver plans and publishes, executors write; no owner is needed.

    plan on the newest record ─▶ one Spark task for each piece of work ─▶ one publish

Nothing names the files of a task before the publish, so a task that Spark runs twice, or that dies,
leaves garbage for vacuum. If another process publishes first, the driver plans again; see
`maintenance.merge.merge` and `maintenance.compaction.optimize`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from siltstone import malloc
from siltstone.admin import TARGET_ROWS, Deferred, Merged, Optimized, merge_store, optimize_store
from siltstone.spark import stores
from siltstone.spark.descriptions import described

R_co = TypeVar("R_co", covariant=True)
_RESULT = pa.schema([("id", pa.int64()), ("result", pa.binary())])


class _Task(Protocol[R_co]):
    def run(self, path: str) -> R_co: ...


def merge(
    spark: SparkSession, uri: str | os.PathLike[str], table: str | None = None
) -> Merged | Deferred:
    """Merge the flushed rows of one table, or of all, into their bases; Spark writes the rows.

    Args:
        spark: A session whose executors see the path of the store.
        uri: The store, with or without a live owner.
        table: One table. Default: all tables, at one seq.

    Raises:
        RequestError, TableNotFoundError: The store or the table does not exist.
        UnavailableError, CorruptionError: A file cannot be read or written; nothing was changed.
    """
    path = stores.path_of(uri)
    name = f"siltstone: merge {_named(path, table)}"
    return merge_store(path, table, execute=partial(_spread, spark, path, name))


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    table: str | None = None,
    *,
    target_rows: int = TARGET_ROWS,
) -> Optimized | Deferred:
    """Rewrite small files of one table, or of all, as large ones, on Spark.

    Args:
        spark: A session whose executors see the path of the store.
        uri: The store, with or without a live owner.
        table: One table. Default: all tables, in one publish.
        target_rows: The target number of rows in a file.

    Raises:
        RequestError, TableNotFoundError: The store or the table does not exist.
        UnavailableError, CorruptionError: A file cannot be read or written; nothing was changed.
    """
    path = stores.path_of(uri)
    execute = partial(_spread, spark, path, f"siltstone: optimize {_named(path, table)}")
    return optimize_store(path, table, target_rows=target_rows, execute=execute)


def _named(path: str, table: str | None) -> str:
    return f"all tables of {path}" if table is None else f"{table} of {path}"


def _spread(
    spark: SparkSession, path: str, name: str, tasks: Sequence[_Task[R_co]]
) -> Iterable[R_co]:
    """Run each task in a Spark task of its own; return the results in the order of the tasks."""
    if not tasks:
        return []
    packed = [pickle.dumps(task) for task in tasks]

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        malloc.bound()
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                result = pickle.loads(packed[number]).run(path)  # noqa: S301 - ours, made above
                one = {"id": number, "result": pickle.dumps(result)}
                yield pa.RecordBatch.from_pylist([one], _RESULT)

    work.__name__ = name
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    with described(spark, name):
        rows: list[Any] = numbers.mapInArrow(work, "id long, result binary").collect()  # pyright: ignore[reportArgumentType]
    found = {row["id"]: bytes(row["result"]) for row in rows}
    return [pickle.loads(found[number]) for number in range(len(tasks))]  # noqa: S301
