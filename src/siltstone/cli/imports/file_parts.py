"""File parts: files of rows, each as it is read: as a stream, or whole where its format has none.

CSV, TSV, NDJSON, Parquet and Arrow are streams of batches, so a file may be larger than the memory.
An array of JSON, and stdin, are read whole. A compressed file is decompressed as it is read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.cli import files
from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import NotFoundError
from siltstone.cli.imports.parts import Gauge, Pieces, SourcePart, fingerprint_of

LINES_BYTES = 32 << 20
"""So many bytes of NDJSON are read at once, and the types of a new table are those of the first."""
_HEADER_BYTES = 1 << 20
_ARROW = {"arrow", "feather", "ipc"}


def file_part(path: Path, csv: CsvForm) -> SourcePart:
    """Return a file as a part.

    Raises:
        NotFoundError: It cannot be read.
        UsageError: Its format is unknown.
        SchemaMismatchError: It is damaged, where its columns are read first.
    """
    files.require_ending(path)
    if str(path) == "-":
        read = cache(lambda known: files.input_rows(path, known, csv))  # it is there once
        return SourcePart(
            "-", f"- {os.getpid()} {time.time_ns()}", 0, lambda known: iter([read(known)])
        )
    fingerprint, size = fingerprint_of(path)
    if path.is_dir():
        raise NotFoundError(f"cannot read {path}: it is a directory")
    ending, gauge = files.ending_of(path), Gauge()
    part = partial(SourcePart, str(path), fingerprint, size, gauge=gauge)
    if ending == "parquet":
        return part(lambda _: _parquet(path, size, gauge), _columns(path))
    if ending in _ARROW:
        return part(lambda _: _arrow(path))
    if ending in {"csv", "tsv"}:
        names = _header(path, csv)
        return part(partial(_csv, path, csv, gauge, names), None, names)
    if ending == "json":
        return part(lambda known: iter([files.input_rows(path, known, csv)]))
    return part(partial(_lines, path, gauge))


@contextmanager
def _stream(path: Path) -> Generator[tuple[Any, pa.OSFile]]:
    """Open a file; yield what is read of it, decompressed, and the file, which says how far."""
    with pa.OSFile(str(path), "r") as file:
        packing = files.compression_of(path)
        yield file if packing is None else pa.CompressedInputStream(file, packing), file


def _header(path: Path, csv: CsvForm) -> tuple[str, ...]:
    """Return the names of the columns of CSV, from its begin."""
    with files.reading(path):
        try:
            return tuple(_guessed(path, csv, _HEADER_BYTES).names)
        except pa.ArrowInvalid:  # its first row may be longer
            return tuple(_guessed(path, csv, files.CSV_GUESS_BYTES).names)


def _guessed(path: Path, csv: CsvForm, bytes_max: int) -> pa.Schema:
    with _stream(path) as (stream, _):
        head = stream.read(bytes_max)
    return files.csv_schema(head, csv, files.ending_of(path), is_cut=len(head) == bytes_max)


def _csv(
    path: Path, csv: CsvForm, gauge: Gauge, names: tuple[str, ...], known: pa.Schema | None
) -> Pieces:
    with files.reading(path):
        columns = _guessed(path, csv, files.CSV_GUESS_BYTES) if known is None else known
        with _stream(path) as (stream, file):
            for rows in files.csv_batches(stream, columns, csv, files.ending_of(path), names):
                gauge.read = file.tell()
                yield rows


def _lines(path: Path, gauge: Gauge, known: pa.Schema | None) -> Pieces:
    with files.reading(path), _stream(path) as (stream, file):
        for data in _whole_lines(stream):
            gauge.read = file.tell()
            rows = files.json_rows(data, pa.schema([]) if known is None else known)
            if known is None and isinstance(rows, pa.Table):
                known = rows.schema
            yield rows


def _whole_lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    while data := stream.read(LINES_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
    if rest.strip():
        yield rest


def _columns(path: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    with files.reading(path):
        return pq.read_schema(path)


def _parquet(path: Path, size: int, gauge: Gauge) -> Pieces:
    import pyarrow.parquet as pq

    with files.reading(path), pq.ParquetFile(path) as file:
        yield file.schema_arrow.empty_table()  # the columns, if there are no rows
        rows = 0
        for batch in file.iter_batches():
            rows += batch.num_rows
            gauge.read = size * rows // file.metadata.num_rows
            yield batch


def _arrow(path: Path) -> Pieces:
    with files.reading(path):
        if files.compression_of(path) is not None:
            rows: files.Rows = files.input_rows(path, None, CsvForm())
            yield rows
            return
        with pa.memory_map(str(path)) as mapped:
            schema, batches = files.arrow_batches(mapped)
            yield schema.empty_table()
            yield from batches
