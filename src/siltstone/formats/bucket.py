r"""Bucket: the mark of a mirror, and the records of its own chain.

    STORE                       line 1 "siltstone-bucket <format> <check>\n", then `BucketMark`
    manifest/<number>.json      line 1 "siltstone-bucket-record <format> <check>\n", `BucketRecord`
    manifest/FLOOR              which records are kept: `storage.manifest.floor`
    islands/<number>-<writer>.json   a record of the store that a tag needs, as it is on disk
    leases/<token>              line 1 "siltstone-bucket-lease <format> <check>\n", `BucketLease`
    inventory/ tables/ commits/      files, by their paths in the store
    wal/<epoch>/<number>        the log, if it is shipped: `formats.log.log_object`

See `formats.checked_json`. STORE and FLOOR are changed by a put if the ETag is still the same, a
lease by its reader; all other objects are put once and never changed. The numbers of the chain are
the bucket's: 1, 2, 3, ... without a gap, whatever records of the store were thinned or skipped;
those that FLOOR does not keep are dead.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from siltstone.formats.backup import BackupFile
from siltstone.formats.checked_json import CheckedJson
from siltstone.formats.log.log_object import BEGINNING, LogPlace
from siltstone.formats.manifest import Record

MARK = "STORE"
RECORDS, ISLANDS, LEASES = "manifest/", "islands/", "leases/"
FLOOR = f"{RECORDS}FLOOR"


class MirrorHolder(msgspec.Struct, frozen=True):
    """Who has claimed the bucket: a process of the store at `path`; since when, by its clock."""

    host: str
    path: str
    pid: int
    time_us: int

    def __str__(self) -> str:
        since = dt.datetime.fromtimestamp(self.time_us // 1_000_000, dt.UTC)
        return (
            f"process {self.pid} on {self.host}, of the store at {self.path},"
            f" since {since:%Y-%m-%dT%H:%M:%SZ}"
        )


class BucketMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose mirror it is, and who writes it. `writer` is the token of the put.

    `epoch` rises with each claim. `holder` has claimed the bucket; None: nobody has, the last one,
    `released`, ended. `server` is what the probe was told by the server; times are microseconds
    since 1970 UTC.
    """

    store_id: str
    writer: str
    time_us: int
    server: str
    epoch: int = 0
    holder: MirrorHolder | None = None
    released: MirrorHolder | None = None

    @property
    def last(self) -> MirrorHolder | None:
        """Who claimed it last."""
        return self.holder or self.released


class BucketLease(msgspec.Struct, frozen=True):
    """A reader needs the files of a record: for `ttl_s` after the put, by the server's time.

    `reader` says who it is, for messages.
    """

    record: int
    ttl_s: float
    reader: str


class BucketRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the bucket's chain: a copy of a record of the store.

    `writer` is the token of the publish. `record` is the store's: its number and its writer say
    what was copied. The files that it needs are in the bucket, `files` with `nbytes` in all.
    `islands` are older records, which tags need, with their files.

    `wal_epoch` and `wal_floor` are of a log in the bucket; without one it has the commits up to
    `record.flushed_seq`. `epoch` is that of the claim under which it was published.
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
    epoch: int = 0

    @property
    def seq(self) -> int:
        """The seq that the bucket holds with this record."""
        return self.record.flushed_seq

    @property
    def oldest_seq(self) -> int:
        """The oldest seq that a store restored from it can read: it has no older bases.

        The store itself reads more, by its older records.
        """
        merged = (storage.merged_seq for storage in self.record.keyed)
        return max(self.record.oldest_seq, *merged, 0)

    @property
    def log_begin(self) -> LogPlace:
        """Where the log above it begins; without a floor, where every log does."""
        return LogPlace(self.wal_epoch, self.wal_floor) if self.wal_floor else BEGINNING

    @property
    def copied(self) -> tuple[int, str]:
        """Number and writer of the store's record."""
        return self.record.number, self.record.writer


class MirroredRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store knows of its mirror at `url`: the records sent there, oldest first.

    It is written before a record is put, so the store knows also one whose put landed late.

    `record` is the bucket's number of the last one that landed, with all commits up to `seq`, the
    last of them at `time_us`, in `nbytes` of files. `is_owed`: an end of the store did not
    wait for the rest. `origin`: the store was restored from the record of the bucket with this
    number and writer.
    """

    url: str
    sent: tuple[tuple[int, str], ...] = ()
    record: int = 0
    seq: int = 0
    time_us: int = 0
    nbytes: int = 0
    is_owed: bool = False
    origin: tuple[int, str] | None = None


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
_LEASE = CheckedJson(
    b"siltstone-bucket-lease", msgspec.json.Decoder(BucketLease),
    file="lease of a bucket", whole="lease", value="lease",
)  # fmt: skip
encode_mark, decode_mark = _MARK.encode, _MARK.decode
encode_record, decode_record = _RECORD.encode, _RECORD.decode
encode_sent, decode_sent = _SENT.encode, _SENT.decode
encode_lease, decode_lease = _LEASE.encode, _LEASE.decode


def record_key(number: int) -> str:
    """Return the key of a record of the chain."""
    return f"{RECORDS}{number:020d}.json"


def island_key(record: Record) -> str:
    """Return the key of a copy of a record of the store."""
    return f"{ISLANDS}{record.number:020d}-{record.writer}.json"
