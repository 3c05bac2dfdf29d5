r"""Frame: one request, or one piece of an answer, on the socket of an owner on this machine.

    opening    b"siltstone rpc 6\n", once, before the first request of a connection
    request    u32  bytes that follow
               u16  bytes of the head
               head: msgpack [path, media type, id, transaction, snapshot]; "" where there is none
               body
    answer     u32  bytes that follow
               u16  status, as of HTTP
               u8   1: the body is rows; 2: more frames of this answer follow; 4: some tables are
                    closed to first tries (`process.turns`)
               u8   bytes of the id
               id   under which the connection's next commit is to be asked for
               body

Numbers are little-endian. A request without a media type asks for what takes no arguments. The
layout of an opening and of an answer never changes: so each end can say which version it speaks.
What begins with "HTTP" is the answer of a siltstone that spoke HTTP here (version 4 and before).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from siltstone.joined import protocol

OPENING = b"siltstone rpc %d\n" % protocol.VERSION
OPENING_WORD = b"siltstone rpc "
OF_HTTP = b"HTTP"
LENGTH = struct.Struct("<I")
REQUEST = struct.Struct("<IH")
ANSWER = struct.Struct("<IHBB")
HEAD_BYTES_MAX = 4096
ROWS, MORE, CLOSED = 1, 2, 4

Head = tuple[str, str, str, str, str]
"""Path, media type, id, transaction, snapshot."""

_encode_head = msgspec.msgpack.Encoder().encode
head_of = msgspec.msgpack.Decoder(Head).decode
"""Returns the head of a request, or raises MsgspecError: the bytes are none."""


class AnswerHead(NamedTuple):
    """What an answer says before its body: `nbytes` of it follow."""

    nbytes: int
    status: int
    flags: int
    id_bytes: int


def request_parts(head: Head, body: bytes) -> list[bytes]:
    """Return a request as buffers to send in this order; the body is not copied."""
    said = _encode_head(head)
    return [REQUEST.pack(len(said) + 2 + len(body), len(said)) + said, body]


def answer(status: int, flags: int, reserved: str, body: bytes) -> bytes:
    """Return one frame of an answer."""
    name = reserved.encode("ascii")
    return ANSWER.pack(len(name) + len(body) + 4, status, flags, len(name)) + name + body


def answer_head(data: bytes | bytearray | memoryview) -> AnswerHead:
    """Return what the first `ANSWER.size` bytes of an answer say."""
    nbytes, status, flags, id_bytes = ANSWER.unpack_from(data)
    return AnswerHead(nbytes - 4, status, flags, id_bytes)
