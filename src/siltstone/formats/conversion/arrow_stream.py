"""Arrow stream: record batches as the bytes of one Arrow IPC stream, or several together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")


def packed(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches of `schema` as one stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def gathered(items: Iterable[T], size_of: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield batches, or what else is streamed, together: `least` or more in each list but the last.

    `size_of`: their rows, or their bytes.
    """
    held: list[T] = []
    size = 0
    for item in items:
        held.append(item)
        size += size_of(item)
        if size >= least:
            yield held
            held, size = [], 0
    if held:
        yield held
