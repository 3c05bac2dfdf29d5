"""The rows: 5 columns, made with numpy from a seed, in files of a million."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("k", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)
FILE_ROWS = 1_000_000
_EPOCH_US = 1_700_000_000_000_000


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    """Return one row for each id."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 100_000, len(ids))
    return pa.table(
        [
            pa.array(ids),
            pa.array(random.random(len(ids))),
            pa.array((ids % 1000).astype(np.int32)),
            pa.DictionaryArray.from_arrays(
                pa.array(numbers % 1000), pa.array([f"name {n}" for n in range(1000)])
            ).cast(pa.string()),
            pa.array(_EPOCH_US + numbers, pa.timestamp("us", tz="UTC")),
        ],
        schema=SCHEMA,
    )


def files(count: int, seed: int = 1, file_rows: int = FILE_ROWS) -> Iterator[pa.Table]:
    """Yield the rows 0 to `count` - 1, shuffled within each file."""
    random = np.random.default_rng(seed)
    for start in range(0, count, file_rows):
        ids = np.arange(start, min(start + file_rows, count))
        random.shuffle(ids)
        yield rows(ids, seed + start)


def write_parquet(folder: Path, tables: Iterator[pa.Table]) -> Path:
    """Write one Parquet file a table."""
    folder.mkdir(parents=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number:05}.parquet")
    return folder
