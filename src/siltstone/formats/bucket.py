r"""Bucket: the mark of a mirror, and the records of its own chain.

    STORE                       line 1 "siltstone-bucket <format> <check>\n", then `BucketMark`
    manifest/<number>.json      line 1 "siltstone-bucket-record <format> <check>\n", `BucketRecord`
    islands/<number>-<writer>.json   a record of the store that a tag needs, as it is on disk
    inventory/ tables/ commits/      files, by their paths in the store

See `formats.checked_json`. Each object is put once and never changed. The numbers of the chain are
the bucket's: 1, 2, 3, ... without a gap, whatever records of the store were thinned or skipped.
"""

from __future__ import annotations

import msgspec

from siltstone.formats.backup import BackupFile
from siltstone.formats.checked_json import CheckedJson
from siltstone.formats.manifest import Record

MARK = "STORE"
RECORDS, ISLANDS = "manifest/", "islands/"


class BucketMark(msgspec.Struct, frozen=True):
    """Whose mirror it is: put first, once. `writer` is the token of the process that put it.

    `server` is what the probe was told by the server; times are microseconds since 1970 UTC.
    """

    store_id: str
    writer: str
    time_us: int
    server: str


class BucketRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the bucket's chain: a copy of a record of the store.

    `writer` is the token of the publish. `record` is the store's: its number and its writer say
    what was copied. The files that it needs are in the bucket, `files` with `nbytes` in all.
    `islands` are older records, which tags need, with their files.

    `wal_epoch` and `wal_floor` are of a log in the bucket; without one it has the commits up to
    `record.flushed_seq`.
    """

    number: int
    writer: str
    time_us: int
    record: Record
    islands: tuple[BackupFile, ...] = ()
    files: int = 0
    nbytes: int = 0
    wal_epoch: int = 0
    wal_floor: int = 0

    @property
    def seq(self) -> int:
        """The seq that the bucket holds with this record."""
        return self.record.flushed_seq

    @property
    def copied(self) -> tuple[int, str]:
        """Number and writer of the store's record."""
        return self.record.number, self.record.writer


class MirroredRecords(msgspec.Struct, frozen=True):
    """What a store knows of its mirror at `url`: the records sent there, oldest first.

    It is written before a record is put, so the store knows also one whose put landed late.
    """

    url: str
    sent: tuple[tuple[int, str], ...] = ()


_MARK = CheckedJson(
    b"siltstone-bucket", msgspec.json.Decoder(BucketMark),
    file="mark of a mirror", whole="mark", value="mark",
)  # fmt: skip
_RECORD = CheckedJson(
    b"siltstone-bucket-record", msgspec.json.Decoder(BucketRecord),
    file="record of a bucket", whole="record", value="record",
)  # fmt: skip
_SENT = CheckedJson(
    b"siltstone-mirrored", msgspec.json.Decoder(MirroredRecords),
    file="list of mirrored records", whole="list", value="list",
)  # fmt: skip
encode_mark, decode_mark = _MARK.encode, _MARK.decode
encode_record, decode_record = _RECORD.encode, _RECORD.decode
encode_sent, decode_sent = _SENT.encode, _SENT.decode


def record_key(number: int) -> str:
    """Return the key of a record of the chain."""
    return f"{RECORDS}{number:020d}.json"


def island_key(record: Record) -> str:
    """Return the key of a copy of a record of the store."""
    return f"{ISLANDS}{record.number:020d}-{record.writer}.json"
