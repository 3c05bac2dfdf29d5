"""External tables: versions that other Lance clients staged, or wrote by path; read and imported.

    _versions/<n>.manifest              not a link to a manifest of ours
    _siltstone/strangers/.<n>.manifest.*  a version that was set aside

A manifest `_versions/<n>.manifest-<uuid>` is different: a client staged it and perhaps never
commits it. Lance gives such a manifest its final name when it opens it, so opening it would publish
it.

The store does not read external versions, and nothing waits for them. A version *added* the rows of
the data files that its own transaction appended. It may contain more rows: those of the version of
ours on which it was built, of which some may be deleted since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.errors import CorruptionError, RequestError, SiltstoneError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin
from siltstone.storage.files.files import Files, names_in
from siltstone.storage.lance.external import external_change, version_import
from siltstone.storage.lance.files import manifest as lance_manifest
from siltstone.storage.lance.files.dataset_files import TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import promotion
from siltstone.storage.tables.values import ExternalVersion, ImportedVersion, StagedVersion

ASIDE = f"{PRIVATE_DIRECTORY}/{promotion.EXTERNAL_DIRECTORY}"


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
        version_import.transaction_name(found.transaction)
        with translated(where, is_reading=False), suppress(FileNotFoundError):
            self._data.name([f"{folder}/{TRANSACTIONS}/{found.transaction}"])
        dataset = self._opened(folder, staged.target, given.version)
        version_import.refuse_blobs(dataset.schema, dataset.data_storage_version)
        below = None if pin is None else self._reader.open(pin)
        with translated(where, is_reading=False):  # a clean-up may take what its client just wrote
            operation = _operation_of(dataset)
        if below is not None:
            version_import.refuse_lost(operation, {part.number for part in below.parts})
            self._refuse_other(folder, below, dataset, operation, found.transaction)
            if promotion.may_be_built_on(self._files, where, staged.target):
                external_change.refuse_unsure(folder, operation)
        with translated(where, is_reading=False):
            return self._taken(folder, below, dataset, staged, found.transaction, operation)

    def versions(self, folder: str) -> list[ExternalVersion]:
        """See `tables.ExternalTables.versions`."""
        found = manifests(self._files, self._root, folder)
        return [self._described(folder, version, path) for version, path in found]

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        """See `tables.ExternalTables.added`."""
        read = [f"{folder}/data/{name}" for name in external.files]
        dataset = self._by_path(folder, external.version, external.path, read)
        return _rows_of(dataset, external, self._root / folder)

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
        operation: Any,
    ) -> ImportedVersion:
        """Make a version of another client durable."""
        what = "" if operation is None else type(operation).__name__
        restored = int(operation.version) if operation is not None and what == "Restore" else 0
        inventory = "" if below is None else below.pin.inventory
        living = {} if below is None else below.files
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
        back = (path for path in fresh if path in known or (restored > 0 and path != txn))
        with self._syncs.all() as syncing:
            syncing.begin(staged.target, is_known=below is not None)
            self._data.begin(syncing, paths, is_known=below is not None)
            added = self._inventories.hashed(paths, None)
            name = self._inventories.add(inventory, added, live, durable=False)
            syncing.begin(self._root / name, is_known=True)  # its folder is not removed
            path, rows = staged.pin_path(self._root), dataset.count_rows()
            pin = self._inventories.pin(dataset.version, path, rows, name)
        self._reader.keep(pin, dataset)  # the next one goes on top
        read_version = version_import.read_version(transaction)
        added_paths = (pin.path, *paths)
        return ImportedVersion(
            pin, dataset.schema, what, read_version, added_paths, tuple(back), restored
        )

    def _opened(self, folder: str, manifest: Path, version: int) -> Any:
        """Open what a client wrote; it may be anything.

        Raises:
            RequestError: Lance cannot read it as that version.
        """
        try:
            return self._at(kept.home_of(folder) or folder, version, manifest)
        except CorruptionError as error:
            raise RequestError(f"the manifest cannot be read: {error.reason}") from error

    def _described(self, folder: str, version: int, path: str) -> ExternalVersion:
        try:
            dataset = self._by_path(folder, version, path)
            found = _account_of(dataset, path, self._root / folder, folder)
        except SiltstoneError as error:
            return ExternalVersion(path, version, 0, f"it cannot be read: {error}")
        # Lance deletes data first: a clean-up that was killed leaves a manifest without its rows.
        data = (f"{folder}/data/{name}" for name in found.files)
        gone = [each for each in data if not self._is_there(each)]
        if gone:
            by = f"{found.by}; {gone[0]} is gone, and its rows with it"
            return replace(found, by=by, added=None, files=())
        return found

    def _is_there(self, path: str) -> bool:
        return self._files.exists(kept.place(self._files, self._root, path))

    def _by_path(
        self, folder: str, version: int, path: str, read: Collection[str] | None = None
    ) -> Any:
        """Open a version by path where its files are: a clean-up may have taken public names.

        `read` are the files that will be read; None: any.
        """
        manifest = self._root / path
        dataset = self._at(folder, version, manifest)
        home = kept.home_of(folder)
        if read is None:
            named = external_change.of(folder, dataset.get_fragments()).values()
            read = [*chain.from_iterable(named)]
        exposed, hidden = kept.lacking(self._files, self._root, read)
        return dataset if exposed or not hidden else self._at(str(home), version, manifest)

    def _at(self, location: str, version: int, manifest: Path) -> Any:
        with translated(manifest, is_reading=True):
            return self._reader.dataset(self._root / location, version, manifest)


def _operation_of(dataset: Any) -> Any:
    """Return the change that made a version; None where Lance cannot say."""
    with suppress(TypeError):  # pylance 14: of a Rewrite with indexes
        return dataset.read_transaction(dataset.version).operation
    return None


def manifests(files: Files, root: Path, folder: str) -> list[tuple[int, str]]:
    """Return (version, path) of the external manifests in a dataset, lowest version first.

    Each version appears once: a crash while it is set aside leaves it with two names.
    """
    where = root / folder
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for inside in ("_versions", ASIDE):
        names = names_in(files, where / inside)
        final = [name for name in names if name.endswith(promotion.SUFFIX)]
        versions = {name: promotion.version_of(name) for name in final}
        public = [where / inside / name for name in final]
        ours = promotion.identities(files, where, public)
        for name, version in versions.items():
            identity = _strange(files, where / inside / name, ours)
            if version is not None and identity is not None:
                found[identity] = (version, f"{folder}/{inside}/{name}")
    return sorted(found.values())


def _strange(files: Files, path: Path, ours: Collection[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the identity of a manifest that is none of `ours`, listed after it was seen.

    Vacuum unlinks the public name of one of ours before the private one, so a name that it took
    away before we listed is gone when it is asked again.
    """
    try:
        identity = files.identity(path)
        return identity if identity not in ours and files.exists(path) else None
    except FileNotFoundError:
        return None


def _account_of(dataset: Any, path: str, folder: Path, inside: str) -> ExternalVersion:
    """Return the description of a version that Lance opened from `path`.

    `folder` is the folder of the dataset, `inside` the same relative to the root.
    """
    with translated(folder, is_reading=True):
        version, rows = int(dataset.version), int(dataset.count_rows())
        transaction = dataset.read_transaction(version)
        named = _named(dataset, transaction, inside)
        if transaction is None:
            return ExternalVersion(path, version, rows, "unknown", named=named)
        what = type(transaction.operation).__name__
        by = f"{what}, transaction {transaction.uuid}"
        # To append where no dataset is makes one, which Lance calls an overwrite.
        is_first = what == "Overwrite" and version == 1 and not transaction.read_version
        if what != "Append" and not is_first:
            return ExternalVersion(path, version, rows, by, named=named)
        names = {file.path for f in transaction.operation.fragments for file in f.files}
        added = sum(fragment.count_rows() for fragment in _holding(dataset, names))
        return ExternalVersion(path, version, rows, by, added, tuple(sorted(names)), named)


def _named(dataset: Any, transaction: Any, inside: str) -> tuple[str, ...]:
    files = external_change.of(inside, dataset.get_fragments()).values()
    note = ""
    if transaction is not None:
        note = f"{inside}/_transactions/{transaction.read_version}-{transaction.uuid}.txn"
    return (*(path for paths in files for path in paths), note)


def _rows_of(dataset: Any, external: ExternalVersion, folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a version added."""
    with translated(folder, is_reading=True):
        for fragment in _holding(dataset, set(external.files)):
            yield from fragment.to_batches(blob_handling="all_binary")


def _holding(dataset: Any, names: set[str]) -> Iterator[Any]:
    """Yield the fragments whose files are all among `names`."""
    for fragment in dataset.get_fragments():
        if {file.path for file in fragment.metadata.files} <= names:
            yield fragment
