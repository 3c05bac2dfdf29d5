"""Files: rows from CSV, JSON, NDJSON, Parquet and Arrow files, in the types of the table.

The file's ending determines the format; `-` is NDJSON on stdin. Columns that the table does not
have are kept, so that the table refuses them by name. An empty CSV cell is null, a quoted empty
cell is an empty string.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.errors import SchemaMismatchError

_BLOCK_BYTES_MAX = 1 << 30
Rows = pa.Table | pa.RecordBatchReader


def input_rows(path: Path, schema: pa.Schema, nulls: Sequence[str] = ()) -> Rows:
    """Return the rows of a file in the types of `schema`.

    Args:
        path: The file; `-` is stdin.
        schema: The table's.
        nulls: Texts that mean null in CSV, besides the empty one.

    Raises:
        NotFoundError: The file does not exist.
        UsageError: The format of the file is unknown.
        SchemaMismatchError: A value does not have its column's type.
    """
    ending = _ending(path)
    try:
        if ending == "parquet":
            return _parquet(path)
        if ending == "csv":
            return _csv(read_bytes(path), schema, nulls)
        read = _READERS.get(ending)
        if read is None:
            raise _unknown(path)
        return read(read_bytes(path), schema)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise SchemaMismatchError(f"{path} is not JSON: {error}") from None


def input_schema(path: Path) -> pa.Schema:
    """Return the columns of a file of rows; for CSV the types are guessed."""
    if _ending(path) == "parquet":
        import pyarrow.parquet as pq

        return pq.read_schema(BytesIO(read_bytes(path))).remove_metadata()
    if _ending(path) in {"csv", "arrow", "feather", "ipc"}:
        return input_rows(path, pa.schema([])).schema.remove_metadata()
    raise _unknown(path)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, or of stdin for `-`.

    Raises:
        NotFoundError: The file cannot be read.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}") from error


def _ending(path: Path) -> str:
    return "ndjson" if str(path) == "-" else path.suffix[1:].lower()


def _unknown(path: Path) -> UsageError:
    return UsageError(f"{path}: the file's ending must be one of {', '.join(_ENDINGS)}")


def _csv(data: bytes, schema: pa.Schema, nulls: Sequence[str]) -> Rows:
    import pyarrow.csv as pcsv

    options = pcsv.ConvertOptions(
        column_types=schema,
        null_values=["", *nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pcsv.ParseOptions(newlines_in_values=True)
    return pcsv.read_csv(BytesIO(data), parse_options=parse, convert_options=options)


def _json(data: bytes, schema: pa.Schema) -> Rows:
    if data.lstrip()[:1] != b"[":
        return _objects(data, schema)
    parts = msgspec.json.decode(data, type=list[msgspec.Raw])
    lines = (msgspec.json.format(bytes(part), indent=0) for part in parts)
    return _objects(b"\n".join(lines), schema)


def _objects(data: bytes, schema: pa.Schema) -> pa.Table:
    """Return JSON objects as a table; types that the JSON reader lacks are cast from others."""
    import pyarrow.json as pj

    if not data.strip():
        return schema.empty_table()
    raw = pa.schema([pa.field(f.name, _raw_type(f.type)) for f in schema])
    table = pj.read_json(
        BytesIO(data),
        read_options=pj.ReadOptions(
            use_threads=False, block_size=min(len(data) + 1, _BLOCK_BYTES_MAX)
        ),
        parse_options=pj.ParseOptions(explicit_schema=raw, unexpected_field_behavior="infer"),
    )
    for index, field in enumerate(table.schema):
        if field.name in schema.names:
            wanted = schema.field(field.name).type
            table = table.set_column(index, field.name, _cast(table.column(index), wanted))
    return table


def _raw_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_date(kind) or types.is_time(kind) or _is_binary(kind):
        return pa.string()
    if types.is_float16(kind):
        return pa.float32()
    return pa.list_(kind.value_type) if types.is_fixed_size_list(kind) else kind


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    if pa.types.is_time(kind):  # Arrow parses moments but not times of a day
        join: Any = pc.binary_join_element_wise
        moments = join("1970-01-01T", column, "")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    if not _is_binary(kind):
        return column.cast(kind)
    try:
        values = [
            None if text is None else base64.b64decode(text, validate=True)
            for text in column.to_pylist()
        ]
    except binascii.Error as error:
        raise SchemaMismatchError(f"binary values must be base64 in JSON: {error}") from None
    return pa.chunked_array([pa.array(values, kind)])


def _parquet(path: Path) -> Rows:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NotFoundError(f"cannot read {path}: no such file")
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _arrow(data: bytes, schema: pa.Schema) -> Rows:
    del schema
    try:
        return pa.ipc.open_file(pa.py_buffer(data)).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


_READERS: dict[str, Callable[[bytes, pa.Schema], Rows]] = {
    "json": _json,
    "ndjson": _objects,
    "jsonl": _objects,
    "arrow": _arrow,
    "feather": _arrow,
    "ipc": _arrow,
}
_ENDINGS = sorted({*_READERS, "csv", "parquet"})
