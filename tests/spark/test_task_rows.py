"""Rows of tasks reach Spark whatever their batches are like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.spark.context.schemas import to_spark
from siltstone.spark.reads.task_rows import rows_of

GIB = 1 << 30


@dataclass(frozen=True)
class Task:
    """A task whose rows are in hand."""

    root: str
    batch: pa.RecordBatch

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.batch


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()])
@pytest.mark.parametrize("first", [0, 2])
def test_texts_of_more_than_two_gib_come_in_several_batches(
    tmp_path: Path, kind: pa.DataType, first: int
) -> None:
    """Spark's texts and binaries have at most 2 GiB in a batch, a store's large ones have more."""
    st.connect(tmp_path / "s").close()
    ends = pa.py_buffer(np.array([0, GIB - 5, 2 * GIB - 9, 3 * GIB - 14], np.int64))
    zeros = pa.py_buffer(
        np.zeros(3 * GIB, np.uint8)
    )  # pages that nobody has written take no memory
    texts: Any = pa.Array.from_buffers(kind, 3, [None, ends, zeros])
    batch = pa.record_batch([texts], ["s"]).slice(first)
    task: Any = Task(str(tmp_path / "s"), batch)
    sizes: list[int] = []
    for found in rows_of(task, to_spark(batch.schema)):
        assert not pa.types.is_large_string(found.schema.types[0])
        sizes += [len(value.as_buffer()) for value in found["s"]]
    assert sizes == [GIB - 5, GIB - 4, GIB - 5][first:]
