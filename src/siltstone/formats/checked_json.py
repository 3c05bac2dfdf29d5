r"""Checked JSON: a value in its own file that says its format and guards its bytes.

    line 1   "<magic> <format> <check>\n"
    body     JSON, UTF-8: the fields of the value

`check` is 16 hex digits: the xxh3-64 of "<magic> <format> " and the body. Line 1 stays like this in
all formats: a file with a right check and a higher format is newer, not damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import xxhash

from siltstone.errors import CorruptionError, UnsupportedFormatError

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class CheckedJson(Generic[T]):
    """One kind of such files; `file`, `whole` and `value` are their names in messages.

    `format` is the newest format that is read, and the one that is written unless `encode` says
    another.
    """

    magic: bytes
    format: int
    decoder: msgspec.json.Decoder[T]
    file: str
    whole: str
    value: str

    def encode(self, value: T, format: int | None = None) -> bytes:  # noqa: A002 - its name
        """Return the bytes of the file."""
        body = _ENCODER.encode(value)
        head = b"%s %d " % (self.magic, self.format if format is None else format)
        return b"%s%s\n%s" % (head, _check(head, body), body)

    def decode(self, data: bytes, path: str) -> T:
        """Return the value in the bytes `data` of the file `path`.

        Raises:
            UnsupportedFormatError: A newer siltstone wrote it.
            CorruptionError: The bytes are not those that siltstone wrote.
        """
        line, found, body = data.partition(b"\n")
        words = line.split(b" ")
        if not found or len(words) != 3 or words[0] != self.magic or not words[1].isdigit():
            raise CorruptionError(path, 0, f"not a {self.file}")
        at = len(line) + 1
        if _check(b"%s %s " % (words[0], words[1]), body) != words[2]:
            raise CorruptionError(path, at, f"the checksum of the {self.whole} does not match")
        if not 1 <= int(words[1]) <= self.format:
            raise UnsupportedFormatError(path, int(words[1]), self.format)
        try:
            return self.decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptionError(path, at, f"not a {self.value}: {error}") from error


def _check(head: bytes, body: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(head + body).encode()
