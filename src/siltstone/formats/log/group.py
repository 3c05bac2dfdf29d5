"""Group: the commits that one frame carries, as the frame's payload.

    u32 little-endian   length of the head in bytes
    head                msgpack: [epoch, time_us, [member...], [blob length...]], padded to 8
    blobs               Arrow record batch messages, each padded to 8 bytes, in order

`epoch` is the epoch of the owner that committed. It stays when recovery writes the frame again in a
later epoch, because epoch and number name a transaction. A member is one transaction: [number,
rows, token | nil, [entry, ...]]; the i-th member has seq first_seq + i and commit time time_us + i.
An entry is a list that begins with its kind:

    0 rows      incarnation, schema id, [row...], [key...]   upserts, then deletes
    1 batch     incarnation, schema id, op, blob index    rows that arrived as Arrow
    2 attach    incarnation, schema id, pin, op, rows     staged rows become a run of the seq
    3 advance   incarnation, from version, pin            a plain (or empty keyed) table moves
    4 create    table id, name, schema
    5 drop      table id
    6 rename    table id, name
    7 alter     table id, schema, next column id
    8 truncate  table id, incarnation
    9 tag       name, seq | nil, seconds              nil removes it; 0 seconds: it stays
    10 claim    app, claim, holder                    "": without a name
    11 hide     incarnation, first, end               stops listing plain versions [first, end)
    12 compact  incarnation, from version, pin        a plain table moves to other files with
                                                      the same rows
    13 namespace       name, {property: value}        creates a namespace, without a table
    14 drop namespace  name
    15 forget   app                                   a token app, its batches and its claims

A further kind comes with a higher format (`formats.store_format`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa

from siltstone.errors import UnsupportedFormatError
from siltstone.formats.manifest import Pin, Schema
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.units import require

T = TypeVar("T")

UPSERT, DELETE = 0, 1
_LENGTH = struct.Struct("<I")


class Token(msgspec.Struct, frozen=True, array_like=True):
    """An idempotency token: batch number `batch` of the application `app`."""

    app: str
    batch: int


class RowsEntry(msgspec.Struct, frozen=True, array_like=True, tag=0):
    incarnation: int
    schema: int
    upserts: list
    deletes: list


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    incarnation: int
    schema: int
    op: int
    blob: int


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=2):
    incarnation: int
    schema: int
    pin: Pin
    op: int
    rows: int


class Advance(msgspec.Struct, frozen=True, array_like=True, tag=3):
    incarnation: int
    from_version: int
    pin: Pin


class Create(msgspec.Struct, frozen=True, array_like=True, tag=4):
    table: int
    name: str
    schema: Schema


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=5):
    table: int


class Rename(msgspec.Struct, frozen=True, array_like=True, tag=6):
    table: int
    name: str


class Alter(msgspec.Struct, frozen=True, array_like=True, tag=7):
    table: int
    schema: Schema
    next_column: int


class Truncate(msgspec.Struct, frozen=True, array_like=True, tag=8):
    table: int
    incarnation: int


class Tagged(msgspec.Struct, frozen=True, array_like=True, tag=9):
    name: str
    seq: int | None
    lasts_s: int = 0


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=10):
    app: str
    claim: int
    holder: str = ""


class Hide(msgspec.Struct, frozen=True, array_like=True, tag=11):
    incarnation: int
    first: int
    end: int


class Compact(msgspec.Struct, frozen=True, array_like=True, tag=12):
    incarnation: int
    from_version: int
    pin: Pin


class CreateNamespace(msgspec.Struct, frozen=True, array_like=True, tag=13):
    name: str
    properties: dict[str, str]


class DropNamespace(msgspec.Struct, frozen=True, array_like=True, tag=14):
    name: str


class ForgetApp(msgspec.Struct, frozen=True, array_like=True, tag=15):
    app: str


Entry = (
    RowsEntry | Batch | Attach | Advance
    | Create | Drop | Rename | Alter | Truncate | Tagged | Claim
    | Hide | Compact | CreateNamespace | DropNamespace | ForgetApp
)  # fmt: skip


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One transaction of a group. `number` is unique within an epoch; `rows` counts its rows."""

    number: int
    rows: int
    token: Token | None
    entries: list[Entry]


class _UnreadMember(msgspec.Struct, frozen=True, array_like=True):
    number: int
    rows: int
    token: msgspec.Raw
    entries: list[msgspec.Raw]


class _UnreadHead(msgspec.Struct, frozen=True, array_like=True):
    """A head of which no rows are made."""

    epoch: int
    time_us: int
    members: list[_UnreadMember]
    blobs: list[int]


class Head(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    time_us: int
    members: list[Member]
    blobs: list[int]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Head)
_UNREAD = msgspec.msgpack.Decoder(_UnreadHead)
_NAMING = frozenset({2, 3, 12})
_NAMES = msgspec.msgpack.Decoder(Attach | Advance | Compact)


def encode(
    epoch: int, time_us: int, members: list[Member], blobs: Sequence[pa.Buffer] = ()
) -> list[bytes | bytearray | memoryview]:
    """Return the payload as buffers to write in this order; blobs are not copied."""
    sizes = [blob.size for blob in blobs] if blobs else []
    head = _ENCODER.encode(Head(epoch, time_us, members, sizes))
    pad = -(len(head) + _LENGTH.size) % 8
    buffers: list[bytes | bytearray | memoryview] = [_LENGTH.pack(len(head)) + head + b"\0" * pad]
    for blob in blobs:
        buffers.append(memoryview(blob))
        if blob.size % 8:
            buffers.append(b"\0" * (-blob.size % 8))
    return buffers


def _head_of(payload: bytes | memoryview, decoder: msgspec.msgpack.Decoder[T]) -> tuple[T, int]:
    """Return the head of a group, and where it ends."""
    view = memoryview(payload)
    (length,) = _LENGTH.unpack_from(view)
    end = _LENGTH.size + length
    try:
        return decoder.decode(view[_LENGTH.size : end]), end
    except msgspec.MsgspecError as error:
        found = f"{STORE_FORMAT} with entries of another form ({error})"
        raise UnsupportedFormatError("wal", found, STORE_FORMAT) from error


def decode(payload: bytes | memoryview) -> tuple[Head, list[pa.Buffer]]:
    """Return the head and the blobs of a payload from an intact frame.

    Raises:
        UnsupportedFormatError: It has unknown entries: another build wrote it.
    """
    head, offset = _head_of(payload, _DECODER)
    offset += -offset % 8
    whole = pa.py_buffer(payload)
    blobs: list[pa.Buffer] = []
    for size in head.blobs:
        blobs.append(whole.slice(offset, size))
        offset += size + -size % 8
    require(offset <= whole.size, f"blobs end at {offset}, the payload at {whole.size}")
    return head, blobs


def pins(payload: bytes | memoryview) -> list[Pin]:
    """Return the versions that a payload names: of bulk commits, and steps of plain tables.

    The rows in it are not looked at.

    Raises:
        UnsupportedFormatError: As `decode`.
    """
    head, _ = _head_of(payload, _UNREAD)
    entries = (entry for member in head.members for entry in member.entries)
    # An entry is an array of less than 16, so its kind is its second byte.
    return [_NAMES.decode(entry).pin for entry in entries if memoryview(entry)[1] in _NAMING]


def first_of(payload: bytes | memoryview, count: int) -> bytes:
    """Return a payload with the first `count` members alone.

    Raises:
        UnsupportedFormatError: As `decode`.
    """
    head, blobs = decode(payload)
    return b"".join(encode(head.epoch, head.time_us, head.members[:count], blobs))
