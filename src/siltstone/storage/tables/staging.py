"""Staging: checks and conversions before rows or columns go into a dataset. Pure.

Lance numbers fields by position where it can (`write_fragments(rows, path)`), so nothing here
relies on it: columns are matched by name, put into the schema's order and checked by type, and the
field ids of the written files are compared with the pin's.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
import pyarrow as pa

from siltstone.errors import InvariantError, SchemaMismatchError, no_such
from siltstone.formats.inventory import InventoryFile
from siltstone.storage.tables.values import SAMPLED_ROWS

Column = tuple[str, int, str]


class BatchFeed:
    """An iterator of batches for Lance that keeps an exception of the caller's side.

    Lance turns an exception of its source into an OSError with a text; `error` is the exception.

    An iterator, not a generator: Lance's threads have no memory for frames when they first call it.
    CPython 3.11 reports that in order for the frame of `__next__`, which is called from C, but it
    frees a function in use if the first one that it calls from a generator gets no frame.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self.schema = schema
        self.error: BaseException | None = None
        self._batches = iter(batches)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            for batch in self._batches:
                if batch.num_rows:
                    return arranged(batch, self.schema)
        except BaseException as error:
            self.error = error
            raise
        raise StopIteration


def peeked(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    """Return the schema of the first batch that has rows, and all of them; None without rows."""
    source = iter(batches)
    for batch in source:
        if batch.num_rows:
            return batch.schema, chain([batch], source)
    return None


def narrowed(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the fields of `schema` that `names` has, in the schema's order.

    Raises:
        SchemaMismatchError: The schema lacks a name, or a required column is missing.
    """
    given = list(names)
    unknown = sorted(set(given) - set(schema.names))
    if unknown or len(set(given)) < len(given):
        raise SchemaMismatchError(f"columns {given} do not fit {schema.names}")
    missing = [f.name for f in schema if f.name not in given and not f.nullable]
    if missing:
        raise SchemaMismatchError(f"columns {missing} are not nullable and have no values")
    narrow = pa.schema([field for field in schema if field.name in given])
    return narrow.with_metadata(schema.metadata) if schema.metadata else narrow


def arranged(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` in the order of `schema`; missing nullable columns are null."""
    if not batch.schema.equals(schema, check_metadata=True):
        narrowed(schema, batch.schema.names)
        batch = _recast(batch, schema)
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(f"column {field.name!r} has nulls and is not nullable")
    return _aligned(batch)


def _aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with copies of the columns that Lance panics over.

    Decimals that do not lie at multiples of 16 bytes: what came from the log or from another
    process lies at multiples of 8, with which all other types are content. And structs in structs
    that a slice cut: arrow-rs counts their offset twice.
    """
    arrays = [
        pa.concat_arrays([column, pa.nulls(0, column.type)])  # two parts: always a copy
        if _is_misaligned(column) or _has_struct_in_struct(_stored(column.type))
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _is_misaligned(column: pa.Array) -> bool:
    return "decimal" in str(column.type) and any(b and b.address % 16 for b in column.buffers())


@functools.lru_cache(maxsize=4096)
def _has_struct_in_struct(kind: pa.DataType) -> bool:
    """Say whether a struct of a type, at any depth, has a struct for a field.

    Whether one has an offset is not asked: the copy costs less than to write the rows.
    """
    inner = [_stored(kind.field(at).type) for at in range(kind.num_fields)]
    is_direct = pa.types.is_struct(kind) and any(map(pa.types.is_struct, inner))
    return is_direct or any(map(_has_struct_in_struct, inner))


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
        if column.type != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} is {column.type}, the table has {field.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def columns_of(lance_schema: Any, schema: pa.Schema) -> tuple[Column, ...]:
    """Return (name, field id, type) of the columns of `schema` as Lance numbers them."""
    ids = {field.name(): field.id() for field in lance_schema.fields()}
    return tuple((field.name, ids[field.name], str(field.type)) for field in schema)


def check_field_ids(fragments: Iterable[Any], lance_schema: Any, names: Iterable[str]) -> None:
    """Check that the files of fragments have the fields, and positions, that their names say.

    Raises:
        InvariantError: Values would land in other columns.
    """
    wanted = set(names)
    tree = [f for f in lance_schema.fields() if f.name() in wanted]
    expected = [number for field in tree for number in leaves(field)]
    for fragment in fragments:
        for file in fragment.files:
            if list(file.fields) != expected:
                raise InvariantError(
                    f"Lance wrote fields {file.fields} to {file.path}, by name they are {expected}"
                )


def is_bare(fragment: Any, lance_schema: Any, drop: Sequence[str]) -> bool:
    """Return whether no file of a fragment has a column other than those of `drop`."""
    left = {n for f in lance_schema.fields() if f.name() not in drop for n in leaves(f)}
    return not any(number in left for file in fragment.files for number in file.fields)


def leaves(field: Any) -> list[int]:
    """Return the numbers of a field's own columns in a file."""
    children = field.children()
    return [n for child in children for n in leaves(child)] if children else [field.id()]


def refuse_unfit(columns: Iterable[Column], known: Iterable[Column]) -> None:
    """Check that staged columns are columns of the version, by name, id and type.

    Raises:
        SchemaMismatchError: A column was renamed, dropped or created again since the staging.
    """
    strange = sorted(set(columns) - set(known))
    if strange:
        raise SchemaMismatchError(
            f"the staged columns {strange} are not columns of this version; stage the rows again"
        )


def refuse_unknown(schema: pa.Schema, column: str) -> None:
    """Check that columns exist.

    Raises:
        SchemaMismatchError: A column, which the message names, does not exist.
    """
    if column not in schema.names:
        raise SchemaMismatchError(no_such("column", column, schema.names))


def refuse_alter(
    schema: pa.Schema,
    rename: Mapping[str, str],
    drop: Sequence[str],
    add: Sequence[pa.Field],
    relax: Sequence[str] = (),
    retype: Iterable[str] = (),
) -> None:
    """Check an alter that Lance would refuse half-way, or apply to another column."""
    for name in (*relax, *retype):
        refuse_unknown(schema, name)
    names = list(schema.names)
    for old, new in rename.items():
        if old not in names or new in names:
            raise SchemaMismatchError(f"cannot rename {old!r} to {new!r} in {names}")
        names[names.index(old)] = new
    unknown = sorted(set(drop) - set(names))
    left = [name for name in names if name not in set(drop)]
    final = left + [field.name for field in add]
    if unknown or not left or len(set(final)) < len(final):
        raise SchemaMismatchError(f"cannot drop {list(drop)} and reach {final} from {names}")
    forced = [field.name for field in add if not field.nullable]
    if forced:
        raise SchemaMismatchError(f"columns {forced} are new and must be nullable")


def span(
    inputs: Iterable[InventoryFile], seqs: tuple[int, int] | None, *, has_more: bool
) -> tuple[int, int] | None:
    """Return the (lowest, highest) seq of a rewrite; None if a part does not have it.

    Args:
        inputs: The files that are rewritten.
        seqs: The seqs of the additional rows, if `has_more`.
    """
    ranges = [file.seqs for file in inputs] + [seqs] * has_more
    known = [each for each in ranges if each is not None]
    if not known or len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def spread(rows: int) -> np.ndarray:
    """Return at most `SAMPLED_ROWS` positions, ascending, spread over all rows."""
    return np.unique(np.linspace(0, rows - 1, min(rows, SAMPLED_ROWS)).astype(np.int64))


def in_seq_order(
    files: Sequence[Sequence[InventoryFile]], tie: Callable[[int], int] = lambda index: index
) -> list[int]:
    """Return the indexes of the parts with these `files`, in the order of their rows.

    The order is by lowest seq if every file has its seqs; otherwise it is unchanged. Parts with
    equal seqs come from one write: for these `tie` returns the sort key of an index.
    """
    lows = [min((f.min_seq for f in part if f.min_seq is not None), default=None) for part in files]
    known = [low for low in lows if low is not None]
    if len(known) < len(files) or any(f.seqs is None for part in files for f in part):
        return list(range(len(files)))
    counts = Counter(known)
    keys = [(low, tie(index) if counts[low] > 1 else 0) for index, low in enumerate(known)]
    return sorted(range(len(files)), key=keys.__getitem__)
