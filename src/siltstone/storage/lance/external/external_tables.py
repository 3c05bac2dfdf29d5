"""External tables: versions that other Lance clients staged or wrote, read and imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siltstone.errors import CorruptionError, RequestError, SiltstoneError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Pin
from siltstone.storage.lance import manifest as lance_manifest
from siltstone.storage.lance.dataset_files import TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.external import external_change, external_versions, version_import
from siltstone.storage.lance.pinned import LancePinned
from siltstone.storage.lance.reader import LanceReader
from siltstone.storage.lance.staged_catalog import StagedCatalog, open_newest
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import promotion
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.tables import ExternalVersion, ImportedVersion, StagedVersion

if TYPE_CHECKING:
    import pyarrow as pa


class LanceExternal:
    """See `tables.ExternalTables`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._inventories, self._syncs, self._reader = data.inventories, data.syncs, reader

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """See `tables.ExternalTables.import_version`.

        Files that the pin below has are not read again; all others are synced and hashed here.
        """
        where = self._root / folder
        staged = version_import.staged_manifest(self._root, folder, given)
        with translated(where, is_reading=False):
            version_import.take(self._files, staged, given.size)
            cross(Failpoint.TAKE_AFTER_MOVE)
            found = lance_manifest.decode(self._files.read(staged.target))
        lance_manifest.refuse_flags(found)
        if found.version != given.version:
            raise RequestError(f"the manifest holds version {found.version}, not {given.version}")
        read_version = version_import.read_version(found.transaction)
        with translated(where, is_reading=False), suppress(FileNotFoundError):
            self._data.name([f"{folder}/{TRANSACTIONS}/{found.transaction}"])
        dataset = self._opened(folder, staged.target, given.version)
        version_import.refuse_blobs(dataset.schema)
        below = None if pin is None else self._reader.open(folder, pin)
        operation = _operation_of(dataset)
        if below is not None:
            version_import.refuse_lost(operation, {part.number for part in below.parts})
            self._refuse_other(folder, below, dataset, operation, found.transaction)
            if promotion.may_be_built_on(self._files, where, staged.target):
                external_change.refuse_unsure(folder, operation)
        name = "" if operation is None else type(operation).__name__
        restored = 0 if operation is None or name != "Restore" else int(operation.version)
        with translated(where, is_reading=False):
            made, added, back = self._taken(
                folder, below, dataset, staged, found.transaction, is_restored=restored > 0
            )
        return ImportedVersion(made, dataset.schema, name, read_version, added, back, restored)

    def versions(self, folder: str) -> list[ExternalVersion]:
        """See `tables.ExternalTables.versions`."""
        found = external_versions.manifests(self._files, self._root, folder)
        return [self._described(folder, version, path) for version, path in found]

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        """See `tables.ExternalTables.added`."""
        dataset = self._by_path(folder, external.version, external.path)
        return external_versions.read(dataset, external, self._root / folder)

    def _refuse_other(
        self, folder: str, below: LancePinned, dataset: Any, operation: Any, transaction: str
    ) -> None:
        """Refuse a version that Lance built on another one than the one below."""
        before = {part.number: part.paths for part in below.parts}
        after = external_change.of(folder, dataset.get_fragments())
        path, note = f"{folder}/{TRANSACTIONS}/{transaction}", b""
        txn = kept.place(self._files, self._root, path)  # a clean-up may have taken the public name
        if operation is None and self._files.exists(txn):
            with translated(txn, is_reading=True):
                note = self._files.read(txn)
        external_change.refuse_other_line(folder, operation, note, before, after)
        external_change.refuse_other_schema(operation, below.dataset, dataset)
        if version_import.read_version(transaction) != below.pin.version:
            with translated(txn, is_reading=True):
                external_change.refuse_other_rows(operation, below.dataset, dataset)

    def _taken(
        self,
        folder: str,
        below: LancePinned | None,
        dataset: Any,
        staged: version_import.StagedManifest,
        transaction: str,
        *,
        is_restored: bool,
    ) -> tuple[Pin, tuple[str, ...], tuple[str, ...]]:
        """Make a version of another client durable; return its pin, what it adds, what is back."""
        inventory = "" if below is None else below.pin.inventory
        living = {} if below is None else below.inventory()
        txn = f"{folder}/{TRANSACTIONS}/{transaction}"
        live = [
            *([txn] if self._files.exists(self._root / txn) else []),
            *version_import.files_of(
                self._files, self._root, folder, dataset.get_fragments(), living
            ),
            *self._data.index_files(folder, dataset, inventory),
        ]
        fresh = [path for path in live if path not in living]
        known = self._data.known(inventory) if fresh else ()
        paths = [path for path in fresh if path not in known]
        self._data.name(fresh)
        # A chain that was folded has forgotten the files of a version that is restored.
        back = (path for path in fresh if path in known or (is_restored and path != txn))
        with self._syncs.all() as syncing:
            syncing.begin(staged.target, is_known=below is not None)
            self._data.begin(syncing, paths, is_known=below is not None)
            added = self._inventories.hashed(paths, None)
            name = self._inventories.add(inventory, added, live, durable=False)
            syncing.begin(self._root / name, is_known=True)  # nobody takes its folder away
            manifest = describe(self._files, self._root, staged.pin_path(self._root))
        pin = Pin(
            dataset.version, manifest.path, manifest.size, manifest.xxh3, dataset.count_rows(), name
        )
        self._reader.keep(
            self._reader.pinned(folder, pin, dataset)
        )  # the next version is put on top of it
        return pin, (manifest.path, *paths), tuple(back)

    def _opened(self, folder: str, manifest: Path, version: int) -> Any:
        """Open what a client wrote; it may be anything.

        Raises:
            RequestError: Lance cannot read it as that version.
        """
        home = kept.home_of(folder) or folder
        catalog = StagedCatalog(self._root / home, self._files, {version: manifest})
        try:
            with translated(manifest, is_reading=True):
                return open_newest(catalog)
        except CorruptionError as error:
            raise RequestError(f"the manifest cannot be read: {error.reason}") from error

    def _described(self, folder: str, version: int, path: str) -> ExternalVersion:
        try:
            dataset = self._by_path(folder, version, path)
            return external_versions.describe(dataset, path, self._root / folder, folder)
        except SiltstoneError as error:
            return ExternalVersion(path, version, 0, f"it cannot be read: {error}")

    def _by_path(self, folder: str, version: int, path: str) -> Any:
        """Open a version by path where its files are: a clean-up may have taken public names."""
        dataset = self._at(folder, folder, version, path)
        home = kept.home_of(folder)
        named = external_change.of(folder, dataset.get_fragments()).values()
        exposed, hidden = kept.lacking(self._files, self._root, chain.from_iterable(named))
        return dataset if exposed or not hidden else self._at(str(home), folder, version, path)

    def _at(self, location: str, folder: str, version: int, path: str) -> Any:
        catalog = StagedCatalog(self._root / location, self._files, {version: self._root / path})
        with translated(self._root / folder, is_reading=True):
            return open_newest(catalog)


def _operation_of(dataset: Any) -> Any:
    """Return the change that made a version; None where Lance cannot say."""
    with suppress(TypeError):  # pylance 14: of a Rewrite with indexes
        return dataset.read_transaction(dataset.version).operation
    return None
