"""Lance commits: a private transaction on a pin, from its catalog to the next pin.

    write files ─▶ sync them, their directories ─▶ Lance commit ─▶ sync manifest, txn file,
    directories ─▶ inventory (synced) ─▶ pin

Lance syncs nothing itself (0 calls under strace), so the order above is ours. A crash anywhere
leaves files that no pin names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.staged_catalog import StagedCatalog, open_newest, put, writing
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.tables import PRIVATE_DIRECTORY
from siltstone.units import require


class LanceCommits:
    """Commits to datasets. Threads may share it: every commit has a catalog of its own."""

    def __init__(self, data: DatasetFiles) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._inventories, self._token = data.inventories, data.token

    def begin(self, folder: str, versions: dict[int, Path]) -> StagedCatalog:
        """Return the catalog of a new transaction, in a directory of its own."""
        location = self._root / folder / PRIVATE_DIRECTORY / self._token()
        with translated(location, is_reading=False):
            self._files.mkdir(location)
        return StagedCatalog(location, self._files, versions)

    def commit(
        self,
        folder: str,
        pin: Pin,
        operations: Iterable[Any],
        added: Iterable[InventoryFile],
        *,
        rows: int,
    ) -> Pin:
        """Put changes on a pin in one transaction; `added` are their files, `rows` what is left."""
        where = self._root / folder
        catalog = self.begin(folder, {pin.version: self._root / pin.path})
        with writing(where, catalog):
            dataset = open_newest(catalog)
            for operation in operations:
                dataset = put(catalog, dataset, operation, read_version=max(catalog.versions))
        return self.seal(folder, pin.inventory, catalog, dataset, added, rows=rows)

    def seal(
        self,
        folder: str,
        below: str,
        catalog: StagedCatalog,
        dataset: Any,
        added: Iterable[InventoryFile],
        *,
        rows: int,
    ) -> Pin:
        """Make a staged version durable and name it.

        A data file that a commit adds is already synced; Lance's commit itself wrote the manifest
        and the account of the transaction.
        """
        where, version = self._root / folder, dataset.version
        path = catalog.versions[version]
        with translated(where, is_reading=False):
            note = dataset.read_transaction(version)
            fragments = dataset.get_fragments()
            names = [f"{DATA}/{file.path}" for f in fragments for file in f.metadata.files]
            names += [str(f.deletion_file()) for f in fragments if f.metadata.deletion_file]
            require(dataset.count_rows() == rows, f"{path} does not have {rows} rows")
            txn = f"{folder}/{TRANSACTIONS}/{note.read_version}-{note.uuid}.txn"
            written = catalog.location / TRANSACTIONS / Path(txn).name
            self._files.rename(written, self._root / txn)  # readers look for it there
            self._data.name([txn])
            notes = self._inventories.seal([txn], None)
            self._data.sync_names(folder, TRANSACTIONS)
            self._files.sync_file(path)
            self.tidy(catalog.location, path)
            self._files.sync_dir(path.parent)
            live = [txn, *(f"{folder}/{name}" for name in names)]
            live += self._data.index_files(folder, dataset, below)
            inventory = self._inventories.add(below, [*notes, *added], live)
            name = str(path.relative_to(self._root))
            manifest = describe(self._files, self._root, name)
        return Pin(version, name, manifest.size, manifest.xxh3, rows, inventory)

    def tidy(self, location: Path, kept: Path) -> None:
        """Delete what Lance left beside the one manifest that the transaction is about."""
        for name in self._files.list(location):
            path = location / name
            if self._files.is_dir(path):
                for each in self._files.list(path):
                    self._files.unlink(path / each)
                self._files.rmdir(path)
            elif path != kept:
                self._files.unlink(path)
