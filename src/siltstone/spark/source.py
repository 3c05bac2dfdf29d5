"""Source: the format "siltstone" of Spark's Python Data Source API; it only takes things apart.

Spark makes it in a Python process of its own, asks for the schema, and keeps it pickled: with it
the seq, so that a frame has one seq from `load()` on, however often and wherever it is used. Each
query is planned from that pickle in yet another process.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from siltstone.spark.options import ReadOptions
from siltstone.spark.reader import BatchReader, PushingReader, describe


class SiltstoneSource(DataSource):
    """Tables of siltstone stores."""

    _seq: int | None = None

    @classmethod
    def name(cls) -> str:
        return "siltstone"

    def schema(self) -> StructType:
        schema, self._seq = describe(ReadOptions.parse(self.options))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        if self._seq is not None:
            options = options.pinned(self._seq)
        return (PushingReader if options.is_single_use else BatchReader)(options, schema)

    def __getstate__(self) -> dict[str, object]:
        """Pickle with a seq: where the caller gave a schema, nobody asked for one."""
        if self._seq is None:
            self.schema()
        return vars(self)
