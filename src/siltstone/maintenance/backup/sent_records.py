"""Sent records: which records of a store its mirror at a URL may have, in the store's directory.

    mirrors/<xxh3 of the URL>.json   `formats.bucket.MirroredRecords`
    mirrors/<xxh3 of the URL>.lock   flock'd by the one mirror to that URL

A vacuum thins the store's own records. Then this list alone says whether the bucket's newest record
is one of ours, or of a copy of the store that went on by itself. A record is in it before it is
sent, so it is there also if its put lands after the process is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from siltstone.errors import BusyError, CorruptionError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketRecord, MirroredRecords
from siltstone.storage.files.files import Files, make_private, names_in
from siltstone.storage.files.locks import releasing

DIRECTORY = "mirrors"
SENT_MAX = 64
"""So many are kept, the newest ones: of runs that failed one after the other."""


@dataclass(frozen=True, slots=True)
class SentRecords:
    """See the module. Lock: the flock."""

    files: Files
    root: Path
    url: str

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Be the one mirror of this machine to the URL.

        Raises:
            BusyError: Another one is running.
        """
        make_private(self.files, self.root / DIRECTORY)
        lock = self.files.lock(self._path("lock"), create=True)
        if lock is None:
            raise BusyError(f"another mirror of {self.root} to {self.url} is running")
        with releasing(lock):
            yield

    def has(self, copied: tuple[int, str]) -> bool:
        return copied in self._read().sent

    def add(self, copied: tuple[int, str]) -> None:
        """Note a record, durably, before it is sent."""
        known = self._read().sent
        if copied not in known:
            sent = (*known, copied)[-SENT_MAX:]
            found = msgspec.structs.replace(self._read(), sent=sent)
            self.files.replace(self._path("json"), formats.encode_sent(found))

    def landed(self, made: BucketRecord) -> None:
        """Note that a record was put, and forget all others: a late put of theirs finds it."""
        self._note(made, (made.copied,))

    def found(self, newest: BucketRecord) -> None:
        """Note what the bucket has; what was sent besides may still land above it."""
        known = self._read().sent
        more = () if newest.copied in known else (newest.copied,)
        self._note(newest, (*known, *more)[-SENT_MAX:])

    def _note(self, record: BucketRecord, sent: tuple[tuple[int, str], ...]) -> None:
        time_us = record.record.last_time_us
        found = MirroredRecords(self.url, sent, record.number, record.seq, time_us, record.nbytes)
        if self._read() != found:
            self.files.replace(self._path("json"), formats.encode_sent(found))

    def owe(self) -> None:
        """Note that the store ended before its mirror had all of it."""
        found = msgspec.structs.replace(self._read(), is_owed=True)
        self.files.replace(self._path("json"), formats.encode_sent(found))

    def restored(self, chosen: BucketRecord, seq: int) -> None:
        """Note of which record of the bucket, and up to which seq, the store was made."""
        make_private(self.files, self.root / DIRECTORY)
        found = MirroredRecords(self.url, seq=seq, origin=(chosen.number, chosen.writer))
        self.files.replace(self._path("json"), formats.encode_sent(found))

    @property
    def seq(self) -> int:
        """The last seq that is known to be in the bucket, or that was restored of it."""
        return self._read().seq

    def is_origin(self, record: BucketRecord) -> bool:
        """Say whether the store was restored from this record, and mirrored none since."""
        return self._read().origin == (record.number, record.writer)

    def _read(self) -> MirroredRecords:
        return _read(self.files, self._path("json")) or MirroredRecords(self.url)

    def _path(self, suffix: str) -> Path:
        name = xxhash.xxh3_64_hexdigest(self.url.encode())
        return self.root / DIRECTORY / f"{name}.{suffix}"


def mirrors_of(files: Files, root: Path) -> tuple[MirroredRecords, ...]:
    """Return what a store knows of all its mirrors, by their URLs; without what is damaged."""
    folder = root / DIRECTORY
    found = list[MirroredRecords]()
    for name in names_in(files, folder):
        with contextlib.suppress(CorruptionError):  # a mirror there names it
            known = _read(files, folder / name) if name.endswith(".json") else None
            found += [] if known is None else [known]
    return tuple(sorted(found, key=lambda known: known.url))


def _read(files: Files, path: Path) -> MirroredRecords | None:
    if not files.exists(path):
        return None
    return formats.decode_sent(files.read(path), str(path))
