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
from siltstone.spark import catalog_tables, changes, feed, stores
from siltstone.spark.application import ASK, answer
from siltstone.spark.options import (
    ChangeOptions,
    FeedOptions,
    ReadOptions,
    SinkOptions,
    WriteOptions,
    is_change_feed,
    is_feed,
)
from siltstone.spark.reader import (
    LIVE,
    BatchReader,
    LiveReader,
    PushingReader,
    describe,
    live_schema,
    seq_of,
)
from siltstone.spark.session_answers import Address
from siltstone.spark.session_zone import zone_at
from siltstone.spark.times import in_session_zone, needs_zone
from siltstone.spark.workers import one_sentence
from siltstone.spark.writer import BatchWriter, Sink


class SiltstoneSource(DataSource):
    """Tables of siltstone stores."""

    _seq: int | None = None  # as of when it was pickled; a sink is, at the first commit of a run
    _asked: Address | None = None  # once pickled with a place it keeps the answer that it got
    _zone: str | None = None  # of the session, at `load()`, where a time of the options needs it
    _frame: str | None = None  # the name of a frame whose table only its columns tell

    @classmethod
    def name(cls) -> str:
        return "siltstone"

    @one_sentence()
    def schema(self) -> StructType:
        created = catalog_tables.options_of_new(self.options)
        if created is not None:
            return self._of_new_table(created)
        if is_feed(self.options):
            return feed.describe(FeedOptions.parse(self._told(self.options)))
        if ASK in self.options:
            return answer(os.environ)
        if is_change_feed(self.options):
            schema, self._seq = changes.describe(ChangeOptions.parse(self._told(self.options)))
            return schema
        schema, seq = describe(self._read_options)
        if self._is_live:
            return live_schema(schema)
        self._seq = seq
        return schema

    @one_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        if catalog_tables.is_of_catalog(schema, self.options):
            return BatchReader(self._options_of_catalog(schema), schema)
        if is_change_feed(self.options):
            span = ChangeOptions.parse(self._told(self.options))
            if self._seq is None:  # the caller gave the columns, and something else that is wrong
                _, self._seq = changes.describe(span)
            return changes.RangeReader(span.pinned(self._seq), schema)
        options = self._read_options
        if self._is_live:
            return LiveReader(options, schema)
        if self._seq is not None:
            options = options.pinned(self._seq)
        return (PushingReader if options.is_single_use else BatchReader)(options, schema)

    def _of_new_table(self, options: Mapping[str, str]) -> StructType:
        """Return the marked columns of a new table of the catalog."""
        catalog_tables.require_driver(self._asked)
        catalog_tables.require_rows(options)
        schema, _ = describe(ReadOptions.parse(options))  # no time of this session alone
        return catalog_tables.marked(schema, options)

    def _options_of_catalog(self, schema: StructType) -> ReadOptions:
        """Return the options of a query of a table of the catalog, at the seq of its frame."""
        frame = self._frame or catalog_tables.new_frame()
        given = catalog_tables.options_at(self._asked, schema, self.options, frame)
        catalog_tables.require_rows(given)
        options = ReadOptions.parse(self._told(given))
        return options.pinned(catalog_tables.seq_at(self._asked, frame, seq_of(options)))

    def _told(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return options; times without an offset are taken in the session's zone, if known."""
        if not needs_zone(given):
            return given
        if self._zone is None and self._asked is not None:
            self._zone = zone_at(self._asked)
        return given if self._zone is None else in_session_zone(given, self._zone)

    @property
    def _is_live(self) -> bool:
        return LIVE in self.options

    @property
    def _read_options(self) -> ReadOptions:
        given = self._told(self.options)
        return ReadOptions.parse({n: text for n, text in given.items() if n != LIVE})

    @one_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        catalog_tables.refuse_write(schema, self.options)
        options = WriteOptions.parse(self.options)
        return BatchWriter.plan(options, schema, is_overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            catalog_tables.refuse_stream(schema, self.options)
            return feed.FeedReader(FeedOptions.parse(self._told(self.options)), schema)
        except SiltstoneError as error:
            return feed.RefusedReader(error)

    @one_sentence()
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        catalog_tables.refuse_write(schema, self.options)
        options = SinkOptions.parse(self.options)
        return Sink(options, schema, is_overwrite=overwrite, first_commit=self._seq or 0)

    @one_sentence()
    def __getstate__(self) -> dict[str, object]:
        """Pickle with a seq and a zone: where the caller gave a schema, Spark asked for none."""
        is_new = catalog_tables.options_of_new(self.options) is not None
        is_frame = (
            not {ASK, LIVE} & self.options.keys() and not is_feed(self.options) and not is_new
        )
        if self._seq is None and is_frame:
            try:
                self.schema()
            except RequestError:  # those of a sink; or wrong ones, which is for others to say
                with contextlib.suppress(RequestError):
                    self._seq = durable_seq(SinkOptions.parse(self.options).uri)
        with contextlib.suppress(RequestError):
            _ = self._told(self.options)
        if catalog_tables.has_place(self.options):
            return {**vars(self), "_asked": None}
        frame = self._frame or catalog_tables.new_frame()
        return {**vars(self), "_asked": self._asked, "_frame": frame}


def source_of(asked: Address) -> type[SiltstoneSource]:
    """Return the source of a session whose zone can be asked for."""
    return type("SourceOfSession", (SiltstoneSource,), {"_asked": asked})


def durable_seq(uri: str) -> int:
    """Return the last durable seq of a store, with or without an owner."""
    with stores.reader(uri) as db:
        return db.durable_seq
