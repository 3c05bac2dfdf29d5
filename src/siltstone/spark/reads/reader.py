"""Batch reader: one table at one seq, planned once, read by executors task by task.

describe()      the Spark schema of the table               a Python process of the driver
BatchReader     opens one snapshot, takes filters, plans    another one, for each query
LiveReader      the same at the newest seq                  the same
                all that travels to executors is in `task_rows`

A process that plans for Spark opens the store itself, and can read only the retained past, not all
that a snapshot in the driver's process keeps.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import BooleanType, StructField, StructType

from siltstone.api.snapshot import Snapshot
from siltstone.spark.context import schemas, stores
from siltstone.spark.context.application import store_of
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.context.options import ReadOptions
from siltstone.spark.context.workers import one_sentence
from siltstone.spark.reads.filters import pushed
from siltstone.spark.reads.partitions import Cut
from siltstone.spark.reads.task_rows import LIVE_COLUMN, ScanTaskReader, Told

LIVE = "live"
"""The option of a frame that each of its queries reads at the newest seq: see `LiveReader`."""


@contextmanager
def opened(options: ReadOptions, *, is_kept: bool) -> Generator[tuple[str, Snapshot]]:
    """Open a store and the snapshot of the options; return the store's identity, too.

    `is_kept`: this process keeps the store open for its next plan.
    """
    with ExitStack() as stack:
        found = kept(stores.path_of(options.uri)) if is_kept else stores.reader(options.uri)
        store = stack.enter_context(found)
        taken = store.snapshot(seq=options.seq, at=options.at, tag=options.tag)
        yield store_of(store.path, store.store_id), stack.enter_context(taken)


def describe(options: ReadOptions) -> tuple[StructType, int]:
    """Return the columns of a read, all or those in the options, and its seq.

    Raises:
        RequestError: There is no such table, column or seq, or the filter is invalid.
    """
    with opened(options, is_kept=False) as (_, snapshot):
        table = snapshot[options.table]
        table.scan(filter=options.filter, limit=0).close()
        schema, seq = table.schema, snapshot.seq
    if options.columns is not None:
        schema = pa.schema(
            [schemas.stored(name, schema, options.table) for name in options.columns]
        )
    return schemas.to_spark(schema), seq


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
        self._open = opened(options, is_kept=True)
        store, self._snapshot = self._open.__enter__()
        self._stored = self._snapshot[options.table].schema
        self._columns = schemas.wanted_columns(schema, self._stored, options.table)
        super().__init__(schema, Told.of(self._snapshot, options.table, store))

    @one_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the read; close the snapshot."""
        wanted = " AND ".join(self._filters) or None
        cut = Cut(os.cpu_count() or 1, self._options.task_rows_max)
        try:
            found = cut.partitions(self._snapshot, self._options.table, self._columns, wanted)
            self._told.tell()
        finally:
            self._open.__exit__(None, None, None)
        return [InputPartition(tasks) for tasks in found]


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


class LiveReader(BatchReader):
    """A read at the newest seq, planned again for each query of its frame.

    Spark keeps the plan of a frame, but for a query with a filter: it offers that, and takes a new
    plan. So the frame has one more column, and a filter of it that every row passes, in which Spark
    sees no tautology, because the column might have nulls.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Open the table; the last column of `schema` is the one more."""
        super().__init__(options, StructType(schema.fields[:-1]))
        self._is_live = True

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept no filter, as those accepted would be part of a plan that others may use."""
        return filters


def live_schema(schema: StructType) -> StructType:
    """Return the columns of a table and the one that `LiveReader` adds."""
    return StructType([*schema.fields, StructField(LIVE_COLUMN, BooleanType())])
