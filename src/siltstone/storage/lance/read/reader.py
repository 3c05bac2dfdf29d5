"""Lance reader: the versions that are open, and the files that a pin needs.

Lance's "latest version" is never asked for: an all-zero newest manifest opens as an empty table.
`_lock` guards the table of open handles; it is never held over I/O.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.errors import CorruptionError, RequestError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.process.shares import LanceShares
from siltstone.storage.files import arrow_file
from siltstone.storage.lance.files.caches import LanceCaches
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.deletions import HiddenRows
from siltstone.storage.lance.files.manifest import DeletionFile, without_deletions
from siltstone.storage.lance.files.staged_catalog import StagedCatalog, open_newest
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.lance.read.version import LanceVersion
from siltstone.storage.lance.search.text_search import analyzer
from siltstone.storage.tables.inventories import check as check_file

_OPEN_MAX = 64
# An open version takes about 3 kB a fragment (measured), and every checkpoint opens a version of
# history with one fragment more: 64 of them by count alone held more the longer a store was open.
OPEN_PARTS_MAX = 2048


class LanceReader:
    """See `tables.TableReader`; threads may share it.

    Args:
        verify: "first_use": a data file is checked before this process first reads it;
            "scrub": only by `check`.
        open_parts_max: How many parts the versions that are kept open may have together.
        shares: What the caches and a scan may hold.
    """

    analyzer = staticmethod(analyzer)

    def __init__(
        self, data: DatasetFiles, *, verify: str, open_parts_max: int, shares: LanceShares
    ) -> None:
        if verify not in ("first_use", "scrub"):
            raise RequestError(f'verify is {verify!r}; choose "first_use" or "scrub"')
        self._data, self._root, self._files = data, data.root, data.files
        self._inventories = data.inventories
        self._verify = data.inventories.verify if verify == "first_use" else lambda _: None
        self._parts_max = open_parts_max
        self._shares, self._caches = shares, LanceCaches(shares)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LancePinned] = OrderedDict()

    def open(self, pin: Pin) -> LancePinned:
        """See `tables.TableReader.open`.

        The newest `_OPEN_MAX` handles stay open while they have at most `open_parts_max` parts
        together; the last opened handle always does.
        """
        with self._lock:
            known = self._open.get(pin.path)
            if known is not None and known.pin == pin:
                self._open.move_to_end(pin.path)
                return known
        return self._kept(self.fresh(pin))

    def files(self, pin: Pin) -> list[InventoryFile]:
        """See `tables.TableReader.files`."""
        if pin.is_arrow:
            return [InventoryFile(pin.path, pin.size, pin.xxh3)]
        table = self._as_shown(pin)
        notes = self._data.notes(pin.inventory)
        ours = [*([pin.physical_path] if pin.hidden else []), *(run.path for run in pin.runs)]
        notes += self._inventories.live(pin.inventory, ours).values()
        manifest = InventoryFile(pin.path, pin.size, pin.xxh3)
        inventories = self._inventories.own_files(pin.inventory)
        indexes = self._inventories.live(
            pin.inventory, self._data.index_files(pin.folder, table.dataset, pin.inventory)
        )
        return [*table.files.values(), *indexes.values(), *notes, manifest, *inventories]

    def read_arrow(self, pin: Pin) -> pa.Table:
        """See `tables.TableReader.read_arrow`."""
        return arrow_file.read(self._files, self._root, pin)

    def derived(self, pin: Pin) -> dict[str, bytes]:
        """See `tables.TableReader.derived`."""
        return {pin.physical_path: self._without_deletions(pin)[0]} if pin.hidden else {}

    def check(self, pin: Pin) -> None:
        """See `tables.TableReader.check`."""
        for file in self.files(pin):
            check_file(self._files, self._root, file)

    def release(self) -> None:
        """See `tables.TableReader.release`."""
        self._data.sessions.clear()

    def bound(self, shares: LanceShares) -> None:
        """See `tables.TableReader.bound`."""
        self._shares, self._caches = shares, LanceCaches(shares)

    def cached_bytes(self) -> int:
        """See `tables.TableReader.cached_bytes`."""
        return self._caches.nbytes

    def fresh(self, pin: Pin) -> LancePinned:
        """Open the version anew: its manifest is verified again, no other reader has the handle."""
        with self._data.reading(pin.folder):
            self._check_manifest(pin)
            hidden = self._hidden(pin)
            home = self._data.home_of(pin.folder)
            if home is not None:
                table = self._at(home, pin, hidden)
                if self._has_kept(table):
                    return table
            return self._at(pin.folder, pin, hidden)

    def _at(self, location: str, pin: Pin, hidden: HiddenRows) -> LancePinned:
        dataset = self._opened(location, pin, pin.physical_path)
        return self._pinned(pin, dataset, hidden)

    def shown(self, pin: Pin) -> Any:
        """Return Lance's handle of the version as other clients see it: with its deletion files."""
        if not pin.hidden:
            return self.open(pin).dataset
        with self._data.reading(pin.folder):
            return self._opened(pin.folder, pin, pin.path)

    def _as_shown(self, pin: Pin) -> LancePinned:
        """Open a version by its own manifest alone, with the rows that its deletion files leave."""
        if not pin.hidden:
            return self.fresh(pin)
        with self._data.reading(pin.folder):
            self._check_manifest(pin)
            dataset = self._opened(pin.folder, pin, pin.path)
            return self._pinned(msgspec.structs.replace(pin, hidden=0), dataset)

    def keep(self, pin: Pin, dataset: Any) -> None:
        """Keep a version that Lance opened as `dataset`, for the next `open` of its pin."""
        self._kept(self._pinned(pin, dataset))

    def _pinned(self, pin: Pin, dataset: Any, hidden: HiddenRows | None = None) -> LancePinned:
        version = LanceVersion(self._data, pin, dataset, self._verify, hidden)
        return LancePinned(version, shares=self._shares)

    def _opened(self, location: str, pin: Pin, path: str) -> Any:
        """Open the version whose manifest is at `path`, with the data files at `location`."""
        dataset = self.dataset(self._root / location, pin.version, self._root / path)
        if dataset.version != pin.version:
            raise CorruptionError(self._root / path, None, f"holds version {dataset.version}")
        return dataset

    def dataset(self, location: Path, version: int, manifest: Path) -> Any:
        """Return Lance's handle of the version whose manifest is at a path; nothing is checked."""
        options = None if self._data.reach is None else self._data.reach.storage_options
        catalog = StagedCatalog(location, self._files, {version: manifest}, options)
        return open_newest(catalog, self._caches.session(location, version, manifest))

    def _hidden(self, pin: Pin) -> HiddenRows:
        """Return the hidden rows of a base. Their files are always verified: we read them whole.

        Raises:
            CorruptionError: The manifest that we open is not the other one without these files.
        """
        if not pin.hidden:
            return HiddenRows(self._data, pin, {}, self._verify)
        physical = self._root / pin.physical_path
        made, hidden = self._without_deletions(pin)
        with self._data.reading(pin.folder):
            if self._files.read(physical) != made:
                raise CorruptionError(physical, None, "it has other files than the pin")
        return HiddenRows(self._data, pin, hidden, self._inventories.verify)

    def _check_manifest(self, pin: Pin) -> None:
        check_file(self._files, self._root, InventoryFile(pin.path, pin.size, pin.xxh3))

    def _without_deletions(self, pin: Pin) -> tuple[bytes, dict[int, DeletionFile]]:
        with self._data.reading(pin.folder):
            return without_deletions(self._files.read(self._root / pin.path))

    def _kept(self, table: LancePinned) -> LancePinned:
        with self._lock:
            self._open[table.pin.path] = table
            parts = sum(len(each.parts) for each in self._open.values())
            while len(self._open) > 1 and (len(self._open) > _OPEN_MAX or parts > self._parts_max):
                parts -= len(self._open.popitem(last=False)[1].parts)
        return table

    def _has_kept(self, table: LancePinned) -> bool:
        """Say whether all files that a read may open have their kept names."""
        paths = [path for part in table.parts for path in part.paths]
        paths += self._data.index_files(table.pin.folder, table.dataset, table.pin.inventory)
        return self._data.have_kept(paths)
