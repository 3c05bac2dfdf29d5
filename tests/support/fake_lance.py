"""Fake Lance: `tables.Tables` in Arrow IPC files, small enough to be right at a glance.

    <folder>/data/<token>.arrow                    Arrow IPC stream, written once
    <folder>/_siltstone/<token>/<version>.manifest JSON: schema, column ids, data files
    <folder>/_indices/<token>/segment.arrow        a segment of an index: the column, as it is
    <folder>/_versions/                            promoted links

The durable steps come in the order of `lance_tables`, through `Files`, so that crash tests
enumerate them on a simulated machine, where Rust cannot follow. Everything is held in memory.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.external import external_tables, version_import
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.tables import promotion
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.keys.key_cover import TableKeys
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import (
    Ephemeral,
    ExternalVersion,
    ImportedVersion,
    Listed,
    ShownTable,
    StagedFiles,
    StagedVersion,
)
from tests.support.fake_pinned import FakeManifest

if TYPE_CHECKING:
    from siltstone.storage.files.files import Files
from tests.support.fake_compactor import FakeCompactor, FakeIndexer
from tests.support.fake_datasets import FakeFiles, FakeReader, extended
from tests.support.fake_writers import FakeRewriter, FakeWriter


class FakePaths:
    """See `tables.PinPaths`."""

    def __init__(self, reader: FakeReader) -> None:
        self._reader = reader

    def needed(self, pins: Iterable[Pin]) -> set[str]:
        return {file.path for pin in pins for file in self._reader.files(pin)}


class FakeNames:
    """See `tables.PublicNames`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def show(self, folder: str, pins: Iterable[Pin], *, is_whole: bool = False) -> None:
        where = self._data.root / folder
        wanted = {pin.version: self._data.root / pin.path for pin in pins}
        with translated(where, is_reading=False):
            promotion.link(self._data.files, where, wanted, max(wanted))

    def promote(self, pins: Sequence[Pin], newest: Pin) -> None:
        where = self._data.root / newest.folder
        wanted = {pin.version: self._data.root / pin.path for pin in (*pins, newest)}
        with translated(where, is_reading=False):
            promotion.link(self._data.files, where, wanted, newest.version)
            promotion.unlink_stale(self._data.files, where, set(wanted), newest.version)
            promotion.clear(self._data.files, where)

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        where = self._data.root / folder
        with translated(where, is_reading=False):
            found = promotion.clear(self._data.files, where, above)
        return [(version, str(path.relative_to(self._data.root))) for version, path in found]

    def unite(self, folder: str) -> None:
        """See `tables.PublicNames.unite`: files have one name, nobody else opens these datasets."""

    def unite_all(self) -> None:
        """See `tables.PublicNames.unite_all`."""

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """See `tables.PublicNames.lacking`."""
        return [], []


class FakeExternal:
    """See `tables.ExternalTables`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """See `tables.ExternalTables.import_version`; the client is `stage_external`."""
        staged = version_import.staged_manifest(self._data.root, folder, given)
        with translated(self._data.root / folder, is_reading=False):
            version_import.take(self._data.files, staged, given.size)
            manifest = FakeManifest.decode(self._data.files.read(staged.target))
            below = "" if pin is None else pin.inventory
            chain = self._data.inventories.chain(below).values()
            known = {file.path for each in chain for file in each.files}
            added = self._data.inventories.seal([p for p in manifest.paths if p not in known], None)
            living = () if pin is None else self._data.manifest(pin).live
            back = tuple(p for p in manifest.paths if p in known and p not in living)
            self._data.files.sync_file(staged.target)
            private = (staged.target.parent, staged.target.parent.parent)
            for path in (*private, self._data.root / folder / "data", self._data.root / folder):
                self._data.files.sync_dir(path)
            inventory = self._data.inventories.add(below, added, manifest.paths)
            file = describe(self._data.files, self._data.root, staged.pin_path(self._data.root))
        rows = sum(manifest.rows)
        made = Pin(given.version, file.path, file.size, file.xxh3, rows, inventory)
        paths = (file.path, *(each.path for each in added))
        return ImportedVersion(made, manifest.schema, "Append", given.version - 1, paths, back)

    def versions(self, folder: str) -> list[ExternalVersion]:
        """Take each for one that appended the last of its data files."""
        found: list[ExternalVersion] = []
        for version, path in external_tables.manifests(self._data.files, self._data.root, folder):
            try:
                manifest = FakeManifest.decode(self._data.read(path))
            except ValueError as error:
                found.append(ExternalVersion(path, version, 0, f"it cannot be read: {error}"))
                continue
            last = manifest.paths[-1:]
            rows = sum(manifest.rows)
            added = sum(manifest.rows[-1:])
            found.append(
                ExternalVersion(path, version, rows, "Append", added, last, manifest.paths)
            )
        return found

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        for path in external.files:
            yield from pa.ipc.open_stream(self._data.read(path)).read_all().to_batches()

    def stage_external(
        self, folder: str, pin: Pin | None, batch: pa.RecordBatch, name: str
    ) -> StagedVersion:
        """Stage an append as another client would: nothing is synced."""
        ids = tuple(range(len(batch.schema)))
        none = FakeManifest(batch.schema, ids, len(ids), (), ())
        old = none if pin is None else self._data.manifest(pin)
        version = 1 if pin is None else pin.version + 1
        where = self._data.root / folder
        path = f"{folder}/data/{name}.arrow"
        manifest = where / "_versions" / f"{promotion.public_name(version)}-{name}"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        staged = StagedFiles(batch.num_rows, (json.dumps([path, batch.num_rows]),), (), ())
        data = extended(old, staged).encode()
        with translated(where, is_reading=False):
            for directory in ("data", "_versions"):
                self._data.files.mkdir(where / directory)
            self._write_unsynced(self._data.root / path, sink.getvalue().to_pybytes())
            self._write_unsynced(manifest, data)
        return StagedVersion(version, str(manifest), len(data))

    def _write_unsynced(self, path: Path, data: bytes) -> None:
        file = self._data.files.open(path, new=True)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()


class FakeClientViews:
    """See `tables.ClientViews`."""

    def __init__(self, rewriter: FakeRewriter) -> None:
        self._rewriter = rewriter

    def overlaid(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        version: int,
    ) -> Ephemeral:
        """See `tables.ClientViews.overlaid`; here its rows are written anew."""
        made = self._rewriter.fold(pin, drop=drop, batches=batches, compact_below=1 << 62)
        file = InventoryFile(made.path, made.size, made.xxh3)
        own = () if made is pin else (file,)
        pin = Pin(version, made.path, made.size, made.xxh3, made.rows, "")
        return Ephemeral(pin, own)

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.ClientViews.write_directory`; no reader of a fake knows it."""

    def write_root_tables(self, tables: Sequence[ShownTable]) -> None:
        """See `tables.ClientViews.write_root_tables`; no reader of a fake knows it."""


def fake_lance(
    root: Path, files: Files, *, token: Callable[[], str] = lambda: uuid.uuid4().hex
) -> Tables:
    """Return `tables.Tables` that give the same answers as `lance_tables`, on any `Files`."""
    data = FakeFiles(root, files, token)
    reader = FakeReader(data)
    rewriter = FakeRewriter(data, reader)
    return Tables(
        reader=reader,
        paths=FakePaths(reader),
        writer=FakeWriter(data, reader),
        rewriter=rewriter,
        compactor=FakeCompactor(data, reader),
        indexer=FakeIndexer(data, reader),
        names=FakeNames(data),
        external=FakeExternal(data),
        clients=FakeClientViews(rewriter),
        keys=TableKeys(root, files, data.inventories, reader, token=token),
    )
