"""Local rows: few rows that the driver's JVM gets whole, as an Arrow stream, with their types."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from siltstone.spark.context import schemas


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows as Spark has them: a schema of Spark, JSON, and an Arrow stream."""

    schema: str
    stream: bytes

    @classmethod
    def of(cls, rows: pa.Table) -> LocalRows:
        """Return rows in the types that Spark has for their columns.

        Raises:
            SchemaMismatchError: Spark has no type for a column, or cannot hold a value.
        """
        schema = schemas.to_spark(rows.schema)
        wanted = schemas.arrow_schema(schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, wanted) as stream:
            for batch in rows.combine_chunks().to_batches():
                stream.write_batch(schemas.as_schema(batch, wanted))
        return cls(schema.json(), sink.getvalue().to_pybytes())
