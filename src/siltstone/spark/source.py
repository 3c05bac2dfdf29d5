"""Source: the format "siltstone" of Spark's Python Data Source API; it dispatches to the modules.

Spark creates it in a Python process of its own, requests the schema, and keeps it pickled together
with the seq, so that a frame has one seq from `load()` on, however often and wherever it is used.
Another process plans each query from that pickle.
"""

from __future__ import annotations

import contextlib
import os

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from siltstone.errors import RequestError
from siltstone.spark import feed, stores
from siltstone.spark.application import ASK, answer
from siltstone.spark.options import FeedOptions, ReadOptions, SinkOptions, WriteOptions, is_feed
from siltstone.spark.reader import (
    PLAN,
    BatchReader,
    Plan,
    PlannedReader,
    PushingReader,
    describe,
)
from siltstone.spark.writer import BatchWriter, Sink


class SiltstoneSource(DataSource):
    """Tables of siltstone stores."""

    _seq: int | None = None  # as of when it was pickled; a sink is, at the first commit of a run

    @classmethod
    def name(cls) -> str:
        return "siltstone"

    def schema(self) -> StructType:
        if is_feed(self.options):
            return feed.describe(FeedOptions.parse(self.options))
        if ASK in self.options:
            return answer(os.environ)
        if PLAN in self.options:
            return Plan.load(self.options[PLAN]).schema
        schema, self._seq = describe(ReadOptions.parse(self.options))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        if PLAN in self.options:
            return PlannedReader(Plan.load(self.options[PLAN]))
        options = ReadOptions.parse(self.options)
        if self._seq is not None:
            options = options.pinned(self._seq)
        return (PushingReader if options.is_single_use else BatchReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = WriteOptions.parse(self.options)
        return BatchWriter.plan(options, schema, is_overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return feed.FeedReader(FeedOptions.parse(self.options), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        options = SinkOptions.parse(self.options)
        return Sink(options, schema, is_overwrite=overwrite, first_commit=self._seq or 0)

    def __getstate__(self) -> dict[str, object]:
        """Pickle with a seq: where the caller gave a schema, nobody asked for one."""
        is_frame = not {ASK, PLAN} & self.options.keys() and not is_feed(self.options)
        if self._seq is None and is_frame:
            try:
                self.schema()
            except RequestError:  # those of a sink; or wrong ones, which is for others to say
                with contextlib.suppress(RequestError):
                    self._seq = durable_seq(SinkOptions.parse(self.options).uri)
        return vars(self)


def durable_seq(uri: str) -> int:
    """Return the last durable seq of a store, with or without an owner."""
    with stores.reader(uri) as db:
        return db.durable_seq
