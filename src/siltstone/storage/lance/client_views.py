"""Client views: what is written for other Lance clients alone, and what no pin names.

A version with rows laid over a pin (`overlay`), and the lists of Lance's directory namespace
(`directory`, `root_tables`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import Pin
from siltstone.storage.lance import directory as lance_directory
from siltstone.storage.lance import manifest as lance_manifest
from siltstone.storage.lance import overlay, root_tables
from siltstone.storage.lance.commits import LanceCommits
from siltstone.storage.lance.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.reader import LanceReader
from siltstone.storage.lance.row_files import RowFiles
from siltstone.storage.lance.staged_catalog import (
    StagedCatalog,
    lance_module,
    open_newest,
    put,
    writing,
)
from siltstone.storage.lance.writer import LanceWriter
from siltstone.storage.tables import promotion, staging
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.tables import PRIVATE_DIRECTORY, Ephemeral, Listed, RootTable

if TYPE_CHECKING:
    import pyarrow as pa


class LanceClientViews:
    """See `tables.ClientViews`; threads may share it."""

    def __init__(
        self,
        data: DatasetFiles,
        *,
        reader: LanceReader,
        rows: RowFiles,
        commits: LanceCommits,
        writer: LanceWriter,
    ) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._reader, self._rows, self._commits, self._writer = reader, rows, commits, writer

    def overlaid(
        self,
        folder: str,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        version: int,
    ) -> Ephemeral:
        """See `tables.ClientViews.overlaid`. After a crash, vacuum deletes the files."""
        table, where = self._reader.open(folder, pin), self._root / folder
        found = staging.peeked(batches)
        catalog = self._commits.begin(folder, {pin.version: self._root / pin.path})
        with writing(where, catalog):
            changed, gone = overlay.hidden(table, np.sort(drop))
            added = (
                []
                if found is None
                else self._rows.write(folder, table.dataset, table.schema, found[1])
            )
            added = [*overlay.numbered(added, version)]
            update = lance_module().LanceOperation.Update(gone, changed, added)
            dataset = put(catalog, open_newest(catalog), update, read_version=pin.version)
        with translated(where, is_reading=False):
            return self._renumbered(folder, catalog, dataset, [*changed, *added], version)

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.ClientViews.write_directory`.

        It writes a new dataset, durable before the link that makes it the newest version. It
        deletes the files of older lists after an hour, because a reader may still use them.
        """
        folder, where = lance_directory.FOLDER, self._root / lance_directory.FOLDER
        pin = self._writer.create(folder, lance_directory.SCHEMA)
        pin = self._writer.append(folder, pin, [lance_directory.rows(listed)])
        catalog = self._commits.begin(folder, {pin.version: self._root / pin.path})
        with writing(where, catalog):
            open_newest(catalog).update_metadata(lance_directory.FENCE)
            dataset = open_newest(catalog)
        pin = self._commits.seal(folder, pin.inventory, catalog, dataset, (), rows=pin.rows)
        needed = {file.path for file in self._reader.files(folder, pin)}
        with translated(where, is_reading=False):
            public = where / "_versions"
            self._files.mkdir(public)
            below = [promotion.version_of(name) or 0 for name in self._files.list(public)]
            number = max([0, *below]) + 1
            data = lance_manifest.renumbered(self._files.read(self._root / pin.path), number)
            self._files.create_if_absent(public / promotion.public_name(number), data)
            self._forget_lists(where, needed, number)

    def write_root_tables(self, tables: Sequence[RootTable]) -> None:
        """See `tables.ClientViews.write_root_tables`."""
        failed: list[SiltstoneError] = []
        for table in tables:
            try:
                with translated(self._root / table.folder, is_reading=False):
                    root_tables.show(self._files, self._root, table, self._cloned)
            except SiltstoneError as error:
                failed.append(error)
        with translated(self._root, is_reading=False):
            names = [table.name for table in tables]
            root_tables.forget(self._files, self._root, names, lance_directory.KEPT_S)
        if failed:
            raise failed[0]

    def _renumbered(
        self,
        folder: str,
        catalog: StagedCatalog,
        dataset: Any,
        own: Sequence[Any],
        version: int,
    ) -> Ephemeral:
        written = catalog.versions[dataset.version]
        path = catalog.location / promotion.public_name(version)
        data = lance_manifest.renumbered(self._files.read(written), version)
        self._files.replace(path, data, durable=False)
        self._commits.tidy(catalog.location, path)
        numbers = {fragment.id for fragment in own}
        mine = [f for f in dataset.get_fragments() if f.fragment_id in numbers]
        new = [
            f"{DATA}/{x.path}"
            for f in mine
            for x in f.metadata.files
            if f.fragment_id >= overlay.FRAGMENTS_FROM
        ]
        new += [str(f.deletion_file()) for f in mine if f.metadata.deletion_file]
        self._data.name(f"{folder}/{name}" for name in new)
        names = [str(path.relative_to(self._root)), *(f"{folder}/{name}" for name in new)]
        files = [describe(self._files, self._root, name) for name in names]
        manifest = files[0]
        pin = Pin(version, manifest.path, manifest.size, manifest.xxh3, dataset.count_rows(), "")
        return Ephemeral(pin, (*files,))

    def _cloned(self, folder: str, pin: Pin) -> bytes:
        """Return the manifest of a dataset that has a pin's files by their absolute paths."""
        source = lance_module().dataset(str(self._root / folder), version=pin.version)
        with tempfile.TemporaryDirectory(prefix="siltstone-") as target:
            clone = source.shallow_clone(f"{target}/t", pin.version)
            name = promotion.public_name(clone.version)
            return (Path(target) / "t" / "_versions" / name).read_bytes()

    def _forget_lists(self, where: Path, needed: Collection[str], number: int) -> None:
        kept = {*needed, str(where / "_versions" / promotion.public_name(number))}
        for folder in ("_versions", DATA, TRANSACTIONS, PRIVATE_DIRECTORY):
            for path in self._below(where / folder):
                name = str(path.relative_to(self._root))
                if name not in kept and str(path) not in kept and self._is_stale(path):
                    self._files.unlink(path)
                    if folder == PRIVATE_DIRECTORY and not self._files.list(path.parent):
                        self._files.rmdir(path.parent)

    def _below(self, folder: Path) -> Iterator[Path]:
        for name in self._files.list(folder):
            path = folder / name
            yield from self._below(path) if self._files.is_dir(path) else [path]

    def _is_stale(self, path: Path) -> bool:
        return time.time() - self._files.mtime(path) > lance_directory.KEPT_S
