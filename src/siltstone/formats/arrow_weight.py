"""Arrow weight: the memory that an Arrow IPC stream would take, according to its messages.

A compressed buffer begins with its length when decompressed, so a body that would grow a
thousandfold is known before a byte of it is decompressed.

The head of a message is a flatbuffer (`Message.fbs` of Arrow): a table has a signed offset back to
its vtable, which has u16 offsets of its fields; a vector has its u32 length before its elements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

_HEADER_TYPE, _HEADER = 1, 2  # fields of Message
_DICTIONARY, _RECORD_BATCH = 2, 3  # kinds of header
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # fields of RecordBatch
_DICTIONARY_DATA = 1  # field of DictionaryBatch


def weights(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the rows and the decompressed bytes of each record batch and dictionary.

    Raises:
        pa.ArrowException, OSError, struct.error, IndexError: The bytes are no Arrow IPC stream.
    """
    for head, data in _messages(body):
        kind, at = _header_of(head)
        if kind not in {_RECORD_BATCH, _DICTIONARY}:
            continue
        if kind == _DICTIONARY:
            at = _table_at(head, at, _DICTIONARY_DATA)
        yield max(0, _number(head, at, _LENGTH)), _weight(head, at, data)


def _messages(body: bytes) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield the head and the data of each message."""
    source = pa.BufferReader(body)
    while True:
        try:
            message = pa.ipc.read_message(source)
        except EOFError:
            return
        data = message.body
        yield (
            memoryview(message.metadata),  # type: ignore[arg-type]
            memoryview(b"" if data is None else data),  # type: ignore[arg-type]
        )


def _weight(head: memoryview, batch: int, data: memoryview) -> int:
    """Return how many bytes the buffers of a record batch take once they are decompressed."""
    if not _field(head, batch, _COMPRESSION):
        return len(data)
    vector = _table_at(head, batch, _BUFFERS)
    (count,) = struct.unpack_from("<I", head, vector)
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", head, vector + 4 + 16 * number)
        if length < 8:
            continue
        (plain,) = struct.unpack_from("<q", data, offset)
        total += length if plain < 0 else plain  # -1: this one is not compressed
    return total


def _header_of(head: memoryview) -> tuple[int, int]:
    (root,) = struct.unpack_from("<I", head, 0)
    at = _field(head, root, _HEADER_TYPE)
    kind = head[at] if at else 0
    return kind, _table_at(head, root, _HEADER) if _field(head, root, _HEADER) else 0


def _field(head: memoryview, table: int, number: int) -> int:
    """Return where a field of a table lies; 0 if it is absent."""
    (back,) = struct.unpack_from("<i", head, table)
    vtable = table - back
    if vtable < 0:
        raise IndexError("a table without a vtable")
    (size,) = struct.unpack_from("<H", head, vtable)
    if 4 + 2 * number + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", head, vtable + 4 + 2 * number)
    return table + offset if offset else 0


def _table_at(head: memoryview, table: int, number: int) -> int:
    """Return where the table or vector that a field points to lies."""
    at = _field(head, table, number)
    if not at:
        raise IndexError("a message without a body")
    return at + struct.unpack_from("<I", head, at)[0]


def _number(head: memoryview, table: int, number: int) -> int:
    at = _field(head, table, number)
    return struct.unpack_from("<q", head, at)[0] if at else 0
