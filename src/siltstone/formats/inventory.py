r"""Inventory: the data files that one pin added, and the names of the inventories below it.

    Arrow IPC stream    one row per file: path (relative to the store's root), size (bytes),
                        xxh3 (64 bits, 16 hex digits), min_seq, max_seq (null: unknown)
                        schema metadata: siltstone.format (a number), siltstone.below (JSON list)
    trailer, 16 bytes   magic b"siltinv\n", xxh3-64 of all bytes before, u64 little-endian

An Arrow stream reader ignores bytes after the stream, so other tools can read the file. An
inventory is immutable. A chain of inventories also holds files that later pins no longer need; the
*live* set is the paths that a pin's fragments name, each looked up in the chain. `below` lists the
whole rest of the chain, newest first, so that a reader knows all names after one read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.conversion.arrow_stream import packed
from siltstone.formats.store_format import STORE_FORMAT, is_format, refuse_other
from siltstone.units import require

LEVELS_MAX = 32
_MAGIC = b"siltinv\n"
_TRAILER = struct.Struct("<8sQ")
_FORMAT_KEY, _BELOW_KEY = b"siltstone.format", b"siltstone.below"
_COLUMNS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("xxh3", pa.string(), nullable=False),
        pa.field("min_seq", pa.int64()),
        pa.field("max_seq", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """A file that a pin needs; its rows have `min_seq <= _seq <= max_seq`, if these are known."""

    path: str
    size: int
    xxh3: str
    min_seq: int | None = None
    max_seq: int | None = None

    @property
    def seqs(self) -> tuple[int, int] | None:
        """Return the (lowest, highest) `_seq` of its rows, None if they are not known."""
        if self.min_seq is None or self.max_seq is None:
            return None
        return self.min_seq, self.max_seq

    def may_hold(self, low: int, high: int) -> bool:
        """Return whether it may have a row with `low < _seq <= high`."""
        return self.seqs is None or (self.seqs[1] > low and self.seqs[0] <= high)


class Inventory(msgspec.Struct, frozen=True):
    """The files that one pin added; `below`: the other inventories of its chain, newest first."""

    files: tuple[InventoryFile, ...]
    below: tuple[str, ...] = ()


def encode(inventory: Inventory) -> bytes:
    """Return the bytes of an inventory's file."""
    require(len(inventory.below) < LEVELS_MAX, f"{len(inventory.below)} inventories below one")
    schema = _COLUMNS.with_metadata(
        {_FORMAT_KEY: b"%d" % STORE_FORMAT, _BELOW_KEY: json.dumps(inventory.below).encode()}
    )
    rows = [[getattr(file, name) for file in inventory.files] for name in _COLUMNS.names]
    arrays = [pa.array(r, field.type) for r, field in zip(rows, schema, strict=True)]
    body = packed(schema, [pa.record_batch(arrays, schema=schema)])
    return body + _TRAILER.pack(_MAGIC, xxhash.xxh3_64_intdigest(body))


def decode(data: bytes, path: str) -> Inventory:
    """Return the inventory in the bytes `data` of the file `path`.

    Raises:
        UnsupportedFormatError: A siltstone of another format wrote it.
        CorruptionError: The bytes are not those that siltstone wrote.
    """
    body = memoryview(data)[: -_TRAILER.size]
    if len(data) <= _TRAILER.size:
        raise CorruptionError(path, 0, f"not an inventory: {len(data)} bytes")
    magic, checksum = _TRAILER.unpack_from(data, len(body))
    if magic != _MAGIC or checksum != xxhash.xxh3_64_intdigest(body):
        raise CorruptionError(path, len(body), "the checksum of the inventory does not match")
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        table = reader.read_all()
    metadata = table.schema.metadata
    if not is_format(metadata[_FORMAT_KEY]):
        raise CorruptionError(path, 0, "not an inventory: its format is no number")
    refuse_other(path, int(metadata[_FORMAT_KEY]))
    rows = zip(*(table[name].to_pylist() for name in _COLUMNS.names), strict=True)
    return Inventory(
        tuple(InventoryFile(*row) for row in rows), tuple(json.loads(metadata[_BELOW_KEY]))
    )


def lookup(chain: Sequence[Inventory], paths: Iterable[str]) -> dict[str, InventoryFile]:
    """Return the entries of the chain (newest first) for `paths`; unknown paths are absent."""
    known: dict[str, InventoryFile] = {}
    for inventory in reversed(chain):
        known.update((file.path, file) for file in inventory.files)
    return {path: known[path] for path in paths if path in known}


def extend(
    chain: Mapping[str, Inventory], added: Iterable[InventoryFile], live: Iterable[str]
) -> Inventory:
    """Return the inventory to put on top of `chain` (name -> inventory, newest first).

    If the chain would reach `LEVELS_MAX`, it is folded: the new inventory holds every live file
    itself and has none below it, so it forgets files that no pin needs any more.

    Args:
        chain: Empty for the first pin of a dataset.
        added: Files that are in no inventory yet.
        live: All paths that the new pin needs, old and added.
    """
    files = tuple(added)
    if len(chain) < LEVELS_MAX - 1:
        return Inventory(files, tuple(chain))
    found = lookup([Inventory(files), *chain.values()], live)
    return Inventory(tuple(found[path] for path in sorted(found)))
