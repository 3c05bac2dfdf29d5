"""Upload: the files of a store go into a bucket, each checked on its way, side by side.

A file of a store is written once, under a name that no other ever has, and an object is put whole
or not at all. So an object with the key and the size is the file, also one of a run that was cut
off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xxhash

from siltstone.formats.inventory import InventoryFile
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.backup.leased_records import LeasedRecords
from siltstone.maintenance.gc.sweep import go_on
from siltstone.storage.files.copying import require_same
from siltstone.storage.files.files import Files, reading
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.objects.server import PART_BYTES, Streamed
from siltstone.storage.tables.kept_names import place


@dataclass(frozen=True, slots=True)
class Uploaded:
    """How many files were put, and their bytes."""

    files: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Uploader:
    """Puts files of the store at `root`. `step` is called between any two parts, and may raise."""

    files: Files
    root: Path
    objects: Objects
    step: Callable[[], object] = go_on

    def run(self, source: LeasedRecords, there: Mapping[str, int], say: Progress) -> Uploaded:
        """Put what `there`, sizes by keys, lacks of a source.

        Raises:
            CorruptionError: A file of the store is damaged, and named; it was not put.
        """
        works = [
            (file.path, file.size, partial(self.put, file))
            for file in source.files
            if there.get(file.path) != file.size
        ]
        works += [
            (file.path, file.size, partial(self.objects.put, file.path, data))
            for file, data in source.island_files
            if there.get(file.path) != file.size
        ]
        total = sum(size for _, size, _ in works)
        done = 0
        for (path, size, _), _result in side_by_side(lambda work: work[2](), works):
            done += size
            say(path, done, total)
            self.step()
        return Uploaded(len(works), total)

    def put(self, file: InventoryFile) -> object:
        """Put one file.

        Raises:
            CorruptionError: It is damaged, and named; it was not put.
        """
        parts = partial(checked_parts, self.files, self.root, file, self.step)
        if file.size <= PART_BYTES:
            return self.objects.put(file.path, b"".join(parts()))
        return self.objects.put(file.path, Streamed(file.size, parts))


def checked_parts(
    files: Files, root: Path, expected: InventoryFile, step: Callable[[], object] = go_on
) -> Iterator[bytes]:
    """Yield the bytes of a file; if they are not those expected, raise before the end.

    Raises:
        CorruptionError: The file is missing or damaged.
        UnavailableError: The file system refuses.
    """
    path = root / expected.path
    digest, offset = xxhash.xxh3_64(), 0
    with reading(path), closing(files.open(place(files, root, expected.path), write=False)) as file:
        while chunk := file.pread(PART_BYTES, offset):
            step()
            digest.update(chunk)
            offset += len(chunk)
            yield chunk
    require_same(path, (offset, digest.hexdigest()), expected)
