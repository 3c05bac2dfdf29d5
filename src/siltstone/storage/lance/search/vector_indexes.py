"""Vector indexes: the encodings in Lance's words, and the options of a build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siltstone.choices import Encoding
from siltstone.storage.tables.encodings import chosen, sub_vectors_of

_TYPES: dict[Encoding, str] = {
    "flat": "IVF_FLAT",
    "sq": "IVF_SQ",
    "pq": "IVF_PQ",
    "rq": "IVF_RQ",
    "hnsw_sq": "IVF_HNSW_SQ",
    "hnsw_flat": "IVF_HNSW_FLAT",
}
_ENCODINGS: dict[str, Encoding] = {type_: encoding for encoding, type_ in _TYPES.items()}
_PARTITION_ROWS, _PARTITION_ROWS_MIN = 4096, 256
# 48 sub-vectors of 20,000 x 384 take 4.8 s of CPU, with Lance's 256 and 50 they take 16.2, and find
# as much (measured).
_PQ_SAMPLE_RATE, _PQ_ITERATIONS = 64, 10
_PQ_REFINE = 5


def of_vectors(options: Mapping[str, Any], rows: int, size: int) -> tuple[str, dict[str, Any]]:
    """Return Lance's name of a segment, and Lance's options; what `options` leave open is chosen.

    Args:
        options: Those that were declared.
        rows: How many rows the segment is of.
        size: How many numbers a vector has.
    """
    encoding: Encoding = options.get("encoding") or chosen(rows, size)
    partitions = int(options.get("partitions", max(1, rows // _PARTITION_ROWS)))
    found: dict[str, Any] = {
        "metric": str(options.get("metric", "l2")),
        "num_partitions": max(1, min(partitions, rows // _PARTITION_ROWS_MIN)),
    }
    if encoding == "pq":
        found["num_sub_vectors"] = options.get("sub_vectors") or sub_vectors_of(size)
        found |= {"sample_rate": _PQ_SAMPLE_RATE, "max_iters": _PQ_ITERATIONS}
    return _TYPES[encoding], found


def encoding_of(index_type: str) -> Encoding | None:
    """Return the encoding of an index by Lance's name of its type; None: it is of no vectors."""
    return _ENCODINGS.get(index_type)


def refine_of(index_type: str) -> int | None:
    """Return how many times k rows of an index are measured again by default; None: none."""
    return _PQ_REFINE if encoding_of(index_type) == "pq" else None
