"""Arrow stream: record batches as the bytes of one Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def packed(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches of `schema` as one stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
