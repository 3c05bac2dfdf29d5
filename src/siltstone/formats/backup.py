r"""Backup manifest: the files of one snapshot in a backup directory.

    line 1   "siltstone-backup <format> <check>\n"
    body     JSON, UTF-8: the fields of `Backup`

`check` is 16 hex digits: the xxh3-64 of "siltstone-backup <format> " and the body. A backup creates
this file last: without it, files are no backup.
"""

from __future__ import annotations

import msgspec
import xxhash

from siltstone.errors import CorruptionError, UnsupportedFormatError

BACKUP_FORMAT = 1
_MAGIC = b"siltstone-backup"


class BackupFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the store: its path below the store's root, bytes, xxh3 (64 bits, hex)."""

    path: str
    size: int
    xxh3: str


class Backup(msgspec.Struct, frozen=True):
    """All tables of a store as of `seq`. Times are microseconds since 1970 UTC.

    `time_us` is the time of the commit `seq`, `made_us` the time of the backup. `record` is the
    number of the manifest record that names the files, `islands` the numbers of older records
    that tags need. `log` holds the commits above the record. All files except the log lie below
    `files/` of the directory.
    """

    store_id: str
    seq: int
    record: int
    time_us: int
    made_us: int
    islands: tuple[int, ...]
    log: BackupFile
    files: tuple[BackupFile, ...]
    format: int = BACKUP_FORMAT

    @property
    def nbytes(self) -> int:
        """The size of all files in bytes."""
        return self.log.size + sum(file.size for file in self.files)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Backup)


def _check(head: bytes, body: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(head + body).encode()


def encode(backup: Backup) -> bytes:
    """Return the bytes of a backup manifest."""
    body = _ENCODER.encode(backup)
    head = b"%s %d " % (_MAGIC, BACKUP_FORMAT)
    return b"%s%s\n%s" % (head, _check(head, body), body)


def decode(data: bytes, path: str) -> Backup:
    """Return the backup that the bytes `data` of the file `path` describe.

    Raises:
        UnsupportedFormatError: A newer siltstone wrote it.
        CorruptionError: The bytes are not those that siltstone wrote.
    """
    line, found, body = data.partition(b"\n")
    words = line.split(b" ")
    if not found or len(words) != 3 or words[0] != _MAGIC or not words[1].isdigit():
        raise CorruptionError(path, 0, "not a backup manifest")
    if _check(b"%s %s " % (words[0], words[1]), body) != words[2]:
        raise CorruptionError(path, len(line) + 1, "the checksum of the manifest does not match")
    if int(words[1]) != BACKUP_FORMAT:
        raise UnsupportedFormatError(path, int(words[1]), BACKUP_FORMAT)
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, len(line) + 1, f"not a backup: {error}") from error
