"""Nearest: a join of a frame with the rows of a table that are nearest to a vector of each row.

Executors search: each task opens the store at the seq of the snapshot, and asks for the rows of its
own vectors, as many at once as one search takes. So they need the path of the store, and can read
only what its retention keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from siltstone.local.snapshot import table_at
from siltstone.process import malloc
from siltstone.spark.context import schemas
from siltstone.spark.reads.task_rows import require_path

_VECTORS_MAX = 256
_RANKED_MAX = 100_000
"""Queries times rows of one search."""


@dataclass(frozen=True, slots=True)
class NearestRows:
    """What a task needs; pickles. `place`: the arguments of `table_at`.

    Args:
        place: The table, for another process.
        vector: The column of the frame with the vectors.
        options: The arguments of `Table.search`.
        schema: The columns of the answer: those of the frame, of the table, `_distance`.
    """

    place: tuple[Any, ...]
    vector: str
    options: Mapping[str, Any]
    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the frame, each with those that are nearest to its vector.

        Raises:
            UnavailableError: This machine does not see the store's path.
            SnapshotExpiredError: The store no longer keeps the seq.
            RequestError: A vector does not fit the column.
        """
        require_path(self.place[0])
        malloc.bound()  # as for `rows_of`
        table = table_at(*self.place)
        wanted = schemas.arrow_schema(self.schema)
        most = max(1, min(_VECTORS_MAX, _RANKED_MAX // self.options["k"]))
        for batch in batches:
            rows = batch.filter(batch.column(self.vector).is_valid())
            for start in range(0, rows.num_rows, most):
                asked = rows.slice(start, most)
                vectors: Any = asked.column(self.vector).to_pylist()
                found = table.search(vectors, **self.options).to_arrow()
                yield from _beside(asked, found, wanted)


def _beside(asked: pa.RecordBatch, found: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that were found, behind the columns of those that asked for them."""
    left = pa.Table.from_batches([asked]).take(pc.cast(found.column("_query"), pa.int64()))
    right = found.drop_columns(["_query"])
    names = [*left.column_names, *right.column_names]
    whole = pa.Table.from_arrays([*left.columns, *right.columns], names)
    for batch in whole.combine_chunks().to_batches():
        yield schemas.as_schema(batch, schema)
