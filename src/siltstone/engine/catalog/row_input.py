"""Row input: converts rows of users, in any form, to storage rows (few) or one batch (many).

Accepted: a dict (one row), an iterable of dicts, pa.Table, RecordBatch, RecordBatchReader, and any
object with `__arrow_c_stream__` or `__arrow_c_array__` (polars, pandas, DuckDB results).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.formats.conversion.conform import conform
from siltstone.formats.keys import Codes, Key, KeyColumns, newest_rows
from siltstone.formats.rows import Row

_DICTS = {dict}
_INDEX = "__index_level_0__"
_ONE_KEY = (str, bytes, bytearray, memoryview, tuple, Mapping)
ROWS_MAX = 512
"""Up to this many rows travel as tuples; more become one Arrow batch."""


class RowInput(msgspec.Struct, frozen=True, eq=False):
    """Rows of one call, each key once: either `rows` with their `keys`, or `batch` with `codes`."""

    rows: list[Row]
    keys: list[Key]
    batch: pa.RecordBatch | None = None
    codes: Codes | None = None

    @property
    def count(self) -> int:
        return len(self.rows) if self.batch is None else self.batch.num_rows


def stream_of(given: object) -> pa.RecordBatchReader | None:
    """Return Arrow input as a stream of batches; None if the input is not Arrow data.

    Raises:
        RequestError: It is a column of values.
    """
    found = arrow_of(given)
    if isinstance(found, pa.ChunkedArray):
        raise RequestError(
            f"rows have columns with names; got one column of {found.type} ({type(given).__name__})"
        )
    return found


def arrow_of(given: object) -> pa.RecordBatchReader | pa.ChunkedArray | None:
    """Return rows of Arrow as a stream, a column of it as an array; None for what is not Arrow.

    Raises:
        RequestError: Its producer fails, or it has null in the place of a row.
    """
    if isinstance(given, pa.RecordBatchReader):
        return given
    if isinstance(given, pa.Table):
        return given.to_reader()
    try:
        if isinstance(given, pa.RecordBatch):
            return pa.RecordBatchReader.from_batches(given.schema, [given])
        if hasattr(given, "__arrow_c_stream__"):
            return _of_stream(given)
        if hasattr(given, "__arrow_c_array__"):
            return _of_array(pa.array(cast("Any", given)))
    except pa.ArrowException as error:
        raise RequestError(f"{type(given).__name__} cannot be read as rows: {error}") from error
    return None


def _of_stream(given: Any) -> pa.RecordBatchReader | pa.ChunkedArray:
    _refuse_objects(given)
    try:
        stream = pa.RecordBatchReader.from_stream(given)
    except pa.ArrowInvalid:  # a series, which gives its stream again
        stream = None
    if stream is None:
        return pa.chunked_array(given)
    if _INDEX in stream.schema.names:
        raise RequestError(
            "the frame of pandas has an index without a name: make it a column with reset_index(),"
            " or leave it out with reset_index(drop=True)"
        )
    return stream


def _refuse_objects(given: Any) -> None:
    """Refuse objects of Python in a frame or series of Polars: it exports addresses of memory."""
    if type(given).__module__.partition(".")[0] != "polars":
        return
    kinds = getattr(given, "schema", None) or {getattr(given, "name", ""): given.dtype}
    for name, kind in kinds.items():
        if str(kind) == "Object":
            raise SchemaMismatchError(
                f"column {name!r} of the frame has type Object of Polars, which is addresses of"
                " memory to others; give it a type that has values"
            )


def _of_array(array: pa.Array) -> pa.RecordBatchReader | pa.ChunkedArray:
    if not isinstance(array, pa.StructArray):
        return pa.chunked_array([array])
    if array.null_count:
        raise RequestError(f"row {array.is_null().index(True).as_py()} of the rows is null")
    batch = pa.RecordBatch.from_struct_array(array)
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def conformed(stream: pa.RecordBatchReader, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `stream` with exactly the columns of `table_schema`, by name."""
    return conformed_part(stream, table_schema, table_schema.arrow)


def conformed_part(
    stream: pa.RecordBatchReader, table_schema: TableSchema, fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `stream` with exactly the columns `fields` of a table, by name.

    Empty batches are checked and left out: Arrow cannot concatenate an empty slice that came
    through the C interface ("buffer slice would exceed buffer length").
    """
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise RequestError(f"the rows cannot be read: {error}") from error
        found = conform(batch, table_schema.schema, fields)
        if found.num_rows:
            yield found


def dicts_of(given: object) -> list[Mapping[str, object]]:
    """Return rows given as a dict or as an iterable of dicts."""
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise RequestError(f"rows must be a dict, a list of dicts or Arrow data; got {given!r:.80}")
    rows = list(given)
    for row in rows:
        if not isinstance(row, Mapping):
            raise RequestError(f"a row must be a dict; got {row!r:.80}")
    return rows


def batch_of_all(given: object, table_schema: TableSchema) -> pa.RecordBatch:
    """Return all rows as one batch of `table_schema`, for plain tables too."""
    stream = stream_of(given)
    if stream is None:
        return table_schema.rows.to_batch(
            [table_schema.rows.from_user(row) for row in dicts_of(given)]
        )
    batches = list(conformed(stream, table_schema))
    return one_batch(batches, table_schema.arrow)


def one_batch(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batches as one."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    try:
        return pa.concat_batches(batches)  # pyright: ignore[reportAttributeAccessIssue]
    except pa.ArrowException as error:
        raise RequestError(f"the rows do not fit one batch: {error}") from error


def row_input(
    given: object,
    table_schema: TableSchema,
    table: str,
    *,
    may_repeat: bool,
    is_whole: bool = False,
) -> RowInput:
    """Return the rows of one call; for equal keys the last row, if keys may repeat.

    `is_whole`: rows that lack a column are refused; else they have null there.

    Raises:
        SchemaMismatchError: A column or value does not fit.
        DuplicateKeyError: Keys are equal but may not repeat.
    """
    encode = table_schema.rows.whole if is_whole else table_schema.rows.from_user
    if type(given) is dict and table_schema.rows.is_packable:  # one row: the shortest way
        row = encode(given)
        return RowInput([row], [table_schema.codec.key_of(row)])
    is_dicts = type(given) is list and set(map(type, given)) == _DICTS  # so it is no Arrow data
    stream = None if is_dicts else stream_of(given)
    if stream is None:
        dicts = cast("list[dict[str, object]]", given) if is_dicts else dicts_of(given)
        rows = [*map(encode, dicts)]
        if len(rows) <= ROWS_MAX and table_schema.rows.is_packable:
            return _few(rows, table_schema, table, may_repeat=may_repeat)
        return many(table_schema.rows.to_batch(rows), table_schema, table, may_repeat=may_repeat)
    if is_whole:
        table_schema.rows.refuse_lacking(stream.schema.names)
    batch = one_batch(list(conformed(stream, table_schema)), table_schema.arrow)
    if batch.num_rows <= ROWS_MAX and table_schema.rows.is_packable:
        return _few(table_schema.rows.rows_of(batch), table_schema, table, may_repeat=may_repeat)
    return many(batch, table_schema, table, may_repeat=may_repeat)


def _few(rows: list[Row], table_schema: TableSchema, table: str, *, may_repeat: bool) -> RowInput:
    codec = table_schema.codec
    keys = [codec.key_of(row) for row in rows]
    if len(rows) > 1:
        newest = dict(zip(keys, rows, strict=True))
        if len(newest) != len(rows):
            if not may_repeat:
                seen: set[Key] = set()
                twice = next(k for k in keys if k in seen or seen.add(k))  # type: ignore[func-returns-value]
                raise DuplicateKeyError(table, codec.to_user(twice), is_repeated=True)
            keys, rows = list(newest), list(newest.values())
    return RowInput(rows, keys)


def many(
    batch: pa.RecordBatch, table_schema: TableSchema, table: str, *, may_repeat: bool
) -> RowInput:
    """Return a conformed batch with each key once."""
    codec = table_schema.codec
    codes = codec.codes(batch)
    if len(codes) > 1 and codec.exact and (codes[1:] > codes[:-1]).all():
        return RowInput([], [], batch, codes)

    def keys_at(at: np.ndarray) -> KeyColumns:
        return codec.columns(batch.take(pa.array(at, pa.int64())))

    chosen = newest_rows(codec, codes, keys_at)
    if len(chosen) < len(codes):
        if not may_repeat:
            kept = np.zeros(len(codes), bool)
            kept[chosen] = True
            key = codec.keys(batch.slice(int(np.flatnonzero(~kept)[0]), 1))[0]
            raise DuplicateKeyError(table, codec.to_user(key), is_repeated=True)
        chosen.sort()
        batch, codes = batch.take(pa.array(chosen, pa.int64())), codes[chosen]
    return RowInput([], [], batch, codes)


def key_input(given: object, table_schema: TableSchema) -> list[Key]:
    """Return the keys of a call, each once: one key, an iterable of keys, or keys of Arrow.

    A tuple is one key.

    Raises:
        RequestError: The keys cannot be read.
        SchemaMismatchError: A key is of another type, or a column of it is missing.
    """
    codec = table_schema.codec
    table = _key_table(given, codec.names)
    if table is not None:
        missing = [name for name in codec.names if name not in table.schema.names]
        if missing:
            raise SchemaMismatchError(f"the keys lack the columns {missing}")
        fields = pa.schema(
            [table_schema.arrow.field(name).with_nullable(False) for name in codec.names]
        )
        picked = table.select(list(codec.names))
        keys = (
            key
            for batch in picked.to_batches()
            for key in codec.keys(conform(batch, table_schema.schema, fields))
        )
        return list(dict.fromkeys(keys))
    is_one = isinstance(given, _ONE_KEY) or (isinstance(given, np.ndarray) and not given.ndim)
    if isinstance(given, Iterable) and not is_one:
        return list(dict.fromkeys(codec.from_user(key) for key in given))
    return [codec.from_user(given)]


def _key_table(given: object, names: Sequence[str]) -> pa.Table | None:
    """Return keys of Arrow, or of an array of NumPy, by the columns of the key; None: of Python."""
    try:
        is_array = isinstance(given, np.ndarray) and given.ndim == 1
        found = pa.chunked_array([pa.array(cast("Any", given))]) if is_array else arrow_of(given)
        if not isinstance(found, pa.ChunkedArray):
            return None if found is None else found.read_all()
    except pa.ArrowException as error:
        raise RequestError(f"the keys cannot be read: {error}") from error
    if len(names) > 1:
        raise SchemaMismatchError(
            f"the key has the columns {list(names)}; got one column of {found.type}"
        )
    return pa.Table.from_arrays([found], names=list(names))
