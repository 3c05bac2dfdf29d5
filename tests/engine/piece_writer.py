"""What a process of its own does with a stage task: it knows nothing but its bytes."""

from __future__ import annotations

import pickle

import pyarrow as pa


def write(pickled: bytes, low: int) -> bytes:
    """Write ten rows from `low` on; return the piece."""
    stage = pickle.loads(pickled)
    rows = pa.record_batch({"id": list(range(low, low + 10)), "amount": [3] * 10})
    return pickle.dumps(stage.run(rows))


def write_all(pickled: bytes, rows: pa.Table) -> bytes:
    """Write the rows; return the piece."""
    return pickle.dumps(pickle.loads(pickled).run(rows))
