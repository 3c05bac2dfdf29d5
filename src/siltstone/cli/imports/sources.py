"""Sources: what `--from` and `append` name: a file, a pattern, a directory, a database.

rows.csv  rows.ndjson.gz  rows.csv.zst  rows.parquet   a file of rows, by its ending; - is stdin
'parts/*.csv'  'parts/**/*.parquet'                    files of one format, by their names
parts/                                                 the Parquet files in it
events.lance  lancedb/  lancedb/#events                a table of Lance; those of LanceDB
table/  with _delta_log                                a table of Delta
shop.db  shop.db#orders                                the tables of a SQLite file, or one
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import NotFoundError, UsageError, named
from siltstone.cli.files import ending_of
from siltstone.cli.imports.file_parts import file_part
from siltstone.cli.imports.folder_parts import folder_sources
from siltstone.cli.imports.parts import Source, SourcePart
from siltstone.cli.imports.sqlite_parts import is_sqlite, sqlite_sources
from siltstone.errors import SchemaMismatchError, listed

PARTS_MAX = 100_000


def one_source(given: Path, csv: CsvForm) -> Source:
    """Return the source of one table.

    Raises:
        NotFoundError, UsageError, SchemaMismatchError, UnavailableError: As `all_sources`.
        UsageError: It has several tables, and none is named.
    """
    found = all_sources(given, csv)
    if len(found) > 1:
        names = listed(each.name for each in found)
        raise UsageError(
            f"{given} has several tables: name one, as {given}#{found[0].name}: {names}"
        )
    return found[0]


def all_sources(given: Path, csv: CsvForm) -> list[Source]:
    """Return the source of each table that is named.

    Raises:
        NotFoundError: There is no such file, or no file of that pattern.
        UsageError: Its format is unknown, or files of several formats have the pattern.
        SchemaMismatchError: It is damaged, or its parts have other columns than the first.
        UnavailableError: It is a table of Delta, and `deltalake` is not installed.
    """
    text = str(given)
    path, _, only = text.rpartition("#")
    if path and only and not given.exists() and Path(path).exists():
        return _tables_of(Path(path), only, csv)
    if given.is_dir():
        return _alike(folder_sources(given, csv))
    if is_sqlite(given):
        return sqlite_sources(given, None)
    if glob.has_magic(text) and not given.exists():
        return _alike([_matched(text, csv)])
    return [Source(given.name, (file_part(given, csv),))]


def _tables_of(path: Path, only: str, csv: CsvForm) -> list[Source]:
    if is_sqlite(path):
        return sqlite_sources(path, only)
    found = folder_sources(path, csv) if path.is_dir() else []
    if not found:
        raise UsageError(f"{path} is one table, and no database: leave #{only} out")
    return [named("table", only, {each.name: each for each in found}, f"{path} has")]


def _matched(pattern: str, csv: CsvForm) -> Source:
    paths = sorted(Path(each) for each in glob.glob(pattern, recursive=True))  # noqa: PTH207 - may be absolute
    files = [each for each in paths if each.is_file()]
    if not files:
        raise NotFoundError(f"no file matches {pattern!r}")
    if len(files) > PARTS_MAX:
        raise UsageError(f"{pattern!r} matches {len(files)} files, more than {PARTS_MAX}")
    first = ending_of(files[0])
    for each in files:
        if ending_of(each) != first:
            raise UsageError(
                f"{pattern!r} matches files of several formats: {files[0]} and {each}; name those"
                " of one"
            )
    return Source(pattern, tuple(file_part(each, csv) for each in files))


def _alike(sources: list[Source]) -> list[Source]:
    """Return the sources; the parts of each have the columns of its first one.

    Raises:
        SchemaMismatchError: One has not: its file and the column.
    """
    for source in sources:
        first = source.parts[0]
        for part in source.parts[1:]:
            _refuse_other(first, part)
    return sources


def _refuse_other(first: SourcePart, part: SourcePart) -> None:
    _refuse_other_types(first, part)
    ours, theirs = _names(first), _names(part)
    if ours is None or theirs is None:
        return
    for name in ours:
        if name not in theirs:
            raise SchemaMismatchError(f"{part.name} has no column {name!r}, as {first.name} has")
    for name in theirs:
        if name not in ours:
            raise SchemaMismatchError(
                f"{part.name} has a column {name!r}, and {first.name} has not"
            )


def _refuse_other_types(first: SourcePart, part: SourcePart) -> None:
    if first.columns is None or part.columns is None:
        return
    for field in first.columns:
        if field.name not in part.columns.names:
            continue
        kind = part.columns.field(field.name).type
        if kind != field.type:
            raise SchemaMismatchError(
                f"{part.name}: column {field.name!r} is {kind}, and {field.type} in {first.name}"
            )


def _names(part: SourcePart) -> Sequence[str] | None:
    return part.names if part.columns is None else part.columns.names
