"""Needed paths: which files many versions need, from the bytes of their manifests.

Lance opens a version in a millisecond, and each of its fragments costs another 10 us to look at, so
of a table with n small appends n opened versions cost by n * n. Here each manifest is read once,
and checked. Versions of one dataset begin with the same fragments, byte for byte, so only what
follows the common beginning is decoded.

Lance itself is asked, as `LanceReader.files` does, where a manifest has a field, a feature or an
index that is not known here: a needed file that is not named is deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from siltstone.errors import RequestError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files import manifest
from siltstone.storage.lance.files.dataset_files import DATA, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.index_files import index_folders
from siltstone.storage.lance.files.manifest import FRAGMENTS, MALFORMED, SUPPORTED, fields, typed
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.tables.inventories import read_checked

# Numbers of the fields (lance.table.Manifest) that name no file, but for that of the indexes. Not
# among them: the places of other datasets, branches, and what later versions of Lance add.
_SCHEMA, _INDEX_SECTION, _READER_FLAGS, _WRITER_FLAGS = 1, 6, 9, 10
_KNOWN = {3, 5, _INDEX_SECTION, 7, _READER_FLAGS, _WRITER_FLAGS, 11, 12, 13, 14, 15, 16, 19, 23}
# Of a fragment: id, rows, and the ids and versions of its rows, where they are no files (5, 7, 9).
_ID, _FILES, _DELETIONS = 1, 2, 3
_KNOWN_OF_FRAGMENT = {_ID, 4, 5, 7, 9}
# Of a data file and of a deletion file: all but a place in another dataset.
_PATH, _KNOWN_OF_FILE, _KNOWN_OF_DELETIONS = 1, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}


class LancePaths:
    """See `tables.PinPaths`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader) -> None:
        self._data, self._reader = data, reader

    def needed(self, pins: Iterable[Pin]) -> set[str]:
        """See `tables.PinPaths.needed`."""
        found: set[str] = set()
        fragments: dict[str, FragmentPaths] = {}
        indexes: dict[tuple[str, bytes], Mapping[str, int]] = {}
        for pin in sorted(pins, key=lambda pin: (pin.folder, pin.version)):
            if pin.is_arrow:
                found.add(pin.path)
                continue
            known = fragments.setdefault(pin.folder, FragmentPaths(pin.folder))
            found.update(self._beside(pin))
            expected = InventoryFile(pin.path, pin.size, pin.xxh3)
            data = read_checked(self._data.files, self._data.root, expected)
            try:
                added = known.added(data)
            except (RequestError, *MALFORMED):
                found.update(file.path for file in self._reader.files(pin))
                continue
            found.update(added.paths)
            if added.indexes is not None:
                key = (pin.folder, added.indexes)
                if key not in indexes:
                    indexes[key] = self._index_folders(pin)
                found.update(self._data.files_of_indexes(indexes[key], pin.inventory))
        return found

    def _beside(self, pin: Pin) -> Iterator[str]:
        """Yield what a pin needs besides the files of its rows and its indexes."""
        yield pin.path
        if pin.hidden:
            yield pin.physical_path
        yield from (run.path for run in pin.runs)
        yield from (file.path for file in self._data.notes(pin.inventory))
        yield from self._data.inventories.chain(pin.inventory)

    def _index_folders(self, pin: Pin) -> Mapping[str, int]:
        """Ask Lance for the folders of a version's indexes, with the least size of each."""
        where = self._data.root / pin.folder
        with translated(where, is_reading=True):
            dataset = self._reader.dataset(where, pin.version, self._data.root / pin.path)
            return index_folders(pin.folder, dataset)


class AddedPaths(msgspec.Struct, frozen=True):
    """What a manifest names that those before it did not; the bytes about its indexes, if any."""

    paths: set[str]
    indexes: bytes | None


class FragmentPaths:
    """The files that fragments of the versions of one dataset name; ask for one after the other.

    It holds the last manifest, and all distinct fragments as bytes.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._body, self._ends = b"", [0]  # where the schema and the fragments in it end
        self._seen: set[bytes] = set()

    def added(self, data: bytes) -> AddedPaths:
        """Return the paths in a manifest, without some that were returned for manifests before.

        Raises:
            RequestError, *MALFORMED: Not all of it is known here; it counts as not asked.
        """
        body = manifest.body_of(data)
        ends = self._ends[: self._shared(body) + 1]
        fresh: set[bytes] = set()
        paths: set[str] = set()
        others: dict[int, int | bytes] = {}
        is_head = True  # what neighbours share; later fields must be looked at in each
        for number, value, raw in fields(body, ends[-1]):
            is_head = is_head and number in {_SCHEMA, FRAGMENTS}
            if is_head:
                ends.append(ends[-1] + len(raw))
            if number == FRAGMENTS:
                if raw not in self._seen:
                    fresh.add(raw)
                    paths.update(self._paths_of(typed(value, bytes)))
            elif number != _SCHEMA:
                others[number] = value
        indexes = _indexes(data, others)
        self._body, self._ends = body, ends
        self._seen |= fresh
        return AddedPaths(paths, indexes)

    def _shared(self, body: bytes) -> int:
        """Return with how many fields of the last manifest this one begins."""
        return bisect_left(self._ends, True, key=lambda e: not self._body.startswith(body[:e])) - 1

    def _paths_of(self, fragment: bytes) -> Iterator[str]:
        inner = [(number, value) for number, value, _ in fields(fragment)]
        number = next((typed(value, int) for each, value in inner if each == _ID), 0)
        for each, value in inner:
            if each == _FILES:
                file = _known(typed(value, bytes), _KNOWN_OF_FILE)
                yield f"{self._folder}/{DATA}/{typed(file.get(_PATH), bytes).decode()}"
            elif each == _DELETIONS:
                body = typed(value, bytes)
                _known(body, _KNOWN_OF_DELETIONS)
                yield f"{self._folder}/{manifest.deletion_file(number, body).name}"
            else:
                _refuse_unknown([each], _KNOWN_OF_FRAGMENT)


def _indexes(data: bytes, others: Mapping[int, int | bytes]) -> bytes | None:
    _refuse_unknown(others, _KNOWN)
    flags = typed(others.get(_READER_FLAGS, 0), int) | typed(others.get(_WRITER_FLAGS, 0), int)
    if flags & ~SUPPORTED:
        raise RequestError(f"feature flags {flags & ~SUPPORTED} are not known")
    if _INDEX_SECTION not in others:
        return None
    return manifest.section(data, typed(others[_INDEX_SECTION], int))


def _known(body: bytes, known: set[int]) -> dict[int, int | bytes]:
    found = {number: value for number, value, _ in fields(body)}
    _refuse_unknown(found, known)
    return found


def _refuse_unknown(numbers: Iterable[int], known: set[int]) -> None:
    unknown = sorted(set(numbers) - known)
    if unknown:
        raise RequestError(f"the manifest has unknown fields: {unknown}")
