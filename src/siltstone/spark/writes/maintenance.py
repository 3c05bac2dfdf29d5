"""Maintenance on Spark: the driver plans and publishes, executors write; no owner is needed.

    plan on the newest record ─▶ one Spark task for each piece of work ─▶ one publish

Nothing names the files of a task before the publish, so a task that Spark runs twice, or that dies,
leaves garbage for vacuum. If another process publishes first, the driver plans again; see
`maintenance.merge.merge`, `maintenance.compaction.optimize` and `maintenance.index.indexer`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siltstone import admin
from siltstone.errors import UnavailableError
from siltstone.process import malloc
from siltstone.spark.context import stores
from siltstone.spark.context.descriptions import described

R_co = TypeVar("R_co", covariant=True)
_RESULT = pa.schema([("id", pa.int64()), ("result", pa.binary())])


class _Task(Protocol[R_co]):
    def run(self, path: str) -> R_co: ...


def merge(
    spark: SparkSession, uri: str | os.PathLike[str], table: str | None = None
) -> admin.Merged | admin.Deferred:
    """Merge the flushed rows of one table, or of all, into their bases; Spark writes the rows.

    Indexes that then lack many rows get segments, which Spark builds, too. If that fails, the merge
    stays, a warning says so, and the next optimize or `index` builds them.

    Args:
        spark: A session whose executors see the path of the store.
        uri: The store, with or without a live owner.
        table: One table. Default: all tables, at one seq.

    Raises:
        RequestError, TableNotFoundError: The store or the table does not exist.
        UnavailableError, CorruptionError: A file cannot be read or written; nothing was changed.
    """
    path = stores.path_of(uri)
    named = _named(path, table)
    return admin.merge_store(
        path,
        table,
        execute=partial(_spread, spark, path, f"siltstone: merge {named}"),
        build=partial(_spread_late, spark, path, f"siltstone: index {named}"),
    )


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    table: str | None = None,
    *,
    target_rows: int = admin.TARGET_ROWS,
) -> admin.Optimized | admin.Deferred:
    """Rewrite small files of one table, or of all, as large ones, on Spark.

    It builds what indexes lack, too: of a large table in up to four tasks for each index.

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
    named = _named(path, table)
    return admin.optimize_store(
        path,
        table,
        target_rows=target_rows,
        execute=partial(_spread, spark, path, f"siltstone: optimize {named}"),
        build=partial(_spread, spark, path, f"siltstone: index {named}"),
    )


def index(
    spark: SparkSession, uri: str | os.PathLike[str], table: str | None = None
) -> admin.CaughtUp | admin.Deferred:
    """Build what the indexes of one table, or of all, lack, on Spark; rewrite no rows.

    A large index is shared out, as by `optimize`. One that cannot be built over the present rows is
    skipped, with a warning.

    Args:
        spark: A session whose executors see the path of the store.
        uri: The store, with or without a live owner.
        table: One table. Default: all tables, in one publish. Plain tables have no such indexes.

    Raises:
        RequestError, TableNotFoundError: The store or the table does not exist.
        UnavailableError, CorruptionError: A file cannot be read or written; nothing was changed.
    """
    path = stores.path_of(uri)
    name = f"siltstone: index {_named(path, table)}"
    return admin.index_store(path, table, build=partial(_spread, spark, path, name))


def _spread_late(
    spark: SparkSession, path: str, name: str, tasks: Sequence[_Task[R_co]]
) -> Iterable[R_co]:
    """Spread tasks that follow a publish, which stays if they fail: an error that it expects."""
    try:
        return _spread(spark, path, name, tasks)
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(f"Spark did not build the indexes: {error}") from error


def _named(path: str, table: str | None) -> str:
    return f"all tables of {path}" if table is None else f"{table} of {path}"


def _spread(
    spark: SparkSession, path: str, name: str, tasks: Sequence[_Task[R_co]]
) -> Iterable[R_co]:
    """Run each task in its own Spark task; return the results in the order of the tasks."""
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
