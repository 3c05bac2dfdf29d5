"""Row vectors: the vectors of row versions above base as matrices, for searches in memory.

    block    consecutive rows of an `Origin`: one column as a matrix, and the square of each length;
             or a column of texts as numbers of words, see `row_texts`

The blocks of an origin are kept with it, by the id of the column, and go when it goes. So a commit
costs a search its own rows; a checkpoint, which makes a memtable history, costs nothing. Blocks of
like size are joined: few products of matrices instead of many.

All values are immutable. Two readers may both read the rows that are new to them: one of the equal
results is kept. No lock but that of the set of origins, which cannot be iterated while it grows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.origin import Origin, RowBlock
from siltstone.engine.levels.overlay import Lives
from siltstone.units import require

_JOINED_ROWS_MAX = 65_536
_JOINED_BYTES_MAX = 64 << 20


OneBlock = TypeVar("OneBlock", bound=RowBlock)


class VectorBlock(msgspec.Struct, frozen=True, eq=False):
    """The vectors of the rows from ordinal `start` of an origin on.

    `matrix` has a row each: float32 (of halves, too), float64 or uint8. `squares` are the squares
    of their lengths, NaN for a row that no search finds: it has no vector, or a NaN in it.
    """

    start: int
    matrix: np.ndarray
    squares: np.ndarray

    @property
    def end(self) -> int:
        """One above the ordinal of the last row."""
        return self.start + len(self.squares)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.matrix.nbytes + self.squares.nbytes

    def upto(self, end: int) -> VectorBlock:
        """Return the rows with an ordinal below `end`."""
        count = end - self.start
        if count >= len(self.squares):
            return self
        return VectorBlock(self.start, self.matrix[:count], self.squares[:count])

    def followed_by(self, other: VectorBlock) -> VectorBlock:
        """Return both as one; `other` has the next rows."""
        matrix = np.concatenate((self.matrix, other.matrix))
        return VectorBlock(self.start, matrix, np.concatenate((self.squares, other.squares)))


class FreshVectors:
    """The vectors and texts above base that the searches of one store keep. Any thread."""

    __slots__ = ("_bytes_left", "_noting", "_origins")

    def __init__(self, bytes_left: Callable[[], int] = lambda: 0) -> None:
        self._bytes_left = bytes_left
        self._noting = threading.Lock()
        self._origins: weakref.WeakSet[Origin] = weakref.WeakSet()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        with self._noting:
            origins = [*self._origins]
        return sum(origin.nbytes for origin in origins)

    def blocks(
        self,
        level: Lives,
        index: int,
        table_schema: TableSchema,
        column: str,
        name: object,
        make: Callable[[pa.Array, int], OneBlock],
    ) -> Iterator[OneBlock]:
        """Yield a column of one part of a level, in order; rows new to it are read, and kept.

        What has no room is read anew by each search.

        Args:
            level: The level.
            index: Which of its parts.
            table_schema: The columns as the reader shows them.
            column: The name of one.
            name: What the blocks are kept by.
            make: Makes a block of some values, the first of which has that ordinal.
        """
        part, origin = level.parts[index], level.parts[index].origin
        known = cast("tuple[OneBlock, ...]", origin.blocks.get(name, ()))
        end = known[-1].end if known else 0
        for block in known:
            if block.start < part.rows:
                yield block.upto(part.rows)
        if end >= part.rows:
            return
        more: list[OneBlock] = []
        left = self._bytes_left()
        for array in _read(level, index, end, table_schema, column):
            block = make(array, end)
            end, left = block.end, left - 2 * block.nbytes  # joined, there are two for a moment
            yield block
            more = [*more, block] if left >= 0 else []
        require(end == part.rows, f"a level has {end} rows of column {column}, not {part.rows}")
        if left >= 0:
            with self._noting:
                self._origins.add(origin)
                origin.blocks = {**origin.blocks, name: joined(known, more)}


def _read(
    level: Lives, index: int, start: int, table_schema: TableSchema, column: str
) -> Iterator[pa.Array]:
    """Yield a column of the rows of a part from ordinal `start` on, deletes included."""
    parts = level.parts
    wanted = np.zeros(sum(part.rows for part in parts), bool)
    before = sum(part.rows for part in parts[:index])
    wanted[before + start : before + parts[index].rows] = True
    for batch in level.source.rows_kept(parts, pa.array(wanted), table_schema, [column]):
        yield batch.column(0)


def block_of(array: pa.Array, start: int) -> VectorBlock:
    """Return a column of vectors as a block. A null within a vector counts as 0, as for Lance."""
    vectors = cast("pa.FixedSizeListArray", array)
    size = vectors.type.list_size
    values: Any = vectors.values.slice(vectors.offset * size, len(vectors) * size)
    if values.null_count:
        values = values.fill_null(0)
    flat: np.ndarray = values.to_numpy(zero_copy_only=False)
    if flat.dtype == np.float16:
        flat = flat.astype(np.float32)
    matrix = flat.reshape(len(vectors), size)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squares_of(matrix)
    if vectors.null_count:
        squares[~vectors.is_valid().to_numpy(zero_copy_only=False)] = np.nan
    return VectorBlock(start, matrix, squares)


def squares_of(matrix: np.ndarray) -> np.ndarray:
    """Return the square of the length of each row."""
    floats = matrix.astype(np.float32) if matrix.dtype == np.uint8 else matrix
    return np.einsum("ij,ij->i", floats, floats)


def joined(known: Sequence[OneBlock], more: Iterable[OneBlock]) -> tuple[OneBlock, ...]:
    """Return adjacent blocks, those of like size as one: each row is copied a few times at most."""
    blocks = [*known]
    for block in more:
        blocks.append(block)
        while len(blocks) > 1 and _are_alike(blocks[-2], blocks[-1]):
            blocks[-2:] = [blocks[-2].followed_by(blocks[-1])]
    return tuple(blocks)


def _are_alike(one: RowBlock, other: RowBlock) -> bool:
    rows, nbytes = other.end - one.start, one.nbytes + other.nbytes
    is_small = rows <= _JOINED_ROWS_MAX and nbytes <= _JOINED_BYTES_MAX
    return is_small and one.end - one.start <= 2 * (other.end - other.start)
