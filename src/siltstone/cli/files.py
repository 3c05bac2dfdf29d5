"""Files: rows from CSV, JSON, NDJSON, Parquet and Arrow files, in the types of the table.

The file's ending determines the format, and `.gz` or `.zst` after it says that it is compressed;
`-` is NDJSON on stdin. Columns that the table does not have are kept, so that the table refuses
them by name. An empty CSV cell is null, a quoted empty cell is an empty string.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.schemas import arrow_schema_of, plain_schema
from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.errors import SchemaMismatchError
from siltstone.text.spelled import WORDS, has_floats, has_spelled, is_binary, value_in

_BLOCK_BYTES_MAX = 1 << 30
CSV_GUESS_BYTES = 64 << 20
"""From so much of CSV at its begin the types of its columns are guessed, where it is a stream."""
_CSV_BLOCK_BYTES = 4 << 20
"""So much of it is read at once. Arrow reads 32 blocks ahead."""
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_NUMBERED = re.compile(r"In CSV column #(\d+)")
_WITH_COLUMNS = {"parquet", "csv", "tsv", "arrow", "feather", "ipc"}
Rows = pa.Table | pa.RecordBatchReader | list[dict[str, Any]]


def input_rows(
    path: Path, schema: pa.Schema | None, csv: CsvForm, *, tells_missing: bool = False
) -> Rows:
    """Return the rows of a file in the types of `schema`.

    Args:
        path: The file; `-` is stdin.
        schema: The table's; None: the columns of the file, whose types are guessed for text.
        csv: How the cells of CSV are written.
        tells_missing: Rows of JSON have only the columns that they name; else, unless a column has
            a default, null in the others.

    Raises:
        NotFoundError: The file does not exist.
        UsageError: The format of the file is unknown.
        SchemaMismatchError: A value does not have its column's type.
    """
    ending = ending_of(path)
    known = pa.schema([]) if schema is None else schema
    with reading(path):
        if ending == "parquet":
            return _parquet(path)
        if ending in {"csv", "tsv"}:
            return _csv(read_bytes(path), known, csv, path)
        read = _READERS.get(ending)
        if read is None:
            raise unknown_ending(path)
        data = read_bytes(path) if ending != "json" else _lines_of(read_bytes(path))
        rows = read(data, known)
        may_lack = tells_missing or any(b"siltstone:default" in (f.metadata or {}) for f in known)
        return _as_named(rows, data, known) if read is json_rows and may_lack else rows


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Say which file cannot be read.

    Raises:
        SchemaMismatchError: It is damaged, or a value does not fit.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        packed = compression_of(path)
        why = f" is not whole, or no {packed}" if packed and isinstance(error, OSError) else ""
        raise SchemaMismatchError(f"{path}{why}: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaMismatchError(f"{path} is not JSON of rows: {error}") from None


def rows_named(name: str) -> pa.Table | pa.RecordBatchReader | None:
    """Return the rows of the file that a statement names; None: the name is not that of a file.

    Raises:
        NotFoundError: There is no such file.
        UsageError: The format of the file is unknown.
        SchemaMismatchError: It is damaged, or has no columns.
    """
    path = Path(name)
    if not path.suffix:
        return None
    if not os.path.isfile(name):  # noqa: PTH113 - `Path.is_file` raises of a long name
        if ending_of(path) not in _ENDINGS:
            return None
        why = "it is a directory" if os.path.isdir(name) else "no such file is here"  # noqa: PTH112
        raise NotFoundError(f"there is no table {name!r}, and {why}")
    rows: Any = input_rows(path, None, CsvForm())
    if not rows.schema.names:
        raise SchemaMismatchError(f"{path} has no columns")
    return rows


def schema_of(path: Path) -> pa.Schema:
    """Return the columns of a JSON file of names and types, or of a file of rows.

    Raises:
        NotFoundError: The file does not exist.
        UsageError: The file contains no schema.
        RequestError: There is no such type.
    """
    if path.suffix not in {".json", ""} and str(path) != "-":
        if ending_of(path) not in _WITH_COLUMNS:
            raise unknown_ending(path)
        rows: Any = input_rows(path, None, CsvForm())
        return plain_schema(rows.schema.remove_metadata())
    try:
        found = msgspec.json.decode(read_bytes(path))
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(found, dict):
        return arrow_schema_of(found)
    raise UsageError(f'{path} contains no schema; a schema is like {{"id": "int64", ...}}')


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if its name says so, or of stdin for `-`.

    Raises:
        NotFoundError: The file cannot be read.
        SchemaMismatchError: It is not gzip, or not zstd.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}") from error
    packed = compression_of(path)
    if packed is None:
        return data
    try:
        return pa.CompressedInputStream(pa.BufferReader(data), packed).read()
    except OSError as error:
        raise SchemaMismatchError(f"{path} is not {packed}: {error}") from None


def compression_of(path: Path) -> Any:
    """Return how the name of a file says that it is compressed; None: it does not."""
    return COMPRESSIONS.get(path.suffix.lower())


def ending_of(path: Path) -> str:
    """Return what the name of a file says of its format: `csv` of `rows.csv.gz`."""
    if str(path) == "-":
        return "ndjson"
    name = path.with_suffix("") if compression_of(path) else path
    return name.suffix[1:].lower()


def unknown_ending(path: Path) -> UsageError:
    """Return the refusal of a file whose name says no format."""
    endings = ", ".join(_ENDINGS)
    return UsageError(f"{path}: the file's ending must be one of {endings}, also with .gz or .zst")


def require_ending(path: Path) -> None:
    """Refuse a file whose name says no format, or that is compressed in vain.

    Raises:
        UsageError: See above.
    """
    ending = ending_of(path)
    if ending not in _ENDINGS:
        raise unknown_ending(path)
    if ending == "parquet" and compression_of(path):
        raise UsageError(
            f"{path}: Parquet files compress themselves; .gz and .zst are for the other formats"
        )


def delimiter_of(given: str | None, ending: str) -> str:
    """Return what separates the cells of CSV.

    Raises:
        UsageError: It is not one character of ASCII.
    """
    if given is None:
        return "\t" if ending == "tsv" else ","
    found = "\t" if given in {"\\t", "tab"} else given
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise UsageError(f"--delimiter must be one ASCII character, or tab; got {given!r}")
    return found


def _csv(data: bytes, schema: pa.Schema, csv: CsvForm, path: Path) -> Rows:
    import pyarrow.csv as pcsv

    texts, parse, convert = _csv_options(schema, csv, ending_of(path))
    table = pcsv.read_csv(BytesIO(data), parse_options=parse, convert_options=convert)
    return _typed(table, texts)


def csv_schema(head: bytes, csv: CsvForm, ending: str, *, is_cut: bool) -> pa.Schema:
    """Return the columns of CSV, guessed from its begin; `is_cut`: more follows.

    Raises:
        pa.ArrowInvalid: It is no CSV, or its first row is longer.
    """
    import pyarrow.csv as pcsv

    _, parse, convert = _csv_options(pa.schema([]), csv, ending)
    read = pcsv.ReadOptions(block_size=max(len(head), 1))
    # A byte behind the first block: else its last row, which is cut, would be taken for whole.
    source: Any = pa.BufferReader(head + b"\n" if is_cut else head)
    with pcsv.open_csv(source, read, parse, convert) as reader:
        return reader.schema


def csv_batches(
    stream: Any, schema: pa.Schema, csv: CsvForm, ending: str, names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of CSV as they are read; first a table without rows.

    Args:
        stream: The bytes.
        schema: The types of columns; those of others are guessed.
        csv: How cells are written.
        ending: That of the file.
        names: Its columns, for errors.

    Raises:
        pa.ArrowInvalid: It is no CSV, or a value does not have its column's type.
    """
    import pyarrow.csv as pcsv

    texts, parse, convert = _csv_options(schema, csv, ending)
    read, before = pcsv.ReadOptions(block_size=_CSV_BLOCK_BYTES), 0
    try:
        reader = pcsv.open_csv(stream, read, parse, convert)
        yield _typed(reader.schema.empty_table(), texts)
        for batch in reader:
            yield _typed(pa.Table.from_batches([batch]), texts)
            before += batch.num_rows
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(_with_name(str(error), names, before)) from error


def _with_name(text: str, names: Sequence[str], before: int) -> str:
    """Return what Arrow says of CSV with the name of the column, and behind which row it is."""
    found = _NUMBERED.search(text)
    if found is None or int(found[1]) >= len(names):
        return text
    named = text.replace(found[0], f"column {names[int(found[1])]!r}")
    return f"behind row {before:,}: {named}" if before else named


def _csv_options(schema: pa.Schema, csv: CsvForm, ending: str) -> tuple[list[pa.Field], Any, Any]:
    """Return the columns that are read as texts, and Arrow's options."""
    import pyarrow.csv as pcsv

    texts = [field for field in schema if _is_text_in_csv(field.type)]
    convert = pcsv.ConvertOptions(
        column_types=pa.schema(
            [field.with_type(pa.string()) if field in texts else field for field in schema]
        ),
        null_values=["", *(csv.null or ())],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    delimiter = delimiter_of(csv.delimiter, ending)
    return texts, pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=True), convert


def _typed(table: pa.Table, texts: list[pa.Field]) -> pa.Table:
    """Return rows with the columns that were read as texts in their types."""
    for field in texts:
        place = table.schema.get_field_index(field.name)
        if place >= 0:
            column = _of_texts(table.column(place), field)
            table = table.set_column(place, field, column)
    return table


def _is_text_in_csv(kind: pa.DataType) -> bool:
    """Say whether Arrow's reader of CSV has no word for a type, and `export` spells it."""
    types = pa.types
    spelled = (types.is_duration, types.is_fixed_size_binary, types.is_float16, types.is_decimal256)
    return isinstance(kind, pa.UuidType | pa.JsonType) or any(is_of(kind) for is_of in spelled)


def _of_texts(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    kind: Any = field.type
    if not pa.types.is_duration(kind):
        return _cast(column, kind)
    spans = [value_in(field.name, kind, text) for text in column.to_pylist()]
    return pa.chunked_array([_spans(spans).cast(kind)])


def _spans(spans: list[Any]) -> pa.Array:
    """Return durations in the unit that holds them all: Arrow's cast refuses to cut."""
    unit = "ns" if any(isinstance(span, np.timedelta64) for span in spans) else "us"
    exact = [None if span is None else np.timedelta64(span, unit) for span in spans]
    return pa.array(cast("Any", exact), pa.duration(unit))


def _lines_of(data: bytes) -> bytes:
    """Return a list of JSON as lines of its parts; lines of JSON as they are."""
    if data.lstrip()[:1] != b"[":
        return data
    parts = msgspec.json.decode(data, type=list[msgspec.Raw])
    return b"\n".join(msgspec.json.format(bytes(part), indent=0) for part in parts)


def _as_named(rows: Rows, data: bytes, schema: pa.Schema) -> Rows:
    """Return rows of JSON with no more columns than each names: Arrow's reader adds nulls."""
    if not isinstance(rows, pa.Table) or not any(column.null_count for column in rows.columns):
        return rows
    objects = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines(data)
    first = objects[0].keys()
    if all(each.keys() == first for each in objects):
        return rows.select([name for name in rows.column_names if name in first])
    decode = msgspec.json.decode
    return _spelled([{n: decode(v) for n, v in each.items()} for each in objects], schema)


def _is_beyond_arrow(data: bytes, schema: pa.Schema) -> bool:
    """Say whether a column has values that Arrow's reader of JSON does not build, nor casts."""
    types = pa.types
    if any(word in data for word in WORDS) and any(map(has_floats, schema.types)):
        return True
    return any(
        types.is_duration(field.type) or (types.is_nested(field.type) and has_spelled(field.type))
        for field in schema
    )


def _spelled(objects: list[Any], schema: pa.Schema) -> list[dict[str, Any]]:
    """Return JSON objects as rows of Python values."""
    if not all(isinstance(each, dict) for each in objects):
        raise SchemaMismatchError("rows must be JSON objects")
    kinds = {field.name: field.type for field in schema}
    return [{n: value_in(n, kinds.get(n), v) for n, v in row.items()} for row in objects]


def json_rows(data: bytes, schema: pa.Schema) -> Rows:
    """Return lines of JSON as rows; types that Arrow's reader lacks are cast from others."""
    import pyarrow.json as pj

    if not data.strip():
        return schema.empty_table()
    if _is_beyond_arrow(data, schema):
        return _spelled(msgspec.json.Decoder().decode_lines(data), schema)
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


def _raw_type(kind: Any) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        return _raw_type(kind.storage_type)
    is_moment = types.is_date(kind) or types.is_time(kind)
    if is_moment or is_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        return pa.string()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_fixed_size_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_type)
    return kind


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    if pa.types.is_time(kind):  # Arrow parses moments but not times of a day
        join: Any = pc.binary_join_element_wise
        moments = join("1970-01-01T", column, "")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    if isinstance(kind, pa.UuidType):
        return pa.chunked_array([_uuids(column)])
    if isinstance(kind, pa.FixedShapeTensorType):
        values = column.cast(kind.storage_type).combine_chunks()
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, cast("Any", values))])
    if not is_binary(kind):
        return column.cast(kind)
    try:
        values = [
            None if text is None else base64.b64decode(text, validate=True)
            for text in column.to_pylist()
        ]
    except binascii.Error as error:
        raise SchemaMismatchError(f"binary values must be base64 in JSON: {error}") from None
    return pa.chunked_array([pa.array(values, kind)])


def _uuids(column: pa.ChunkedArray) -> pa.Array:
    try:
        return pa.array([None if t is None else UUID(t) for t in column.to_pylist()], pa.uuid())
    except ValueError as error:
        raise SchemaMismatchError(f"a uuid in JSON: {error}") from None


def _parquet(path: Path) -> Rows:
    import pyarrow.parquet as pq

    require_ending(path)
    if not path.is_file():
        raise NotFoundError(f"cannot read {path}: no such file")
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _arrow(data: bytes, schema: pa.Schema) -> Rows:
    schema, batches = arrow_batches(pa.BufferReader(data))
    return pa.Table.from_batches(batches, schema)


def arrow_batches(source: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Return the columns and the batches of Arrow's own files, and of its streams."""
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, stream
    return file.schema, map(file.get_batch, range(file.num_record_batches))


_READERS: dict[str, Callable[[bytes, pa.Schema], Rows]] = {
    "json": json_rows,
    "ndjson": json_rows,
    "jsonl": json_rows,
    "arrow": _arrow,
    "feather": _arrow,
    "ipc": _arrow,
}
_ENDINGS = sorted({*_READERS, "csv", "parquet", "tsv"})
