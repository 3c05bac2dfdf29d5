"""Lance commits: rows into data files, and a private transaction from a pin to the next one.

    write files ─▶ sync them, their directories ─▶ Lance commit ─▶ sync manifest, txn file,
    directories ─▶ inventory (synced) ─▶ pin

Lance syncs nothing itself (0 calls under strace), so the order above is ours. A crash anywhere
leaves files that no pin names.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin, physical_of
from siltstone.storage.lance.files.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.manifest import renumbered, without_deletions
from siltstone.storage.lance.files.parts import data_files
from siltstone.storage.lance.files.staged_catalog import (
    StagedCatalog,
    lance_module,
    open_newest,
    put,
    writing,
)
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.tables import base_numbers, staging
from siltstone.storage.tables.promotion import public_name
from siltstone.storage.tables.values import NO_FILES, Batches, Entries, Seqs, StagedFiles
from siltstone.units import require


class LanceCommits:
    """Writes to datasets. Threads may share it: every commit has its own catalog."""

    def __init__(self, data: DatasetFiles) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._inventories, self._token = data.inventories, data.token

    def write_rows(
        self, table: LancePinned, schema: pa.Schema, batches: Batches, mode: str = "append"
    ) -> list[Any]:
        """Write rows through Lance; what the caller's iterator raises comes out as it is."""
        where, feed = self._root / table.pin.folder, staging.BatchFeed(batches, schema)
        try:
            with translated(where, is_reading=False):
                write = importlib.import_module("lance.fragment").write_fragments
                return write(feed.reader(), table.dataset, mode=mode)
        except Exception:
            if feed.error is not None:
                raise feed.error from None  # what the caller's own iterator raised
            raise

    def staged(
        self,
        table: LancePinned,
        schema: pa.Schema,
        batches: Batches,
        columns: tuple[staging.Column, ...] = (),
        seqs: Seqs | None = None,
        *,
        mode: str = "append",
    ) -> StagedFiles:
        """Write rows into durable data files, and describe them to a commit."""
        found = staging.peeked(batches)
        if found is None:
            return NO_FILES
        folder, fields = table.pin.folder, table.dataset.lance_schema
        if mode == "overwrite":
            fields = importlib.import_module("lance.schema").LanceSchema.from_pyarrow(schema)
        fragments = self.write_rows(table, schema, found[1], mode)
        staging.check_field_ids(fragments, fields, schema.names)
        with translated(self._root / folder, is_reading=False):
            names = [f"{folder}/{DATA}/{file.path}" for f in fragments for file in f.files]
            files = self._data.seal(folder, DATA, names, seqs)
        return StagedFiles(
            sum(fragment.num_rows for fragment in fragments),
            tuple(json.dumps(fragment.to_json()) for fragment in fragments),
            tuple(files),
            columns,
        )

    def begin(self, folder: str, pin: Pin | None = None) -> StagedCatalog:
        """Return the catalog of a new transaction on `pin`, in its own directory."""
        location = self._root / folder / PRIVATE_DIRECTORY / self._token()
        with translated(location, is_reading=False):
            self._files.mkdir(location)
        versions = {} if pin is None else {pin.version: self._root / pin.path}
        return StagedCatalog(location, self._files, versions)

    def commit(
        self, pin: Pin, operations: Iterable[Any], added: Entries, *, rows: int, hides: bool = False
    ) -> Pin:
        """Put changes on a pin in one transaction; `added` are their files, `rows` what is left.

        A change may be a function: it is given the dataset with those before it, and returns it.
        `hides`: deletion files are hidden rows, of a base; if the pin has some, they always are.
        """
        where = self._root / pin.folder
        catalog = self.begin(pin.folder, pin)
        with writing(where, catalog):
            dataset = open_newest(catalog)
            for operation in operations:
                change = operation(dataset) if callable(operation) else operation
                dataset = put(catalog, dataset, change, read_version=max(catalog.versions))
        hides = hides or pin.hidden > 0
        return self.seal(pin, catalog, dataset, added, rows=rows, hides=hides)

    def seal(
        self,
        below: Pin | None,
        catalog: StagedCatalog,
        dataset: Any,
        added: Entries,
        *,
        rows: int,
        hides: bool = False,
    ) -> Pin:
        """Make a staged version durable and name it; it keeps the key runs of the pin below it.

        A data file that a commit adds is already synced; Lance's commit itself wrote the manifest
        and the account of the transaction.
        """
        where = catalog.location.parent.parent
        inventory, runs = ("", ()) if below is None else (below.inventory, below.runs)
        folder = str(where.relative_to(self._root))
        with translated(where, is_reading=False):
            version, path = self._unknown(where, dataset.version, catalog)
            note = dataset.read_transaction(dataset.version)
            # Each `metadata` copies a part's whole description: once for each part.
            parts = [(f, f.metadata) for f in dataset.get_fragments()]
            names = [f"{DATA}/{name}" for _, about in parts for name in data_files(about)]
            names += [str(f.deletion_file()) for f, about in parts if about.deletion_file]
            require(dataset.count_rows() == rows, f"{path} does not have {rows} rows")
            txn = f"{folder}/{TRANSACTIONS}/{note.read_version}-{note.uuid}.txn"
            written = catalog.location / TRANSACTIONS / Path(txn).name
            self._files.rename(written, self._root / txn)  # readers look for it there
            notes = self._data.seal(folder, TRANSACTIONS, [txn], None)
            self._files.sync_file(path)
            self.tidy(catalog.location, path)
            name = str(path.relative_to(self._root))
            hidden = sum(about.num_deletions for _, about in parts) if hides else 0
            physical = self._physical(name) if hidden else []
            self._files.sync_dir(path.parent)
            live = [txn, *(f"{folder}/{name}" for name in names)]
            live += [file.path for file in physical]
            live += self._data.index_files(folder, dataset, inventory)
            live += [run.path for run in runs]
            inventory = self._inventories.add(inventory, [*notes, *physical, *added], live)
            pin = self._inventories.pin(version, name, rows, inventory)
            return msgspec.structs.replace(pin, hidden=hidden, runs=runs)

    def _unknown(self, where: Path, version: int, catalog: StagedCatalog) -> tuple[int, Path]:
        """Return the number of a staged version, one that no other client knows; and its path."""
        path = catalog.versions[version]
        least = base_numbers.lowest(self._files, self._root, where)
        if version >= least:
            return version, path
        target = path.with_name(public_name(least))
        self._files.write(target, renumbered(self._files.read(path), least))
        return least, target

    def renumbered(self, pin: Pin, version: int, files: Iterable[InventoryFile]) -> Pin:
        """Write the manifest of a pin again, with another number; `files` are all that it needs."""
        where = self._root / pin.folder / PRIVATE_DIRECTORY / self._token()
        with translated(where, is_reading=False):
            self._files.mkdir(where)
            path = where / public_name(version)
            self._files.write(path, renumbered(self._files.read(self._root / pin.path), version))
            name = str(path.relative_to(self._root))
            physical = self._physical(name) if pin.hidden else []
            self._files.sync_dir(where)
            old = {pin.path, pin.physical_path, *self._inventories.chain(pin.inventory)}
            live = [file.path for file in (*files, *physical) if file.path not in old]
            inventory = self._inventories.add(pin.inventory, physical, live)
            made = self._inventories.pin(version, name, pin.rows, inventory)
        return msgspec.structs.replace(made, hidden=pin.hidden, runs=pin.runs)

    def _physical(self, name: str) -> list[InventoryFile]:
        """Write the manifest `name` again, without deletion files; the caller syncs the name."""
        made, _ = without_deletions(self._files.read(self._root / name))
        path = physical_of(name)
        self._files.write(self._root / path, made)
        return self._inventories.hashed([path], None)

    def tidy(self, location: Path, kept: Path) -> None:
        """Delete what Lance left next to the one manifest that the transaction is about."""
        for name in self._files.list(location):
            path = location / name
            if self._files.is_dir(path):
                for each in self._files.list(path):
                    self._files.unlink(path / each)
                self._files.rmdir(path)
            elif path != kept:
                self._files.unlink(path)


def fragments_of(staged: StagedFiles) -> list[Any]:
    metadata = lance_module().FragmentMetadata
    return [metadata.from_json(text) for text in staged.fragments]
