"""Plain diff: what differs between two states of a table of which one has no key.

    _change   "removed" or "added"
    _old      the row before, as a struct; null if it was added
    _new      the row after; null if it was removed

First come the rows that are gone, then the new ones, each in the order of its state. Rows are
compared whole: of equal ones it is counted how many there are. So a row that was changed is one
removed and one added, and a compaction, which moves rows, changes none.

Parts that both versions have, with the same files, are not read: an append costs its own rows. What
is read is held in memory, at most `HELD_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.errors import LimitError, RequestError
from siltstone.formats.types.blobs import is_blob
from siltstone.formats.types.extensions import unwrapped
from siltstone.formats.types.widening import in_type, widens
from siltstone.process import deadline
from siltstone.query.diff.diff import RowCounts
from siltstone.query.diff.table_diff import CHANGE, NEW, OLD, DiffShape, column_pairs, diff_batch
from siltstone.query.diff.windows import whole

HELD_BYTES_MAX = 1 << 30
_SIDES = ("old", "new")
_compute: Any = pc
_WANTED: list[Any] = [
    *((side, "sum") for side in _SIDES),
    *((f"{side}_at", "min") for side in _SIDES),
]


@dataclass(frozen=True, slots=True)
class PlainStates:
    """One name before and after; None: it was not there. `is_one`: it is the same table."""

    name: str
    old: Reader | None
    new: Reader | None
    is_one: bool

    @property
    def fields(self) -> pa.Schema:
        """The columns of the diff."""
        old, new = (_fields(one or other) for one, other in self._turned)
        return pa.schema(
            [(CHANGE, pa.string()), (OLD, pa.struct(list(old))), (NEW, pa.struct(list(new)))]
        )

    @property
    def _turned(self) -> tuple[tuple[Reader | None, Reader | None], ...]:
        return (self.old, self.new), (self.new, self.old)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows of the diff."""
        return pa.RecordBatchReader.from_batches(self.fields, self.batches())

    def counts(self) -> RowCounts:
        """Return how many rows were added, removed, and changed: none is."""
        _, _, gone, came = self._found()
        return len(came), len(gone), 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the diff; of none there is no batch."""
        old, new, gone, came = self._found()
        shape, nothing = DiffShape(self.fields), np.full(max(len(gone), len(came)), -1)
        if len(gone):
            yield diff_batch(old, new, gone, nothing[: len(gone)], shape)
        if len(came):
            yield diff_batch(old, new, nothing[: len(came)], came, shape)

    def _found(self) -> tuple[pa.Table, pa.Table, np.ndarray, np.ndarray]:
        """Return the rows that were read of both, and the places of those that differ."""
        old, new = (self._rows(*each) for each in self._turned)
        gone, came = _differing(*self._comparable(old, new))
        return old, new, gone, came

    def _rows(self, reader: Reader | None, other: Reader | None) -> pa.Table:
        """Return the rows of a state but for the parts that the other one has, too.

        Raises:
            LimitError: They are more than the memory for them.
        """
        fields = _fields(reader or other)
        batches, nbytes = list[pa.RecordBatch](), 0
        for batch in deadline.checked(_read(reader, self._parts_of(other))):
            nbytes += batch.nbytes
            if nbytes > HELD_BYTES_MAX:
                raise LimitError(
                    f"{self.name!r} has no key, and more than {HELD_BYTES_MAX} bytes of its rows"
                    " lie in other files than before: read both states in SQL, by AT (VERSION =>"
                    " ..), or name the tables that you mean, by tables=",
                    HELD_BYTES_MAX,
                )
            batches.append(batch_of(batch.columns, fields, batch.num_rows))
        return pa.Table.from_batches(batches, fields).combine_chunks()

    def _parts_of(self, other: Reader | None) -> frozenset[object]:
        """Return the parts of a state whose rows are equal in the other, if both have the files."""
        if not self.is_one or _columns(self.old) != _columns(self.new):
            return frozenset()
        table = other.table if isinstance(other, PlainReader) else None
        return frozenset() if table is None else frozenset(table.part_ids)

    def _comparable(self, old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return rows with the same columns, which can be compared: of one table by their ids."""
        schemas = (reader.table_schema if reader else None for reader in (self.old, self.new))
        pairs = column_pairs(*schemas, is_one=self.is_one)
        sides = [list[pa.Array](), list[pa.Array]()]
        for before, after in pairs:
            one, two = _column(old, before), _column(new, after)
            one, two = _of_one_type(one, two, (old.num_rows, new.num_rows))
            sides[0].append(one)
            sides[1].append(two)
        names = [f"c{number}" for number in range(len(pairs))]
        return pa.table(sides[0], names=names), pa.table(sides[1], names=names)


def _fields(reader: Reader | None) -> pa.Schema:
    assert reader is not None
    blob = next((field.name for field in reader.table_schema.arrow if is_blob(field)), None)
    if blob is not None:
        raise RequestError(f"column {blob!r} is one of blobs, which are not compared")
    plain = [field.with_nullable(True).remove_metadata() for field in reader.table_schema.arrow]
    return pa.schema(plain)


def _columns(reader: Reader | None) -> object:
    return None if reader is None else reader.table_schema.schema.columns


def _read(reader: Reader | None, known: frozenset[object]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state but for those of parts that are `known`."""
    if reader is None:
        return
    table = reader.table if isinstance(reader, PlainReader) else None
    if table is None or not known:
        yield from reader.scan()
        return
    names = reader.table_schema.arrow.names
    for part, span in zip(table.part_ids, table.spans, strict=True):
        if part not in known:
            yield from table.scan(names, within=span)


def _column(rows: pa.Table, name: str | None) -> Any:
    return None if name is None else whole(rows.column(name))


def _of_one_type(one: Any, two: Any, rows: tuple[int, int]) -> tuple[Any, Any]:
    """Return two columns in a type that can be compared; one that is not there is null."""
    if one is None:
        one = pa.nulls(rows[0], two.type)
    if two is None:
        two = pa.nulls(rows[1], one.type)
    if widens(one.type, two.type):
        one = in_type(one, two.type)
    elif widens(two.type, one.type):
        two = in_type(two, one.type)
    if one.type != two.type:
        return _as_bytes(one), _as_bytes(two)
    one, two = unwrapped(one), unwrapped(two)
    if pa.types.is_nested(one.type) or pa.types.is_float16(one.type):
        return _as_bytes(one), _as_bytes(two)
    return _with_one_nan(one), _with_one_nan(two)


def _with_one_nan(column: Any) -> Any:
    """Return a column without the bits in which NaNs differ: a group has equal bits."""
    if not pa.types.is_floating(column.type):
        return column
    return _compute.if_else(_compute.is_nan(column), pa.scalar(np.nan, column.type), column)


def _as_bytes(column: Any) -> pa.Array:
    """Return each value as bytes that no other value of its type has; of two types all differ."""
    kind, stored = str(column.type), unwrapped(column)
    stored = stored.cast(_with_integers(stored.type))
    texts = [None if not each.is_valid else f"{kind}:{each}" for each in stored]
    return pa.array(texts, pa.string())


def _with_integers(kind: Any) -> Any:
    """Return a type with integers for times: Python has no nanoseconds, and few years."""
    types = pa.types
    if types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if types.is_struct(kind):
        return pa.struct([each.with_type(_with_integers(each.type)) for each in kind])
    if types.is_map(kind):
        return pa.map_(_with_integers(kind.key_type), _with_integers(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_with_integers(kind.value_type), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_with_integers(kind.value_type))
    return pa.large_list(_with_integers(kind.value_type)) if types.is_large_list(kind) else kind


def _differing(old: pa.Table, new: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the rows of one that the other has not, or not so often."""
    names = old.column_names
    tables = list[pa.Table]()
    if not names or not old.num_rows + new.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    for side, rows in zip(_SIDES, (old, new), strict=True):
        count, marked = rows.num_rows, rows
        for each in _SIDES:
            is_it = each == side
            ones = pa.array(np.full(count, int(is_it)))
            at = pa.array(np.arange(count)) if is_it else pa.nulls(count, pa.int64())
            marked = marked.append_column(each, ones).append_column(f"{each}_at", at)
        tables.append(marked)
    found = pa.concat_tables(tables).group_by(names).aggregate(_WANTED)
    old_count, new_count = (found.column(f"{side}_sum").to_numpy() for side in _SIDES)
    old_at, new_at = (found.column(f"{side}_at_min").to_numpy() for side in _SIDES)
    return _repeated(old_at, old_count - new_count), _repeated(new_at, new_count - old_count)


def _repeated(at: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return places in order, each as often as is counted; not those counted below one."""
    is_more = counts > 0
    return np.sort(np.repeat(at[is_more].astype(np.int64), counts[is_more]))
