"""Source: the format "siltstone" of Spark's Python Data Source API; it dispatches to the modules.

Spark creates it in its own Python process, requests the schema, and keeps it pickled together
with the seq, so that a frame has one seq from `load()` on, however often and wherever it is used.
Another process plans each query from that pickle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from siltstone.errors import RequestError, SiltstoneError
from siltstone.spark.context import stores
from siltstone.spark.context.application import ASK, answer
from siltstone.spark.context.options import (
    ChangeOptions,
    FeedOptions,
    ReadOptions,
    SinkOptions,
    WriteOptions,
    is_change_feed,
    is_feed,
)
from siltstone.spark.context.workers import one_sentence
from siltstone.spark.reads.reader import (
    LIVE,
    BatchReader,
    LiveReader,
    PushingReader,
    describe,
    live_schema,
)
from siltstone.spark.streams import changes, feed
from siltstone.spark.writes.writer import BatchWriter, Sink

# Spark adds them to the options of a table that its own catalog is to keep.
_OF_NEW_TABLE = frozenset({"owner", "provider"})


class SiltstoneSource(DataSource):
    """Tables of siltstone stores."""

    _seq: int | None = None  # as of when it was pickled; a sink is, at the first commit of a run

    @classmethod
    def name(cls) -> str:
        return "siltstone"

    @one_sentence()
    def schema(self) -> StructType:
        _refuse_table_of_spark(self.options)
        if is_feed(self.options):
            return feed.describe(FeedOptions.parse(self.options))
        if ASK in self.options:
            return answer(os.environ)
        if is_change_feed(self.options):
            schema, self._seq = changes.describe(ChangeOptions.parse(self.options))
            return schema
        schema, seq = describe(self._read_options)
        if self._is_live:
            return live_schema(schema)
        self._seq = seq
        return schema

    @one_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        if is_change_feed(self.options):
            span = ChangeOptions.parse(self.options)
            if self._seq is None:  # the caller gave the columns, and something else that is wrong
                _, self._seq = changes.describe(span)
            return changes.RangeReader(span.pinned(self._seq), schema)
        options = self._read_options
        if self._is_live:
            return LiveReader(options, schema)
        if self._seq is not None:
            options = options.pinned(self._seq)
        return (PushingReader if options.is_single_use else BatchReader)(options, schema)

    @property
    def _is_live(self) -> bool:
        return LIVE in self.options

    @property
    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse({n: text for n, text in self.options.items() if n != LIVE})

    @one_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = WriteOptions.parse(self.options)
        return BatchWriter.plan(options, schema, is_overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            return feed.FeedReader(FeedOptions.parse(self.options), schema)
        except SiltstoneError as error:
            return feed.RefusedReader(error)

    @one_sentence()
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        options = SinkOptions.parse(self.options)
        return Sink(options, schema, is_overwrite=overwrite, first_commit=self._seq or 0)

    @one_sentence()
    def __getstate__(self) -> dict[str, object]:
        """Pickle with a seq: where the caller gave a schema, Spark asked for none."""
        is_frame = not {ASK, LIVE} & self.options.keys() and not is_feed(self.options)
        if self._seq is None and is_frame:
            try:
                self.schema()
            except RequestError:  # those of a sink; or wrong ones, which is for others to say
                with contextlib.suppress(RequestError):
                    self._seq = durable_seq(SinkOptions.parse(self.options).uri)
        return vars(self)


def _refuse_table_of_spark(given: Mapping[str, str]) -> None:
    """Refuse `CREATE TABLE .. USING siltstone` in Spark's own catalog: no query would know more.

    Raises:
        RequestError: It is that.
    """
    if given.keys() >= _OF_NEW_TABLE:
        raise RequestError(
            "Spark's own catalog keeps no table of a store: give the store a catalog of its own,"
            ' session(stores={"shop": "/data/shop"}), and read shop.orders; or use'
            " CREATE TEMPORARY VIEW .. USING siltstone OPTIONS (uri '..', table '..')"
        )


def durable_seq(uri: str) -> int:
    """Return the last durable seq of a store, with or without an owner."""
    with stores.reader(uri) as db:
        return db.durable_seq
