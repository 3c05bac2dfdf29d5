r"""Backup manifest: the files of one snapshot in a backup directory.

    line 1   "siltstone-backup <format> <check>\n"
    body     JSON, UTF-8: the fields of `Backup`

See `formats.checked_json`. A backup creates this file last: without it, files are no backup.
"""

from __future__ import annotations

import msgspec

from siltstone.formats.checked_json import CheckedJson


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
    `files/` of the directory. `damaged` are files that were left out, by request: a store that is
    restored from it does not have them either.

    Examples:
        >>> done = db.backup("copy")
        >>> [backup.seq for backup in st.backups("copy")] == [done.seq]
        True
    """

    store_id: str
    seq: int
    record: int
    time_us: int
    made_us: int
    islands: tuple[int, ...]
    log: BackupFile
    files: tuple[BackupFile, ...]
    damaged: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The size of all files in bytes."""
        return self.log.size + sum(file.size for file in self.files)


_FILE = CheckedJson(
    b"siltstone-backup", msgspec.json.Decoder(Backup),
    file="backup manifest", whole="manifest", value="backup",
)  # fmt: skip
encode, decode = _FILE.encode, _FILE.decode
