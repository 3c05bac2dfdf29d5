"""Index files: the folders of the indexes of a version, and what lies in them.

The manifest of another process is data, so no path in it is followed: a name is one of a file of
the table's own folder, or refused.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from siltstone.errors import RequestError
from siltstone.storage.files.files import Files
from siltstone.storage.tables.kept_names import kept_of
from siltstone.storage.tables.values import INDEX_DIRECTORY

_MEM_WAL = "MemWal"
"""The kind of index as which Lance lists a log of its own."""
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}")


def index_folders(folder: str, dataset: Any) -> dict[str, int]:
    """Return the folders, relative to the root, that hold the indexes of a version.

    With the least size of each according to Lance.

    Raises:
        RequestError: An index lies in another dataset, or is the log of Lance.
    """
    indexes = dataset.describe_indices()
    if any(index.index_type == _MEM_WAL for index in indexes):
        raise RequestError(
            "MemWAL is not offered: rows in it would be seen by no reader of the store; write them"
            " with `upsert` or `append`, which are durable when they return"
        )
    segments = [segment for index in indexes for segment in index.segments]
    if any(segment.base_id is not None for segment in segments):
        raise RequestError("an index lies in another dataset")
    return {
        inside(folder, INDEX_DIRECTORY, str(segment.uuid)): segment.size_bytes or 0
        for segment in segments
    }


def index_files(files: Files, root: Path, folder: str, nbytes_min: int = 0) -> list[str]:
    """Return the files in the folder of an index, relative to the root.

    With either name: a clean-up may be deleting the public ones.

    Raises:
        RequestError: The folder is missing, contains unknown entries, or lacks a file.
    """
    found: dict[str, int] = {}
    for home in (kept_of(folder), folder):
        if home is None or not files.is_dir(root / home):
            continue
        for name in files.list(root / home):
            path = inside(folder, "", name)
            if files.is_dir(root / home / name):
                raise RequestError(f"the index {folder} holds a directory, {name!r}")
            with contextlib.suppress(FileNotFoundError):
                found[path] = files.size(root / home / name)
    if not found:
        raise RequestError(f"the index {folder} is missing")
    if sum(found.values()) < nbytes_min:
        held = sum(found.values())
        raise RequestError(f"the index {folder} has {held} bytes, its version says {nbytes_min}")
    return sorted(found)


def inside(folder: str, directory: str, name: str) -> str:
    """Return the path of a file of a table: in its folder, or in a directory of that.

    Raises:
        RequestError: Lance gives no such name.
    """
    if not _FILE_NAME.fullmatch(name):
        raise RequestError(f"a file called {name[:200]!r} cannot be one of the table")
    return "/".join(part for part in (folder, directory, name) if part)
