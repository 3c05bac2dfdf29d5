"""What a process of its own does with scan tasks: it knows nothing but their bytes."""

from __future__ import annotations

import pickle

import pyarrow as pa


def read(pickled: bytes) -> bytes:
    """Read a task; return its rows as Arrow IPC."""
    task = pickle.loads(pickled)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, task.schema) as writer:
        for batch in task.read():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
