r"""Checked JSON: a value in its own file that says its format and guards its bytes.

    line 1   "<magic> <format> <check>\n"
    body     JSON, UTF-8: the fields of the value

`check` is 16 hex digits: the xxh3-64 of "<magic> <format> " and the body. Line 1 stays like this in
all formats: a file with a right check and another format is of another siltstone, not damaged.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.store_format import STORE_FORMAT, is_format, refuse_other

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="deterministic")


class CheckedJson(msgspec.Struct, Generic[T], frozen=True):
    """One kind of such files; `file`, `whole` and `value` are their names in messages."""

    magic: bytes
    decoder: msgspec.json.Decoder[T]
    file: str
    whole: str
    value: str

    def encode(self, value: T) -> bytes:
        """Return the bytes of the file."""
        body = _ENCODER.encode(value)
        head = b"%s %d " % (self.magic, STORE_FORMAT)
        return b"%s%s\n%s" % (head, _check(head, body), body)

    def decode(self, data: bytes, path: str) -> T:
        """Return the value in the bytes `data` of the file `path`.

        Raises:
            UnsupportedFormatError: A siltstone of another format wrote it.
            CorruptionError: The bytes are not those that siltstone wrote.
        """
        line, found, body = data.partition(b"\n")
        words = line.split(b" ")
        if not found or len(words) != 3 or words[0] != self.magic or not is_format(words[1]):
            raise CorruptionError(path, 0, f"not a {self.file}")
        at = len(line) + 1
        if _check(b"%s %s " % (words[0], words[1]), body) != words[2]:
            raise CorruptionError(path, at, f"the checksum of the {self.whole} does not match")
        refuse_other(path, int(words[1]))
        try:
            return self.decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptionError(path, at, f"not a {self.value}: {error}") from error


def _check(head: bytes, body: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(head + body).encode()
