"""Leased records: what a mirror copies next: the newest record, those of tags, and their files.

While they are leased the store's vacuum keeps them, so its space grows by what newer records no
longer need.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import xxhash

from siltstone.formats import bucket as formats
from siltstone.formats import manifest
from siltstone.formats.backup import BackupFile
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Record, pins_of
from siltstone.maintenance.backup.backup import islands_of, newest_with_log, tags_of
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.site import Site


@dataclass(frozen=True, slots=True)
class LeasedRecords:
    """See the module. The log has `behind` commits more; None: it was not looked at."""

    record: Record
    islands: tuple[Record, ...]
    lost_tags: tuple[str, ...]
    files: tuple[InventoryFile, ...]
    behind: int | None = None

    @property
    def island_files(self) -> tuple[tuple[BackupFile, bytes], ...]:
        encoded = [(formats.island_key(each), manifest.encode(each)) for each in self.islands]
        return tuple(
            (BackupFile(key, len(data), xxhash.xxh3_64_hexdigest(data)), data)
            for key, data in encoded
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The objects that a bucket needs for it: sizes by their keys."""
        found = {file.path: file.size for file in self.files}
        return found | {file.path: file.size for file, _ in self.island_files}

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files)


def lease(site: Site, held: ExitStack, *, with_log: bool) -> LeasedRecords:
    """Lease what is copied next, until `held` ends; `with_log`: read how much the log has more.

    Raises:
        CorruptionError: The newest record, its inventories or the log are damaged.
        BusyError: The owner goes on faster than this process can read.
    """
    behind: int | None = None
    if with_log:
        record, leased, frames = newest_with_log(site.files, site.root, site.manifests)
        behind = frames[-1].last_seq - record.flushed_seq if frames else 0
    else:
        record, leased = site.manifests.lease_newest()
    held.enter_context(leased)
    islands, lost = islands_of(site.manifests, record, tags_of(record, ()), held)
    return LeasedRecords(record, islands, lost, files_of(site, (record, *islands)), behind)


def files_of(site: Site, records: tuple[Record, ...]) -> tuple[InventoryFile, ...]:
    """Return the files that records need, each once."""
    pins = distinct(pin for each in records for pin in pins_of(each)).values()
    reader = site.tables.reader
    return tuple({file.path: file for pin in pins for file in reader.files(pin)}.values())
