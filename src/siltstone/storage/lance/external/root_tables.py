"""Root tables: `t.lance`, where Lance's directory namespace looks for the tables of the root.

    t.lance/_versions/<n>.manifest    a shallow clone: its files are those of tables/t-1 (base path)
    t.lance/_listed/<n>               its mark: the store's directory, the pin's path

It has no data, so changes to it do not affect the table, and a writer that knows its own feature
flags does not change it. It is late, and never a commit point: a crash leaves a mark without its
manifest (the next update takes another number), or a temporary file, which is deleted with old
files. A directory without a mark is not ours and is not changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from siltstone.errors import RequestError
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import TEMPORARY_SUFFIX, Files
from siltstone.storage.lance.files import manifest
from siltstone.storage.tables import promotion
from siltstone.storage.tables.values import ShownTable

SUFFIX = ".lance"
FENCE = 1 << 62
_VERSIONS, _MARKS = "_versions", "_listed"

Clone = Callable[[Pin], bytes]


def show(files: Files, root: Path, table: ShownTable, clone: Clone) -> None:
    """Make a table's pin the newest version of `t.lance`, unless it is.

    Args:
        files: The disk.
        root: The store's directory.
        table: A table of the root.
        clone: Returns the manifest of a shallow clone of a pin.

    Raises:
        RequestError: There is a `t.lance` of another program.
    """
    where = root / f"{table.name}{SUFFIX}"
    if files.exists(where) and files.list(where) and not files.is_dir(where / _MARKS):
        raise RequestError(f"{where} was made by another program: move it away")
    made_of = f"{root}\n{table.pin.path}\n{table.pin.xxh3}\n".encode()
    newest = max([0, *_numbers(files, where)])
    mark = where / _MARKS / str(newest)
    if newest and _is_whole(files, where, newest) and files.read(mark) == made_of:
        return
    number = max(newest + 1, table.pin.version)
    data = manifest.renumbered(clone(table.pin), number, writer_flags=FENCE)
    files.mkdir(where / _MARKS)
    files.mkdir(where / _VERSIONS)
    if files.create_if_absent(where / _MARKS / str(number), made_of):  # else another process does
        files.create_if_absent(_manifest(where, number), data)


def forget(files: Files, root: Path, names: Iterable[str], kept_s: float) -> None:
    """Remove our `t.lance` of all other tables, and versions older than `kept_s`."""
    kept = {f"{name}{SUFFIX}" for name in names}
    for entry in files.list(root):
        where = root / entry
        if entry.endswith(SUFFIX) and files.is_dir(where / _MARKS):
            _forget(files, where, is_kept=entry in kept, kept_s=kept_s)


def _forget(files: Files, where: Path, *, is_kept: bool, kept_s: float) -> None:
    numbers = sorted(_numbers(files, where))
    for number in numbers[:-1] if is_kept else numbers:
        mark = where / _MARKS / str(number)
        if is_kept and _is_young(files, mark, kept_s):
            continue
        if _is_whole(files, where, number):
            files.unlink(_manifest(where, number))
        files.unlink(mark)
    for path in _temporary(files, where):
        if not (is_kept and _is_young(files, path, kept_s)):
            files.unlink(path)
    if not is_kept:
        _remove(files, where)


def _remove(files: Files, where: Path) -> None:
    for folder in (where / _VERSIONS, where / _MARKS, where):
        if files.exists(folder):
            files.rmdir(folder)


def _is_young(files: Files, path: Path, kept_s: float) -> bool:
    return time.time() - files.mtime(path) < kept_s


def _temporary(files: Files, where: Path) -> list[Path]:
    """Return what a crash left of a file that was being made."""
    folders = [folder for folder in (where / _VERSIONS, where / _MARKS) if files.is_dir(folder)]
    paths = [folder / name for folder in folders for name in files.list(folder)]
    return [path for path in paths if path.name.endswith(TEMPORARY_SUFFIX)]


def _numbers(files: Files, where: Path) -> list[int]:
    marks = where / _MARKS
    names = files.list(marks) if files.is_dir(marks) else []
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _is_whole(files: Files, where: Path, number: int) -> bool:
    return files.exists(_manifest(where, number))


def _manifest(where: Path, number: int) -> Path:
    return where / _VERSIONS / promotion.public_name(number)
