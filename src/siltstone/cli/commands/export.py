"""Export: the rows of a table as a file, whole or not at all.

The rows are those of one snapshot. They go to a temporary file next to the target, which is synced
and then takes its name: a run that fails or is killed leaves the target as it was. A run that fails
removes its temporary file; one that is killed leaves it. CSV spells binary as base64, and lists and
structs as JSON; `create --from` and `upsert` read such values from the other formats alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from siltstone.cli.arguments import AsOf, Db, Delimiter, Quiet, Table
from siltstone.cli.commands.rows import Columns, Filter, Limit, names_of
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.cli.output import Form, cell, emit_record, lines_of, rows_of, values_of
from siltstone.cli.sessions import at_moment
from siltstone.errors import RequestError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 1 << 17
GROUP_BYTES_MAX = 64 << 20


def export(
    table: Table,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV, TSV, NDJSON, Parquet or Arrow, by the file's ending, also with .gz or .zst;"
            " - is NDJSON on stdout.",
            allow_dash=True,
            show_default=False,
        ),
    ],
    db: Db,
    columns: Columns = None,
    where: Filter = None,
    limit: Limit = None,
    delimiter: Delimiter = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
    *,
    as_of: AsOf,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Write the rows of a table to a file, whole or not at all."""
    from siltstone.cli.files import compression_of, delimiter_of, ending_of

    ending = ending_of(file)
    write = _WRITERS.get(ending)
    if write is None or (ending == "parquet" and compression_of(file)):
        endings = ", ".join(sorted(_WRITERS))
        raise UsageError(
            f"{file}: the file's ending must be one of {endings}; all but parquet also with .gz or"
            " .zst"
        )
    if str(file) == "-" and form in {Form.JSON, Form.CSV}:
        other = f"siltstone scan {table} --{form.value}"
        raise UsageError(f"an export to - is NDJSON; `{other}` prints the other form")
    separator = delimiter_of(delimiter, ending)
    with at_moment(db, as_of) as snapshot:
        reader = snapshot[table].scan(names_of(columns), where, limit)
        counted = _Counted(reader)
        if str(file) == "-":
            write(sys.stdout.buffer, reader.schema, counted, separator)
            sys.stdout.flush()
            return
        with _whole(file, overwrite=overwrite) as sink:
            write(sink, reader.schema, counted, separator)
        seq = snapshot.seq
    emit_record(
        {"table": table, "file": str(file), "rows": counted.rows, "seq": seq}, form, quiet=quiet
    )


class _Counted:
    """Batches, and how many rows have passed. One thread."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader, self.rows = reader, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            self.rows += batch.num_rows
            yield batch


@contextlib.contextmanager
def _whole(path: Path, *, overwrite: bool) -> Generator[IO[bytes]]:
    """Yield a file that becomes `path` when the block ends, and is removed if it fails.

    Raises:
        RequestError: The file exists, and is not to be overwritten; the format lacks a type.
        NotFoundError: Its directory does not exist.
        UnavailableError: The file system refuses.
    """
    import secrets

    import pyarrow as pa

    from siltstone.cli.files import compression_of

    packing = compression_of(path)
    if not overwrite and path.exists():
        raise RequestError(f"{path} exists already; use --overwrite to replace it")
    # Another name each time: what a killed run left must not be in the way of the next.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            if packing is None:
                yield file
            else:
                own = os.fdopen(os.dup(file.fileno()), "wb")  # Arrow closes what it writes to
                with pa.CompressedOutputStream(pa.PythonFile(own, "w"), packing) as packed:
                    yield packed  # type: ignore[misc]
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)  # noqa: PTH105 - the call whose promise is meant
        _sync(path.parent)
    except pa.ArrowException as error:  # a type that the format lacks
        raise RequestError(f"cannot write {path}: {error}") from error
    except FileNotFoundError as error:
        raise NotFoundError(f"cannot write {path}: {error.strerror}") from error
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Make a name in a directory outlast a power loss."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _csv(sink: IO[bytes], schema: pa.Schema, batches: _Counted, delimiter: str) -> None:
    import pyarrow as pa
    import pyarrow.csv as pcsv

    shown = pa.schema([field.with_type(_cell_type(field.type)) for field in schema])
    options = pcsv.WriteOptions(delimiter=delimiter)
    with pcsv.CSVWriter(sink, shown, write_options=options) as writer:
        for batch in batches:
            columns = [
                _cells(column, field.type)
                for column, field in zip(batch.columns, shown, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=shown))


def _cell_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which values go into CSV: a text, where CSV has no form for them."""
    import pyarrow as pa

    from siltstone.text.spelled import is_binary

    types = pa.types
    is_text = is_binary(kind) or types.is_nested(kind) or types.is_duration(kind)
    return pa.string() if is_text or isinstance(kind, pa.BaseExtensionType) else kind


def _cells(column: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if column.type.equals(kind):
        return column
    return pa.array([None if value is None else cell(value) for value in values_of(column)], kind)


def _ndjson(sink: IO[bytes], schema: pa.Schema, batches: _Counted, _: str) -> None:
    for line in lines_of(schema.names, rows_of(batches), Form.NDJSON):
        sink.write(line.encode())


def _parquet(sink: IO[bytes], schema: pa.Schema, batches: _Counted, _: str) -> None:
    import pyarrow.parquet as pq

    from siltstone.cli.imports.importing import chunked

    with pq.ParquetWriter(sink, schema) as writer:
        for rows in chunked(iter(batches), GROUP_BYTES_MAX):  # small row groups are slow to read
            writer.write_table(cast("pa.Table", rows), row_group_size=GROUP_ROWS)


def _arrow(sink: IO[bytes], schema: pa.Schema, batches: _Counted, _: str) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(cast("Any", sink), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema, _Counted, str], None]] = {
    "csv": _csv,
    "tsv": _csv,
    "ndjson": _ndjson,
    "jsonl": _ndjson,
    "parquet": _parquet,
    "arrow": _arrow,
    "feather": _arrow,
    "ipc": _arrow,
}
