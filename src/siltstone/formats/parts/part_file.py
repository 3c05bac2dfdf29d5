"""Part file: the rows of one part of a base, each read by itself, as an immutable file.

    blocks    of the first group, of the second, ...: the bytes of some rows, then their xxh3_64
              (big-endian), seeded by the file's salt + the number of the block in the file
    foot      msgpack, see `PartFoot`: whose rows they are, and where each block lies
    trailer   magic, length of the foot (u64), xxh3_64 of the foot

Columns lie in groups: those that are not nested together (`flat_rows`), each nested one by itself,
as messages of Arrow, so that a read takes a vector only if it wants it. Others are little-endian.
The salt makes a block of another file, or of another place, fail its check.

The foot has the whole identity of the rows, the store among it. A file whose identity is another
one is not read, whatever it is called.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import xxhash

from siltstone.formats.parts.flat_rows import BLOCK_BYTES, FlatRows, Pieces, is_flat

VERSION = 1
"""Another number is another identity: files of older forms are never opened, and go unused."""
CHECK_BYTES = 8
_MAGIC = b"siltpart"
_TRAILER = struct.Struct("<8sQQ")
TRAILER_BYTES = _TRAILER.size
_SEEDS = 1 << 64


class BlockDirectory(msgspec.Struct, frozen=True, array_like=True):
    """Where the blocks of one group lie: u32 first rows, and u64 offsets with the end of the last.

    `number` is the number in the file of its first block.
    """

    number: int
    firsts: bytes
    offsets: bytes


class PartFoot(msgspec.Struct, frozen=True, array_like=True):
    """What a part file says of itself."""

    identity: bytes
    salt: int
    groups: tuple[BlockDirectory, ...]


class PartIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Whose rows a file has: all that the rows at its offsets depend on.

    `rows` counts hidden rows, too; `columns` are the id, the name and the type of each. The number
    of a part, and the names of its data files, are never given to another part of the folder; the
    folder of a base is that of one incarnation of one table.
    """

    store_id: str
    folder: str
    number: int
    paths: tuple[str, ...]
    rows: int
    columns: tuple[tuple[int, str, object], ...]
    version: int = VERSION

    @property
    def encoded(self) -> bytes:
        """The bytes that stand in a foot."""
        return msgspec.msgpack.encode(self)

    @property
    def name(self) -> str:
        """The name of the file; the names of all files with these rows begin with their prefix."""
        path = self.paths[0] if self.paths else ""
        digest = xxhash.xxh3_128_hexdigest(self.encoded)
        return f"{prefix_of(path)}-{digest}"


def prefix_of(path: str) -> str:
    """Return what stands before the hyphen in names of files of parts with this first data file."""
    return xxhash.xxh3_64_hexdigest(path.rpartition("/")[2].encode())


class Group(Protocol):
    """The form of some columns of a part."""

    @property
    def schema(self) -> pa.Schema: ...

    def row(self, block: bytes, index: int) -> dict[str, object]:
        """Return one row of a block.

        Raises:
            OverflowError, ValueError: Python has no value for one in it.
        """
        ...

    def batch(self, rows: Sequence[tuple[bytes, int]], names: Sequence[str]) -> list[pa.Array]:
        """Return columns of some rows, each given by its block and its index there."""
        ...

    def blocks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Pieces]]:
        """Yield the blocks of a batch: the index of the first row of each, and its bytes."""
        ...


class NestedRows:
    """One nested column: blocks are messages of Arrow. Immutable."""

    def __init__(self, field: pa.Field) -> None:
        self.schema = pa.schema([field])
        self._name = field.name

    def row(self, block: bytes, index: int) -> dict[str, object]:
        """See `Group.row`."""
        return {self._name: self._column(block)[index].as_py()}

    def batch(self, rows: Sequence[tuple[bytes, int]], names: Sequence[str]) -> list[pa.Array]:
        """See `Group.batch`."""
        found = [self._column(block).slice(at, 1) for block, at in rows]
        return [pa.concat_arrays(found) for _ in names]

    def blocks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Pieces]]:
        """See `Group.blocks`."""
        count = batch.num_rows
        each = max(1, BLOCK_BYTES * count // max(batch.nbytes, 1))
        for first in range(0, count, each):
            yield first, [batch.slice(first, each).serialize().to_pybytes()]

    def _column(self, block: bytes) -> pa.Array:
        return pa.ipc.read_record_batch(pa.py_buffer(block), self.schema).column(0)


def groups_of(schema: pa.Schema) -> tuple[Group, ...]:
    """Return the groups of the columns of a schema, those that are not nested first."""
    flat = [field for field in schema if is_flat(field.type)]
    nested = [NestedRows(field) for field in schema if not is_flat(field.type)]
    return (*([FlatRows(pa.schema(flat))] if flat else []), *nested)


class Blocks:
    """Where the rows of one group lie. Immutable."""

    __slots__ = ("_firsts", "_offsets", "number")

    def __init__(self, directory: BlockDirectory) -> None:
        self.number = directory.number
        self._firsts, self._offsets = array("I", directory.firsts), array("Q", directory.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return len(self._firsts) * 4 + len(self._offsets) * 8

    def at(self, row: int) -> tuple[int, int, int, int]:
        """Return of the block with a row: its number, its offset, its bytes; and the row in it."""
        block = bisect_right(self._firsts, row) - 1
        start = self._offsets[block]
        size = self._offsets[block + 1] - start
        return self.number + block, start, size, row - self._firsts[block]


class DirectoryWriter:
    """Notes where the blocks of one group lie, as they are written."""

    def __init__(self, number: int, offset: int) -> None:
        self.number, self._begun = number, number
        self._firsts, self._offsets = array("I"), array("Q", [offset])

    def add(self, first: int, size: int) -> None:
        """Note the next block."""
        self._firsts.append(first)
        self._offsets.append(self._offsets[-1] + size)
        self.number += 1

    def directory(self) -> BlockDirectory:
        """Return what was noted."""
        return BlockDirectory(self._begun, self._firsts.tobytes(), self._offsets.tobytes())


def sealed(pieces: Pieces, salt: int, number: int) -> bytes:
    """Return a block with its check."""
    data = b"".join(pieces)
    return data + xxhash.xxh3_64_digest(data, (salt + number) % _SEEDS)


def is_sound(block: bytes, salt: int, number: int) -> bool:
    """Say whether a block is the one that was written there."""
    data = memoryview(block)[:-CHECK_BYTES]
    return xxhash.xxh3_64_digest(data, (salt + number) % _SEEDS) == block[-CHECK_BYTES:]


def encode_foot(foot: PartFoot) -> bytes:
    """Return the bytes behind the blocks."""
    body = msgspec.msgpack.encode(foot)
    return body + _TRAILER.pack(_MAGIC, len(body), xxhash.xxh3_64_intdigest(body))


def foot_bytes(trailer: bytes, size: int) -> int | None:
    """Return the length of the foot of a file of `size` bytes; None: it is no part file."""
    if len(trailer) != TRAILER_BYTES:
        return None
    magic, length, _ = _TRAILER.unpack(trailer)
    return length if magic == _MAGIC and length <= size - TRAILER_BYTES else None


def decode_foot(body: bytes, trailer: bytes, identity: bytes) -> PartFoot | None:
    """Return the foot of the file of some rows; None: it is damaged, or of other rows."""
    if xxhash.xxh3_64_intdigest(body) != _TRAILER.unpack(trailer)[2]:
        return None
    try:
        foot = msgspec.msgpack.decode(body, type=PartFoot)
    except msgspec.DecodeError:
        return None
    return foot if foot.identity == identity else None
