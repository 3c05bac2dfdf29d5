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

import xxhash

from siltstone.errors import BusyError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import MirroredRecords
from siltstone.storage.files.files import Files, make_private

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
        try:
            yield
        finally:
            lock.release()

    def has(self, copied: tuple[int, str]) -> bool:
        return copied in self._read().sent

    def add(self, copied: tuple[int, str]) -> None:
        """Note a record, durably, before it is sent."""
        known = self._read().sent
        if copied not in known:
            found = MirroredRecords(self.url, (*known, copied)[-SENT_MAX:])
            self.files.replace(self._path("json"), formats.encode_sent(found))

    def landed(self, copied: tuple[int, str]) -> None:
        """Forget all others: the bucket has this one as its newest."""
        if self._read().sent != (copied,):
            found = MirroredRecords(self.url, (copied,))
            self.files.replace(self._path("json"), formats.encode_sent(found))

    def _read(self) -> MirroredRecords:
        path = self._path("json")
        if not self.files.exists(path):
            return MirroredRecords(self.url)
        return formats.decode_sent(self.files.read(path), str(path))

    def _path(self, suffix: str) -> Path:
        name = xxhash.xxh3_64_hexdigest(self.url.encode())
        return self.root / DIRECTORY / f"{name}.{suffix}"
