"""Client views: what is written for other Lance clients alone, and what no pin names.

An overlay, a version with more rows over a pin:

    deletion files of the hidden rows           ─▶ one commit in private ─▶ its manifest, with a
    one fragment or several of the rows on top      number of its own

A client may cache several versions by the number of the version or of the fragment, so neither is
ever reused. Fragments on top have numbers from 2^31 on, which no dataset of ours ever reaches.

The `__manifest` dataset of Lance's directory namespace, for readers only (and `root_tables`):

    object_id (key)   object_type           location             metadata, base_objects: null
    db                namespace             null
    db$t              table                 tables/db.t-1/base

Another object type would keep reads working and break every write of other clients, so there are
only these two. A feature flag that no writer knows stops writers: they would overwrite the whole
table, and their list would differ from the store.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from siltstone.errors import SiltstoneError, UnavailableError
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin
from siltstone.storage.lance.external import root_tables
from siltstone.storage.lance.files import manifest as lance_manifest
from siltstone.storage.lance.files.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.staged_catalog import (
    StagedCatalog,
    lance_module,
    open_newest,
    put,
    writing,
)
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.lance.write.commits import LanceCommits
from siltstone.storage.lance.write.writer import LanceWriter
from siltstone.storage.tables import promotion, staging
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.values import Batches, Ephemeral, Listed, ShownTable

_FRAGMENTS_FROM = 1 << 31
_FRAGMENTS_MAX = 64
_FOLDER = "__manifest"
_FENCE = {"lance.namespace.manifest.writer_feature_flags": str(1 << 62)}
_KEPT_S = 3_600.0
_KEY = {b"lance-schema:unenforced-primary-key:position": b"0"}
_LIST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


class LanceClientViews:
    """See `tables.ClientViews`; threads may share it."""

    def __init__(
        self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits, writer: LanceWriter
    ) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._reader, self._commits, self._writer = reader, commits, writer

    def overlaid(self, pin: Pin, *, drop: np.ndarray, batches: Batches, version: int) -> Ephemeral:
        """See `tables.ClientViews.overlaid`. After a crash, vacuum deletes the files."""
        table, where = self._reader.open(pin), self._root / pin.folder
        found = staging.peeked(batches)
        catalog = self._commits.begin(pin.folder, pin)
        with writing(where, catalog):
            changed, gone = _hidden(table, np.sort(drop))
            added: list[Any] = []
            if found is not None:
                added = self._commits.write_rows(table, table.schema, found[1])
                added = [*_numbered(added, version)]
            update = lance_module().LanceOperation.Update(gone, changed, added)
            dataset = put(catalog, open_newest(catalog), update, read_version=pin.version)
        with translated(where, is_reading=False):
            return self._renumbered(pin.folder, catalog, dataset, [*changed, *added], version)

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.ClientViews.write_directory`.

        It writes a new dataset, durable before the link that makes it the newest version. It
        deletes the files of older lists after an hour, because a reader may still use them.
        """
        where = self._root / _FOLDER
        pin = self._writer.create(_FOLDER, _LIST_SCHEMA)
        pin = self._writer.append(pin, [_rows(listed)])
        catalog = self._commits.begin(pin.folder, pin)
        with writing(where, catalog):
            open_newest(catalog).update_metadata(_FENCE)
            dataset = open_newest(catalog)
        pin = self._commits.seal(pin, catalog, dataset, (), rows=pin.rows)
        needed = {file.path for file in self._reader.files(pin)}
        with translated(where, is_reading=False):
            public = where / "_versions"
            self._files.mkdir(public)
            below = [promotion.version_of(name) or 0 for name in self._files.list(public)]
            number = max([0, *below]) + 1
            data = lance_manifest.renumbered(self._files.read(self._root / pin.path), number)
            self._files.create_if_absent(public / promotion.public_name(number), data)
            self._forget_lists(where, needed, number)

    def write_root_tables(self, tables: Sequence[ShownTable]) -> None:
        """See `tables.ClientViews.write_root_tables`."""
        failed: list[SiltstoneError] = []
        for table in tables:
            try:
                with translated(self._root / table.pin.folder, is_reading=False):
                    root_tables.show(self._files, self._root, table, self._cloned)
            except SiltstoneError as error:
                failed.append(error)
        with translated(self._root, is_reading=False):
            names = [table.name for table in tables]
            root_tables.forget(self._files, self._root, names, _KEPT_S)
        if failed:
            raise failed[0]

    def _renumbered(
        self, folder: str, catalog: StagedCatalog, dataset: Any, own: Sequence[Any], version: int
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
            if f.fragment_id >= _FRAGMENTS_FROM
        ]
        new += [str(f.deletion_file()) for f in mine if f.metadata.deletion_file]
        self._data.name(f"{folder}/{name}" for name in new)
        name = str(path.relative_to(self._root))
        pin = self._data.inventories.pin(version, name, dataset.count_rows(), "")
        names = [name, *(f"{folder}/{each}" for each in new)]
        return Ephemeral(pin, tuple(describe(self._files, self._root, each) for each in names))

    def _cloned(self, pin: Pin) -> bytes:
        """Return the manifest of a dataset that has a pin's files by their absolute paths."""
        source = lance_module().dataset(str(self._root / pin.folder), version=pin.version)
        with tempfile.TemporaryDirectory(prefix="siltstone-") as target:
            clone = source.shallow_clone(f"{target}/t", pin.version)
            name = promotion.public_name(clone.version)
            return (Path(target) / "t" / "_versions" / name).read_bytes()

    def _forget_lists(self, where: Path, needed: Collection[str], number: int) -> None:
        oldest = time.time() - _KEPT_S
        kept = {*needed, str(where / "_versions" / promotion.public_name(number))}
        for folder in ("_versions", DATA, TRANSACTIONS, PRIVATE_DIRECTORY):
            for path in self._below(where / folder):
                name = str(path.relative_to(self._root))
                if name not in kept and str(path) not in kept and self._files.mtime(path) < oldest:
                    self._files.unlink(path)
                    if folder == PRIVATE_DIRECTORY and not self._files.list(path.parent):
                        self._files.rmdir(path.parent)

    def _below(self, folder: Path) -> Iterator[Path]:
        for name in self._files.list(folder):
            path = folder / name
            yield from self._below(path) if self._files.is_dir(path) else [path]


def _hidden(table: LancePinned, drop: np.ndarray) -> tuple[list[Any], list[int]]:
    """Write deletion files; return the fragments that lose rows, and the numbers of lost ones."""
    changed: list[Any] = []
    gone: list[int] = []
    for part in table.parts:
        low, high = np.searchsorted(drop, part.span)
        if high - low == table.hidden.count(part.number):
            continue  # none more than the deletion file of the pin says
        offsets = (drop[low:high] - part.start).tolist()
        left = table.fragment_of(part).delete_rows(offsets)
        if left is None:
            gone.append(part.number)
        else:
            changed.append(left.metadata if hasattr(left, "metadata") else left)
    return changed, gone


def _numbered(fragments: Sequence[Any], version: int) -> Iterable[Any]:
    """Yield staged fragments with numbers that only this version has.

    Raises:
        UnavailableError: There are too many of them: merge first.
    """
    if len(fragments) > _FRAGMENTS_MAX:
        raise UnavailableError(
            f"{len(fragments)} fragments of rows are not merged, at most {_FRAGMENTS_MAX} can be"
            " shown to other clients: merge first"
        )
    first = _FRAGMENTS_FROM + version * _FRAGMENTS_MAX % _FRAGMENTS_FROM
    for index, fragment in enumerate(fragments):
        yield type(fragment).from_json(json.dumps(fragment.to_json() | {"id": first + index}))


def _rows(listed: Sequence[Listed]) -> pa.RecordBatch:
    """Return the rows that list namespaces and tables."""
    rows = [{"object_id": i.name, "object_type": i.kind, "location": i.folder} for i in listed]
    return pa.RecordBatch.from_pylist(rows, schema=_LIST_SCHEMA)
