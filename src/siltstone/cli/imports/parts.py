"""Parts: what a source of rows is read in, one after the other: files, tables of SQLite.

A part gives the same rows in the same order each time that it is read, as long as its `fingerprint`
is the same: an import goes on where it ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from siltstone.cli.exits import NotFoundError
from siltstone.cli.files import Rows

Pieces: TypeAlias = Iterator[Rows | pa.RecordBatch]


@dataclass(slots=True)
class Gauge:
    """How many bytes of a part were read so far, about. One thread."""

    read: int = 0


@dataclass(frozen=True, slots=True)
class SourcePart:
    """See the module.

    `columns` are those of its rows; None: only its rows tell, or they are guessed. `names` are
    theirs, as far as they are known. `read` returns its rows, for a table with some columns, or to
    guess them (None). `weight` is about how many bytes it has.
    """

    name: str
    fingerprint: str
    weight: int
    read: Callable[[pa.Schema | None], Pieces]
    columns: pa.Schema | None = None
    names: tuple[str, ...] | None = None
    gauge: Gauge = field(default_factory=Gauge)


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of one table: its parts, in their order.

    `is_named`: the source is a database, which has the `name`, and knows the `key`, if any.
    """

    name: str
    parts: tuple[SourcePart, ...]
    key: tuple[str, ...] = ()
    is_named: bool = False


def fingerprint_of(path: Path) -> tuple[str, int]:
    """Return what tells that a file is still the same, and its size in bytes.

    Raises:
        NotFoundError: There is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}") from error
    return f"{os.path.abspath(path)} {found.st_size} {found.st_mtime_ns}", found.st_size  # noqa: PTH100 - a link stays one
