"""Raw Lance through the same Python data source API: what the API alone costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


@dataclass
class Part(InputPartition):
    number: int


class RawLance(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rawlance"

    def schema(self) -> str:
        return str(self.options["schema"])

    def reader(self, schema: StructType) -> RawLanceReader:
        return RawLanceReader(dict(self.options), schema)


class RawLanceReader(DataSourceReader):
    def __init__(self, options: dict[str, Any], schema: StructType) -> None:
        import lance

        self.path, self.columns = options["path"], [f.name for f in schema.fields]
        self.parts = len(lance.dataset(self.path).get_fragments())
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return [Part(number) for number in range(self.parts)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        import lance
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self.schema, timezone="UTC")
        fragment = lance.dataset(self.path).get_fragments()[partition.number]
        for batch in fragment.to_batches(columns=self.columns):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)
