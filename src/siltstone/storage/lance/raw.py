"""Raw Lance: tables that are not siltstone's: for comparisons, and to import their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from siltstone.storage.files.files import RealFiles


def write(rows: pa.Table, path: Path) -> None:
    """Write a new dataset, and sync each of its files and directories."""
    lance.write_dataset(rows, path)
    files = RealFiles()
    for folder in (path, *(each for each in path.rglob("*") if each.is_dir())):
        for each in folder.iterdir():
            if each.is_file():
                files.sync_file(each)
        files.sync_dir(folder)


def scan(path: Path, columns: Sequence[str] | None = None) -> int:
    """Read columns of all rows (None: all columns) into Arrow; return the number of rows."""
    names = None if columns is None else list(columns)
    reader = lance.dataset(path).scanner(columns=names).to_reader()
    return sum(batch.num_rows for batch in reader)


@dataclass(frozen=True, slots=True)
class RawTable:
    """One version of a table that Lance alone wrote; `nbytes` is what its files take."""

    dataset: lance.LanceDataset
    nbytes: int

    @property
    def version(self) -> int:
        return self.dataset.version

    @property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the same order each time."""
        yield from self.dataset.scanner(scan_in_order=True).to_reader()


def opened(path: Path) -> RawTable:
    """Open the newest version of a table.

    Raises:
        OSError, ValueError: Lance cannot read it.
    """
    files = (each.stat().st_size for each in path.rglob("*") if each.is_file())
    return RawTable(lance.dataset(path), sum(files))
