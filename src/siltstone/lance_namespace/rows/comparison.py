"""Comparison: the rows nearest to a vector, by a look at each row, a batch at a time.

What it finds is what the search of a table finds without an index: distances in float64, rounded to
float32, from the vector as the column holds it; a row without a distance is never found; a null
within a vector counts as 0; of rows that are equally far the lower keys come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.read.row_ids import ROW_ID
from siltstone.errors import no_such
from siltstone.formats.types.extensions import unwrapped
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_versions.errors import Code, Refused, invalid
from siltstone.local.readable import LocalReadable

DISTANCE = "_distance"
F32 = pa.float32()
DISTANCE_FIELD = pa.field(DISTANCE, F32)
_BATCHED_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """The column, or field of structs, at `path`, and what its vectors are compared with, and how.

    `vector` is float64, rounded as the column holds its numbers.
    """

    path: list[str]
    element: pa.DataType
    vector: np.ndarray
    metric: str

    @classmethod
    def of(
        cls, schema: pa.Schema, name: str | None, vector: Sequence[float], metric: str
    ) -> VectorColumn:
        """Return the column that a query names, or the only one there is.

        Raises:
            Refused: There is none, or the vector or the metric does not fit it.
        """
        if metric not in _DISTANCES:
            raise invalid(f"distance_type is one of {sorted(_DISTANCES)}")
        path, kind = _vectors(schema, name, len(vector))
        element, found = kind.value_type, np.asarray(vector, np.float64)
        if pa.types.is_floating(element):
            with np.errstate(over="ignore", invalid="ignore"):
                found = found.astype(element.to_pandas_dtype()).astype(np.float64)
        if not np.isfinite(found).all():
            raise invalid(f"the vector must have finite numbers that {element} holds, and no NaN")
        if metric == "cosine" and not found.any():
            raise invalid("a vector of zeros has no cosine distance to any row")
        if metric == "hamming":
            _refuse_no_bytes(".".join(path), element, found)
        return cls(path, element, found, metric)

    @property
    def is_searched(self) -> bool:
        """Whether the search of a table takes the column by this metric."""
        is_of_bytes = pa.types.is_uint8(self.element) and self.metric == "hamming"
        return len(self.path) == 1 and (is_of_bytes or pa.types.is_floating(self.element))

    def distances(self, vectors: pa.FixedSizeListArray) -> np.ndarray:
        """Return how far each row is; NaN: it has no distance."""
        flat = vectors.flatten().cast(pa.float64()).fill_null(0.0)
        rows = flat.to_numpy(zero_copy_only=False).reshape(-1, len(self.vector))
        with np.errstate(all="ignore"):
            found = _DISTANCES[self.metric](rows, self.vector)
            return found.astype(np.float32) + np.float32(0)  # one zero


def _refuse_no_bytes(name: str, element: pa.DataType, vector: np.ndarray) -> None:
    if not pa.types.is_uint8(element):
        raise invalid(f"hamming is of vectors of uint8; column {name!r} has {element}")
    if not ((vector >= 0) & (vector <= 255) & (vector == np.floor(vector))).all():
        raise invalid(f"column {name!r} holds uint8: integers from 0 to 255")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The nearest rows by one column, of which there are at most `most`.

    `is_numbered`: their `_rowid` comes, too, before the distance.
    """

    column: VectorColumn
    bounds: tuple[float | None, float | None]
    most: int
    limits: RowLimits
    is_numbered: bool = False

    def best(self, table: LocalReadable, columns: Sequence[str], wanted: str | None) -> pa.Table:
        """Return some columns of the nearest rows that match, the nearest first, with distances.

        Raises:
            Refused: They are more bytes than one statement may hold.
        """
        keys = table.primary_key
        added = [ROW_ID.name] if self.is_numbered else []
        kept = [*dict.fromkeys([*columns, *keys])]
        read = [*dict.fromkeys([*kept, self.column.path[0]])]
        scan = table.scan_with_ids if self.is_numbered else table.scan
        reader, kept = scan(read, wanted, None), [*kept, *added]
        fields = [reader.schema.field(name) for name in kept]
        best = pa.schema([*fields, DISTANCE_FIELD]).empty_table()
        waiting, rows, nbytes = list[pa.Table](), 0, 0
        for batch in reader:
            found = self._measured(batch).select(best.column_names)
            waiting.append(found)
            rows, nbytes = rows + found.num_rows, nbytes + found.nbytes
            if rows > max(self.most, _BATCHED_ROWS) or nbytes > self.limits.collected_bytes_max:
                best, waiting = self._nearest([best, *waiting], keys), []
                rows = nbytes = 0
        best = self._nearest([best, *waiting], keys)
        return best.select([*columns, *added, DISTANCE])

    def _nearest(self, parts: list[pa.Table], keys: Sequence[str]) -> pa.Table:
        rows = pa.concat_tables(parts)
        names = [DISTANCE, *keys] if keys else [DISTANCE]
        columns = [unwrapped(rows.column(name).combine_chunks()) for name in names]
        by = pa.table(columns, names)
        order = pc.sort_indices(by, [(name, "ascending") for name in names])
        best = rows.take(order.slice(0, self.most))
        self.limits.refuse_collected(best.nbytes, best.num_rows, self.most)
        return best

    def _measured(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows that have a distance within the bounds, with it."""
        rows = batch.filter(_at(batch, self.column.path).is_valid())
        found = np.empty(0, np.float32)
        if rows.num_rows:
            vectors = cast("pa.FixedSizeListArray", _at(rows, self.column.path))
            found = self.column.distances(vectors)
        least, end = self.bounds
        kept = ~np.isnan(found)
        if least is not None:
            kept &= found >= np.float32(least)
        if end is not None:
            kept &= found < np.float32(end)
        table = pa.Table.from_batches([rows]).append_column(DISTANCE_FIELD, pa.array(found, F32))
        return table.filter(pa.array(kept, pa.bool_()))


def _at(batch: pa.RecordBatch, path: list[str]) -> pa.Array:
    """Return a column, or a field of structs: null where a struct is."""
    found = batch.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found


def _vectors(
    schema: pa.Schema, name: str | None, length: int
) -> tuple[list[str], pa.FixedSizeListType]:
    """Return the path of the vector column: the one that is named, or the only one there is.

    A field of structs is taken unnamed only if no column outside of them holds vectors.
    """
    known = {".".join(path): (path, kind) for path, kind in _columns_of(schema, [])}
    vectors = [name for name, (_, kind) in known.items() if _is_vector(kind)]
    if name is not None and name not in known:
        raise Refused(Code.COLUMN_NOT_FOUND, no_such("column", name, known))
    default = [name for name in vectors if len(known[name][0]) == 1] or vectors
    if name is None and len(default) != 1:
        raise invalid(f"vector_column is one of {vectors}: name it")
    found = default[0] if name is None else name
    if found not in vectors:
        raise invalid(f"column {found!r} holds no vectors")
    path, kind = known[found]
    size = cast("pa.FixedSizeListType", kind).list_size
    if size != length:
        raise invalid(f"column {found!r} holds vectors of {size} numbers, the query has {length}")
    return path, cast("pa.FixedSizeListType", kind)


def _is_vector(kind: pa.DataType) -> bool:
    if not pa.types.is_fixed_size_list(kind):
        return False
    return pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)


def _columns_of(
    fields: pa.Schema | pa.StructType, above: list[str]
) -> Iterator[tuple[list[str], pa.DataType]]:
    """Yield the path and the type of each column, and of each field of structs."""
    for field in fields:
        yield [*above, field.name], field.type
        if pa.types.is_struct(field.type):
            yield from _columns_of(field.type, [*above, field.name])


def _cosine(rows: Any, asked: Any) -> Any:
    lengths = np.sqrt((rows**2).sum(axis=1) * (asked**2).sum())
    return 1 - (rows * asked).sum(axis=1) / lengths


def _hamming(rows: Any, asked: Any) -> Any:
    return np.bitwise_count(rows.astype(np.uint8) ^ asked.astype(np.uint8)).sum(axis=1)


_DISTANCES: dict[str, Callable[[Any, Any], Any]] = {
    "l2": lambda rows, asked: ((rows - asked) ** 2).sum(axis=1),
    "cosine": _cosine,
    "dot": lambda rows, asked: 1 - (rows * asked).sum(axis=1),
    "hamming": _hamming,
}
