"""Raw Lance: writes and reads rows without siltstone, for comparisons."""

from __future__ import annotations

from collections.abc import Sequence
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
