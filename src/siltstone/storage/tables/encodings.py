"""Encodings: how an index keeps vectors, and what is chosen by default. Pure.

    flat        the vectors as they are
    sq          one byte a number
    rq          about five bits a number, of the vector turned round; its size is a multiple of 8
    pq          one byte for some numbers together; what it finds is measured again
    hnsw_*      a graph in each partition, of vectors as they are or with one byte a number

Figures: adr 0058.
"""

from __future__ import annotations

from siltstone.choices import Encoding

FLAT_BYTES_MAX = 16 << 20
RQ_SIZE_UNIT, _RQ_SIZE_MIN = 8, 128
_SUB_VECTOR_SIZES = (8, 7, 6, 5, 4, *range(9, 17))


def chosen(rows: int, size: int) -> Encoding:
    """Return the encoding of so many vectors with so many numbers, by default.

    The smaller a large index is, the less of it leaves Lance's cache. `pq` and the graphs take too
    long to build, and find no more.
    """
    if 4 * rows * size <= FLAT_BYTES_MAX:
        return "flat"
    return "rq" if size >= _RQ_SIZE_MIN and fits_rq(size) else "sq"


def fits_rq(size: int) -> bool:
    """Return whether vectors with so many numbers can be encoded as `rq`."""
    return not size % RQ_SIZE_UNIT


def sub_vectors_of(size: int) -> int | None:
    """Return how many sub-vectors `pq` makes of a vector; None: no fair number divides its size."""
    if size < min(_SUB_VECTOR_SIZES):
        return size
    return next((size // each for each in _SUB_VECTOR_SIZES if not size % each), None)
