"""Folder parts: tables in directories: of Parquet files, of Lance, of LanceDB, of Delta."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.cli.imports.file_parts import file_part
from siltstone.cli.imports.parts import Pieces, Source, SourcePart
from siltstone.errors import SchemaMismatchError
from siltstone.process import extras

_OF_LANCE = ".lance"


def folder_sources(path: Path, csv: CsvForm) -> list[Source]:
    """Return the tables in a directory: one, or those of LanceDB.

    Raises:
        NotFoundError: It has no rows of these kinds.
        UsageError: It is a store, or has its columns in the names of directories.
        UnavailableError: It is a table of Delta, and `deltalake` is not installed.
        SchemaMismatchError: A file is damaged.
    """
    if (path / "_delta_log").is_dir():
        return [Source(path.name, tuple(_of_delta(path)))]
    if (path / "_versions").is_dir():
        return [Source(path.name.removesuffix(_OF_LANCE), (_of_lance(path),))]
    if (path / "manifest").is_dir():
        raise UsageError(f"{path} is a store of siltstone: export its tables, or back it up")
    datasets = sorted(each for each in path.glob(f"*{_OF_LANCE}") if each.is_dir())
    if datasets:
        return [Source(each.stem, (_of_lance(each),), is_named=True) for each in datasets]
    return [Source(path.name, tuple(file_part(each, csv) for each in _parquet_files(path)))]


def _parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files of a directory, and of those in it, by their names."""
    found = sorted(each for each in path.rglob("*.parquet") if _is_seen(each.relative_to(path)))
    if not found:
        raise NotFoundError(
            f"{path} is a directory without Parquet files, and no table of Lance or Delta; other"
            f" files are named by a pattern: '{path}/*.csv'"
        )
    for each in found:
        partition = next((p for p in each.relative_to(path).parts[:-1] if "=" in p), None)
        if partition is not None:
            raise UsageError(
                f"{path} has a column in the names of its directories ({partition}), which is not"
                " read: write the files without partitions"
            )
    return found


def _is_seen(path: Path) -> bool:
    """Say whether a file counts: those with `_` and `.` in front are notes of who wrote them."""
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _of_lance(path: Path) -> SourcePart:
    from siltstone.storage.lance import raw

    try:
        found, changed = raw.opened(path), (path / "_versions").stat().st_mtime_ns
    except (OSError, ValueError) as error:
        raise SchemaMismatchError(f"{path} is no table of Lance: {error}") from error
    fingerprint = f"{os.path.abspath(path)} version {found.version} {changed}"  # noqa: PTH100 - a link stays one
    return SourcePart(
        str(path),
        fingerprint,
        found.nbytes,
        lambda _: _batches(path, found.batches()),
        found.schema,
    )


def _of_delta(path: Path) -> Iterator[SourcePart]:
    deltalake = extras.imported("deltalake", "a table of Delta", "deltalake", "delta")
    import pyarrow.dataset as ds

    try:
        found: Any = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
        raise SchemaMismatchError(f"{path} cannot be read as a table of Delta: {error}") from error
    fragments = list(found.get_fragments())
    if not fragments:
        yield SourcePart(
            str(path), str(path), 0, lambda _: iter([found.schema.empty_table()]), found.schema
        )
    for each in sorted(fragments, key=lambda fragment: fragment.path):
        scanner = partial(ds.Scanner.from_fragment, each, schema=found.schema)
        yield SourcePart(
            f"{path}/{each.path}",
            f"{os.path.abspath(path)} {each.path}",  # noqa: PTH100 - a link stays one
            1 << 20,
            lambda _, scanner=scanner: _batches(path, scanner().to_batches()),
            found.schema,
        )


def _batches(path: Path, batches: Iterable[pa.RecordBatch]) -> Pieces:
    try:
        yield from batches
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SchemaMismatchError(f"{path}: {error}") from error
