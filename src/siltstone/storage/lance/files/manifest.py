"""Lance manifest: reads fields from a manifest's bytes, before Lance opens them.

    ... u32 length, protobuf (lance.table.Manifest) ... u64 position of that, u16, u16, "LANC"

Little-endian. It reads only a few top-level fields of the protobuf, and checks lengths against the
bytes, so wrong lengths end in an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from siltstone.errors import RequestError
from siltstone.units import require

T = TypeVar("T", int, bytes)
MALFORMED = (struct.error, IndexError, OverflowError, ValueError, TypeError)
"""What the readers here raise of bytes that are no protobuf, or another one."""
_INCOMPLETE = "the manifest is cut off, or not a manifest of Lance"
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
FRAGMENTS, _FRAGMENT_ID, _DELETION_FILE = 2, 1, 3
_VERSION, _READER_FLAGS, _WRITER_FLAGS, _FRAGMENT_ID_MAX, _TRANSACTION = 3, 9, 10, 11, 12
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

DELETION_FILES, STABLE_ROW_IDS, V2_FORMAT, TABLE_CONFIG, BASE_PATHS = 1, 2, 4, 8, 16
_FLAGS = {
    DELETION_FILES: "deletion files",
    STABLE_ROW_IDS: "stable row ids",
    V2_FORMAT: "format v2 (deprecated)",
    TABLE_CONFIG: "table config",
    BASE_PATHS: "base paths",
}
SUPPORTED = DELETION_FILES | STABLE_ROW_IDS | V2_FORMAT | TABLE_CONFIG


class Manifest(msgspec.Struct, frozen=True):
    """The fields we need; `transaction` names the file of the transaction that made it.

    `fragment_id_max` is the highest id that a fragment of the dataset ever had; -1: it had none.
    """

    version: int
    reader_flags: int
    writer_flags: int
    transaction: str
    fragment_id_max: int = -1


def decode(data: bytes) -> Manifest:
    """Return the fields of a manifest.

    Raises:
        RequestError: The bytes are no complete manifest.
    """
    try:
        found = {number: value for number, value, _ in fields(body_of(data))}
        return Manifest(
            version=typed(found.get(_VERSION, 0), int),
            reader_flags=typed(found.get(_READER_FLAGS, 0), int),
            writer_flags=typed(found.get(_WRITER_FLAGS, 0), int),
            transaction=typed(found.get(_TRANSACTION, b""), bytes).decode(),
            fragment_id_max=typed(found.get(_FRAGMENT_ID_MAX, -1), int),
        )
    except MALFORMED as error:
        raise RequestError(_INCOMPLETE) from error


def body_of(data: bytes) -> bytes:
    """Return the protobuf in a manifest.

    Raises:
        RequestError, struct.error: The bytes are no complete manifest.
    """
    position, _, _, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    body = section(data, position)
    if magic != _MAGIC:
        raise RequestError(_INCOMPLETE)
    return body


def section(data: bytes, position: int) -> bytes:
    """Return the message at a position of a manifest: its length comes first.

    Raises:
        RequestError, struct.error: The bytes end before it does.
    """
    (length,) = _LENGTH.unpack_from(data, position)
    found = data[position + _LENGTH.size : position + _LENGTH.size + length]
    if len(found) != length:
        raise RequestError(_INCOMPLETE)
    return found


def renumbered(data: bytes, version: int) -> bytes:
    """Return a manifest of Lance with another version number."""
    given = _encoded(_VERSION << 3) + _encoded(version)

    def changed(body: bytes) -> bytes:
        kept = [field for number, _, field in fields(body) if number != _VERSION]
        return b"".join([*kept, given])

    return _with_body(data, changed)


def _with_body(data: bytes, changed: Callable[[bytes], bytes]) -> bytes:
    """Return a manifest with another protobuf.

    Sections before it (indexes, the transaction) are found by their positions, which do not move.
    """
    position, major, minor, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    body = data[start : start + length]
    require(magic == _MAGIC and len(body) == length, "a manifest of Lance is incomplete")
    made = changed(body)
    footer = _FOOTER.pack(position, major, minor, magic)
    after = data[start + length : -_FOOTER.size]
    return data[:position] + _LENGTH.pack(len(made)) + made + after + footer


class DeletionFile(msgspec.Struct, frozen=True):
    """A file with the offsets of a fragment's deleted rows, by its name below the dataset."""

    name: str
    rows: int


def without_deletions(data: bytes) -> tuple[bytes, dict[int, DeletionFile]]:
    """Return a manifest whose fragments have no deletion files; and these, by fragment."""
    found: dict[int, DeletionFile] = {}

    def bare(number: int, value: int | bytes, field: bytes) -> bytes:
        if number != FRAGMENTS:
            return field
        inner = [*fields(typed(value, bytes))]
        fragment = next((typed(v, int) for n, v, _ in inner if n == _FRAGMENT_ID), 0)
        for each, stored, _ in inner:
            if each == _DELETION_FILE:
                found[fragment] = deletion_file(fragment, typed(stored, bytes))
        kept = b"".join(raw for each, _, raw in inner if each != _DELETION_FILE)
        return _encoded(FRAGMENTS << 3 | _BYTES) + _encoded(len(kept)) + kept

    return _with_body(data, lambda body: b"".join(bare(*each) for each in fields(body))), found


def deletion_file(fragment: int, body: bytes) -> DeletionFile:
    """Return what a fragment says of its deletion file."""
    found = {number: value for number, value, _ in fields(body)}
    kind, version, number, rows = (typed(found.get(field, 0), int) for field in (1, 2, 3, 4))
    suffix = ("arrow", "bin")[kind]
    return DeletionFile(f"_deletions/{fragment}-{version}-{number}.{suffix}", rows)


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def refuse_flags(manifest: Manifest) -> None:
    """Check that a version needs only features that this store supports.

    Raises:
        RequestError: It needs others, which the message names.
    """
    strange = (manifest.reader_flags | manifest.writer_flags) & ~SUPPORTED
    if strange:
        bits = [1 << bit for bit in range(strange.bit_length()) if strange >> bit & 1]
        names = ", ".join(_FLAGS.get(bit, f"feature flag {bit}") for bit in bits)
        raise RequestError(f"the version needs features that this store does not support: {names}")


def fields(body: bytes, at: int = 0) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield the top-level fields of a protobuf message: number, value, and all its bytes.

    From `at` on, where one begins.
    """
    while at < len(body):
        first = at
        key, at = _varint(body, at)
        value, at = _value(body, key & 7, at)
        if at > len(body):
            raise ValueError(at)
        yield key >> 3, value, body[first:at]


def _value(body: bytes, kind: int, at: int) -> tuple[int | bytes, int]:
    """Return the value of a field, and where it ends."""
    if kind == _VARINT:
        return _varint(body, at)
    if kind == _BYTES:
        size, at = _varint(body, at)
    elif kind in {_FIXED64, _FIXED32}:
        size = 8 if kind == _FIXED64 else 4
    else:
        raise ValueError(kind)
    return body[at : at + size], at + size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(at)


def typed(value: object, kind: type[T]) -> T:
    """Return a field's value; raise TypeError if it is of another kind."""
    if not isinstance(value, kind):
        raise TypeError(value)
    return value
