"""Fetched: files of a bucket in a directory of this machine, each checked on its way.

    a pin ─▶ its manifests and inventories ─▶ these name all its files

A file that is there already is read and kept.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import xxhash

from siltstone.formats import inventory
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.maintenance.backup.new_store import inside
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.copying import is_there, require_same
from siltstone.storage.files.files import Files, discard
from siltstone.storage.objects.server import PART_BYTES


@dataclass(frozen=True, slots=True)
class Fetched:
    """See the module; `target` is the directory. Threads may share it."""

    files: Files
    bucket: Bucket
    target: Path

    def names(self, pin: Pin) -> None:
        """Fetch what names the files of a pin: its manifests, and its inventories."""
        self.file(InventoryFile(pin.path, pin.size, pin.xxh3))
        if pin.is_arrow:
            return
        names = [pin.inventory] if pin.inventory else []
        for name in names:
            names += [each for each in self._inventory(name) if each not in names]
        if pin.hidden:
            self._keep(pin.physical_path, self.bucket.whole(pin.physical_path))

    def file(self, file: InventoryFile) -> None:
        """Have a file with the bytes that were written.

        Raises:
            CorruptionError: The object, which is named, is damaged or missing.
        """
        copy = self.place(file.path)
        if is_there(self.files, copy, file):
            return
        if file.size <= PART_BYTES:
            data = self.bucket.whole(file.path)
            self._require_same(file, len(data), xxhash.xxh3_64(data).hexdigest())
            self._keep(file.path, data)
            return
        temporary = self.files.temporary(copy)
        try:
            self._parts(file, temporary)
            self.files.rename(temporary, copy)
        except BaseException:
            discard(self.files, temporary)
            raise

    def place(self, path: str) -> Path:
        return inside(self.target, path, self.bucket.key_url(path))

    def _inventory(self, name: str) -> tuple[str, ...]:
        """Fetch an inventory; return the names of those below it."""
        data = self.bucket.whole(name)
        found = inventory.decode(data, self.bucket.key_url(name))
        self._keep(name, data)
        return found.below

    def _parts(self, file: InventoryFile, temporary: Path) -> None:
        digest, offset = xxhash.xxh3_64(), 0
        self.files.mkdir(temporary.parent)
        with closing(self.files.open(temporary, new=True)) as out:
            while offset < file.size:
                end = min(offset + PART_BYTES, file.size)
                part = self.bucket.objects.get_range(file.path, offset, end)
                if part is None or not part.data:
                    break
                digest.update(part.data)
                out.pwrite(part.data, offset)
                offset += len(part.data)
            self._require_same(file, offset, digest.hexdigest())
            out.sync()

    def _require_same(self, file: InventoryFile, size: int, xxh3: str) -> None:
        require_same(self.bucket.key_url(file.path), (size, xxh3), file)

    def _keep(self, path: str, data: bytes) -> None:
        copy = self.place(path)
        self.files.mkdir(copy.parent)
        self.files.replace(copy, data)
