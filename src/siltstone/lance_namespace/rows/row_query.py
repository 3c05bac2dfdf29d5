"""Row query: which rows a request asks for, and the rows that answer it.

With a vector these are the k rows with the nearest ones, exact, over every row that is committed:
all rows that match are read, a batch at a time, and k of them kept. No index is asked, so no row
that came a moment ago is missed. With `prefilter` false the filter takes from the k nearest rows
those that match, so there may be fewer. Bounds of the distance are [lower, upper).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.filters import filter_of
from siltstone.engine.read.readable import Readable
from siltstone.errors import no_such
from siltstone.lance_namespace.errors import Code, Refused, invalid
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.rows import bodies
from siltstone.lance_namespace.rows.selection import DISTANCE, Columns, Selection

K_DEFAULT = 10
K_ALL = 1 << 62
"""From here on a client that must send a number means all rows: LanceDB sends 2**63 - 1."""
F32 = pa.float32()
_DISTANCE_FIELD = pa.field(DISTANCE, F32)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query of either kind of client, all of which is offered; `limit` None is all."""

    asked: bodies.QueryRequest
    columns: Columns
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]

    @classmethod
    def of(cls, asked: bodies.QueryRequest) -> RowQuery:
        """Return the query of a body.

        Raises:
            Refused: Bounds of a distance, and no vector.
        """
        vector = asked.vector
        if isinstance(vector, bodies.QueryVector):
            vector = vector.single_vector
        if not vector and not (asked.lower_bound is None and asked.upper_bound is None):
            raise invalid("lower_bound and upper_bound are of a distance: give a vector")
        limit = asked.k
        if limit is None and vector:
            limit = K_DEFAULT
        if limit is not None and limit >= K_ALL:
            limit = None
        filter_ = asked.filter or None
        return cls(asked, asked.columns, filter_, limit, asked.offset or 0, vector or [])

    @property
    def distance_type(self) -> str:
        """How far two vectors are from each other."""
        return (self.asked.distance_type or "l2").lower()

    @property
    def _takes_before(self) -> bool:
        """Whether the nearest rows are taken before the filter: `prefilter` is false."""
        return bool(self.vector) and self.asked.prefilter is False and self.filter is not None

    def chosen(self, schema: pa.Schema) -> Selection:
        """Return which columns the answer has, of a table with these.

        Raises:
            RequestError: An expression that does not fit them.
        """
        return Selection.of(self.columns, schema.append(_DISTANCE_FIELD) if self.vector else schema)

    def read(self, table: Readable, limits: RowLimits) -> pa.RecordBatchReader:
        """Return the rows.

        Raises:
            Refused: No vector column, not of that length, or a distance that is not known.
        """
        if self.vector:
            return self._nearest(table, limits).to_reader()
        chosen = self.chosen(table.schema)
        most = None if self.limit is None else self.limit + self.offset
        reader = table.scan(chosen.read, self.filter, most)
        if self.offset:
            rows = _after(reader, self.offset)
            reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
        return chosen.of_reader(reader)

    def _nearest(self, table: Readable, limits: RowLimits) -> pa.Table:
        """Return the nearest rows, the nearest first, with their distance."""
        schema = table.schema
        path = _vectors(schema, self.asked.vector_column or None, len(self.vector))
        chosen = self.chosen(schema)
        later = filter_of(self.filter if self._takes_before else None, schema)
        needed = dict.fromkeys([*chosen.read, path[0], *(later.columns if later else ())])
        reader = table.scan([*needed], None if later else self.filter)
        distance, most = self._distance, self._most(limits)
        search = _Search(path, self.vector, distance, self._bounds, most, limits)
        best = search.best(reader)
        if later is not None:
            best = later.keep(best)
        return chosen.of_rows(best.slice(self.offset))

    def search(self, schema: pa.Schema) -> str:
        """Return in words how the nearest rows are found.

        Raises:
            Refused: As by `read`.
        """
        path = _vectors(schema, self.asked.vector_column or None, len(self.vector))
        _ = self._distance  # it is known
        rows = "all rows, filtered after that" if self._takes_before else "all rows that match"
        (least, end), within = self._bounds, ""
        if not (least is None and end is None):
            within = f", at a distance from {0 if least is None else least}"
            within += "" if end is None else f" to below {end}"
        return f"exact, {self.distance_type}, in {'.'.join(path)}, over {rows}{within}"

    @property
    def _distance(self) -> Callable[[Any, Any], Any]:
        if self.distance_type not in _DISTANCES:
            raise invalid(f"distance_type is one of {sorted(_DISTANCES)}")
        return _DISTANCES[self.distance_type]

    @property
    def _bounds(self) -> tuple[float | None, float | None]:
        return self.asked.lower_bound, self.asked.upper_bound

    def _most(self, limits: RowLimits) -> int:
        if self.limit is None:
            return limits.collected_rows_max
        most = self.limit + self.offset
        if most > limits.collected_rows_max:
            raise invalid(f"k is at most {limits.collected_rows_max}")
        return most


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the nearest vectors, in the column at `path`, of at most `most` rows."""

    path: list[str]
    vector: list[float]
    distance: Callable[[Any, Any], Any]
    bounds: tuple[float | None, float | None]
    most: int
    limits: RowLimits

    def best(self, reader: pa.RecordBatchReader) -> pa.Table:
        """Return the nearest rows, the nearest first, with their distances.

        Raises:
            Refused: They are more bytes than one statement may hold.
        """
        schema = reader.schema.append(_DISTANCE_FIELD)
        best = schema.empty_table()
        for batch in reader:
            both = pa.concat_tables([best, self._measured(batch).cast(schema)])
            order = np.argsort(both.column(DISTANCE).to_numpy(), kind="stable")[: self.most]
            best = both.take(pa.array(order, pa.int64()))
            if best.nbytes > self.limits.collected_bytes_max:
                most, bound = self.most, self.limits.collected_bytes_max
                estimate = best.nbytes * most // best.num_rows
                text = (
                    f"k = {most} rows like these take about {estimate} bytes; at most {bound} bytes"
                )
                raise invalid(f"{text} are held; ask for fewer rows, or fewer columns")
        return best

    def _measured(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows that have a vector within the bounds, with its distance."""
        rows = pa.Table.from_batches([batch.filter(_at(batch, self.path).is_valid())])
        asked, found = np.asarray(self.vector, np.float64), np.empty(0)
        if rows.num_rows:
            column = _at(rows.combine_chunks().to_batches()[0], self.path)
            flat = cast("pa.FixedSizeListArray", column).flatten().cast(pa.float64())
            vectors = flat.to_numpy(zero_copy_only=False).reshape(-1, len(asked))
            found = self.distance(vectors, asked).astype(np.float32)
        rows = rows.append_column(_DISTANCE_FIELD, pa.array(found, F32))
        least, end = self.bounds
        if least is not None:
            rows = rows.filter(pc.greater_equal(rows.column(DISTANCE), pa.scalar(least, F32)))
        if end is not None:
            rows = rows.filter(pc.less(rows.column(DISTANCE), pa.scalar(end, F32)))
        return rows


def _at(batch: pa.RecordBatch, path: list[str]) -> pa.Array:
    """Return a column, or a field of structs: null where a struct is."""
    found = batch.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found


def _vectors(schema: pa.Schema, name: str | None, length: int) -> list[str]:
    """Return the path of the vector column: the one that is named, or the only one there is.

    A field of structs is taken unnamed only if no column outside of them holds vectors.
    """
    known = {".".join(path): (path, kind) for path, kind in _columns_of(schema, [])}
    vectors = [name for name, (_, kind) in known.items() if pa.types.is_fixed_size_list(kind)]
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
    return path


def _columns_of(
    fields: pa.Schema | pa.StructType, above: list[str]
) -> Iterator[tuple[list[str], pa.DataType]]:
    """Yield the path and the type of each column, and of each field of structs."""
    for field in fields:
        yield [*above, field.name], field.type
        if pa.types.is_struct(field.type):
            yield from _columns_of(field.type, [*above, field.name])


def _cosine(rows: Any, asked: Any) -> Any:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - (rows @ asked) / lengths


_DISTANCES: dict[str, Callable[[Any, Any], Any]] = {
    "l2": lambda rows, asked: ((rows - asked) ** 2).sum(axis=1),
    "cosine": _cosine,
    "dot": lambda rows, asked: 1 - rows @ asked,
}
