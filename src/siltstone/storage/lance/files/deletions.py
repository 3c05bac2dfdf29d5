"""Deletion files: which rows of a part are hidden, in a form that every Lance client reads.

    _deletions/<fragment>-<read version>-<random>.bin      a serialized roaring bitmap of offsets
    _deletions/<fragment>-<read version>-<random>.arrow    Lance's other form; we only read it

A file never changes; a fold that hides more rows of a part writes a new one, with all of them.
"""

from __future__ import annotations

import dataclasses
import importlib
import secrets
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring

from siltstone.errors import CorruptionError
from siltstone.formats.bits import Bits, all_of, without_some
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.manifest import DeletionFile
from siltstone.storage.tables.values import Span

DELETIONS = "_deletions"
_STAGGER_FROM, _STAGGER = 0.2, 0.1
Verify = Callable[[Iterable[InventoryFile]], None]
_NONE = np.zeros(0, np.int64)
_MIX, _BITS = 0x9E3779B1, 32


class HiddenRows:
    """The rows of a pin that its deletion files hide, by fragment; read at their first use.

    No lock: nothing changes after construction.
    """

    def __init__(
        self, data: DatasetFiles, pin: Pin, files: Mapping[int, DeletionFile], verify: Verify
    ) -> None:
        self._data, self._pin, self._files, self._verify = data, pin, files, verify
        self.rows = sum(file.rows for file in files.values())

    def count(self, fragment: int) -> int:
        """Return how many rows of a fragment are hidden."""
        return self._files[fragment].rows if fragment in self._files else 0

    def path_of(self, fragment: int) -> str | None:
        """Return the path of the file that hides rows of a fragment."""
        file = self._files.get(fragment)
        return None if file is None else f"{self._pin.folder}/{file.name}"

    def live(self, rows: int, spans: Sequence[tuple[int, Span]]) -> Bits:
        """Return which of so many rows are not hidden; `spans` are the fragments' positions.

        Raises:
            CorruptionError: A file is damaged.
        """
        if not self._files:
            return all_of(rows)
        return without_some(rows, (self._positions(number, span) for number, span in spans))

    def _positions(self, fragment: int, span: Span) -> np.ndarray:
        path, count = self.path_of(fragment), self.count(fragment)
        if path is None:
            return _NONE
        self._verify(self._data.inventories.live(self._pin.inventory, [path]).values())
        try:
            offsets = decode(self._data.read(path), path)
        except (ValueError, pa.ArrowInvalid) as error:
            raise CorruptionError(self._data.root / path, None, str(error)) from error
        if len(offsets) != count or offsets[-1] >= span[1] - span[0]:
            reason = f"it hides {len(offsets)} rows of {span[1] - span[0]}, not {count}"
            raise CorruptionError(self._data.root / path, None, reason)
        return offsets + span[0]


def encode(offsets: np.ndarray) -> bytes:
    """Return the bytes of a file with these offsets, ascending."""
    # Of a NumPy array it takes six times as long.
    packed = array("I", offsets.astype(np.uint32).tobytes())
    return pyroaring.BitMap(packed).serialize()


def decode(data: bytes, name: str) -> np.ndarray:
    """Return the offsets in a file, ascending; raise ValueError for other bytes."""
    if name.endswith(".arrow"):
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            return np.sort(reader.read_all().column(0).to_numpy()).astype(np.int64)
    try:
        found = pyroaring.BitMap.deserialize(data)
    except IndexError as error:  # of no bytes at all
        raise ValueError(str(error)) from error
    return np.frombuffer(found.to_array(), np.uint32).astype(np.int64)


def with_deletions(fragment: Any, read_version: int, offsets: np.ndarray) -> tuple[Any, str]:
    """Return the description of a fragment with a new deletion file, and the name of that file."""
    number = secrets.randbits(_BITS)
    file = importlib.import_module("lance.fragment").DeletionFile(
        read_version=read_version,
        id=number,
        file_type="bitmap",
        num_deleted_rows=len(offsets),
        base_id=None,
    )
    name = f"{DELETIONS}/{fragment.id}-{read_version}-{number}.bin"
    return dataclasses.replace(fragment, deletion_file=file), name


def share_of(fragment: int) -> float:
    """Return the share of hidden rows from which on a part is rewritten.

    Parts of one load age together. If all had one threshold, they would all be rewritten by one
    fold; so each has its own, from 0.2 to 0.3.
    """
    mixed = fragment * _MIX % (1 << _BITS)
    return _STAGGER_FROM + _STAGGER * mixed / (1 << _BITS)
