"""Stored files: the data files that a read of one table at one seq reads, with rows and sizes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.formats.manifest import Pin
from siltstone.storage.tables.tables import PinnedTable, TableReader

BASE, HISTORY = "base", "history"


class StoredFile(msgspec.Struct, frozen=True):
    """A data file: its path below the store's root, its level, rows and bytes.

    The level of rows that are merged, and of all of a plain table, is "base"; of later ones
    "history". `rows` are all that are stored, also those that a read leaves out.
    """

    path: str
    level: str
    rows: int
    nbytes: int


def stored_files(reader: Reader, tables: TableReader) -> list[StoredFile]:
    """Return the data files of a table. Rows that are in the log alone are in none.

    Args:
        reader: The table at its seq.
        tables: Opens its pins.
    """
    pins = [(level, table.pin) for level, table in tables_of(reader)]
    return [file for level, pin in pins for file in _files_of(level, pin, tables)]


def tables_of(reader: Reader) -> Iterator[tuple[str, PinnedTable | Attached]]:
    """Yield what a reader reads of Lance, each with its level."""
    if isinstance(reader, PlainReader):
        if reader.table is not None:
            yield BASE, reader.table
        return
    assert isinstance(reader, KeyedReader)
    if reader.base is not None:
        yield BASE, reader.base.table
    for source in reader.sources:
        if isinstance(source, HistoryRun):
            yield HISTORY, source.table


def _files_of(level: str, pin: Pin, tables: TableReader) -> Iterator[StoredFile]:
    sizes = {file.path: file.size for file in tables.files(pin)}
    if pin.is_arrow:
        yield StoredFile(pin.path, level, pin.rows, sizes[pin.path])
        return
    opened = tables.open(pin)
    for (first, end), part in zip(opened.spans, opened.part_ids, strict=True):
        for path in part.paths:
            yield StoredFile(path, level, end - first, sizes[path])
