"""Fake datasets: the files of fake Lance, what every change of them does, and what is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from siltstone.errors import UnavailableError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin, physical_of
from siltstone.process.shares import LanceShares
from siltstone.storage.files import arrow_file
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.tables import base_numbers, promotion, staging
from siltstone.storage.tables.inventories import Inventories, check
from siltstone.storage.tables.tables import TextAnalyzer
from siltstone.storage.tables.values import (
    StagedFiles,
)
from tests.support.fake_pinned import FakeManifest, FakePinned

if TYPE_CHECKING:
    from siltstone.storage.files.files import Files


class FakeFiles:
    """The files of fake datasets, and the two steps of every change: `write`, then `commit`."""

    def __init__(self, root: Path, files: Files, token: Callable[[], str]) -> None:
        self.root, self.files, self.token = root, files, token
        self.inventories = Inventories(root, files, token)

    def manifest(self, pin: Pin) -> FakeManifest:
        check(self.files, self.root, InventoryFile(pin.path, pin.size, pin.xxh3))
        return FakeManifest.decode(self.read(pin.path))

    def read(self, path: str) -> bytes:
        try:
            return self.files.read(self.root / path)
        except OSError as error:  # as `lance_errors` does for what Lance reads itself
            raise UnavailableError(f"{path} cannot be read: {error}") from error

    def write(
        self,
        folder: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        rows = [staging.arranged(batch, schema) for batch in batches if batch.num_rows]
        if not rows:
            return StagedFiles(0, (), (), ())
        path = f"{folder}/data/{self.token()}.arrow"
        with translated(self.root / folder, is_reading=False):
            self.files.write(self.root / path, stream(schema, rows))
            files = self.inventories.seal([path], seqs)
            self.files.sync_dir(self.root / folder / "data")
        count = sum(batch.num_rows for batch in rows)
        return StagedFiles(count, (json.dumps([path, count]),), tuple(files), ())

    def commit(
        self,
        on: Pin | str,
        manifest: FakeManifest,
        added: Iterable[InventoryFile],
        *,
        version: int = 0,
    ) -> Pin:
        """Commit on a pin, or the first version in a folder; the next version, or one given."""
        pin, folder = (None, on) if isinstance(on, str) else (on, on.folder)
        with translated(self.root / folder, is_reading=False):
            least = base_numbers.lowest(self.files, self.root, self.root / folder)
            version = version or max(least, 1 if pin is None else pin.version + 1)
            path = f"{folder}/{PRIVATE_DIRECTORY}/{self.token()}/{promotion.public_name(version)}"
            self.files.mkdir((self.root / path).parent)
            self.files.write(self.root / path, manifest.encode())
            below, hidden = "" if pin is None else pin.inventory, manifest.hidden_rows
            physical = self._physical(path, manifest) if hidden else []
            self.files.sync_dir((self.root / path).parent)
            runs = () if pin is None else pin.runs
            live = [*manifest.live, *(file.path for file in (*physical, *runs))]
            inventory = self.inventories.add(below, [*added, *physical], live)
            made = self.inventories.pin(version, path, sum(manifest.rows) - hidden, inventory)
            return msgspec.structs.replace(made, hidden=hidden, runs=runs)

    def _physical(self, path: str, manifest: FakeManifest) -> list[InventoryFile]:
        self.files.write(self.root / physical_of(path), replace(manifest, hidden=()).encode())
        return self.inventories.hashed([physical_of(path)], None)

    def living(self, pin: Pin) -> dict[str, InventoryFile]:
        """Return the files that a pin needs besides its manifest, by their paths."""
        others = [pin.physical_path] if pin.hidden else []
        others += [run.path for run in pin.runs]
        return self.inventories.live(pin.inventory, [*self.manifest(pin).live, *others])


class FakeReader:
    """See `tables.TableReader`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def analyzer(self, options: object) -> TextAnalyzer:
        """See `tables.TableReader.analyzer`: no test of fakes searches for words."""
        raise NotImplementedError

    def open(self, pin: Pin) -> FakePinned:  # the seam
        manifest, known = self._data.manifest(pin), self._data.living(pin)
        if pin.hidden:
            check(self._data.files, self._data.root, known[pin.physical_path])

        def read(path: str) -> pa.Table:
            self._data.inventories.verify([known[path]])
            table = pa.ipc.open_stream(self._data.read(path)).read_all()
            return manifest.as_here(path, table)

        def offsets(path: str) -> list[int]:
            self._data.inventories.verify([known[path]])
            return json.loads(self._data.read(path))

        return FakePinned(pin, manifest, read, known, offsets)

    def read_arrow(self, pin: Pin) -> pa.Table:  # the seam
        return arrow_file.read(self._data.files, self._data.root, pin)

    def files(self, pin: Pin) -> list[InventoryFile]:  # the seam
        manifest = InventoryFile(pin.path, pin.size, pin.xxh3)
        if pin.is_arrow:
            return [manifest]
        return [
            *self._data.living(pin).values(),
            manifest,
            *self._data.inventories.own_files(pin.inventory),
        ]

    def derived(self, pin: Pin) -> dict[str, bytes]:
        physical = replace(self._data.manifest(pin), hidden=())
        return {pin.physical_path: physical.encode()} if pin.hidden else {}

    def check(self, pin: Pin) -> None:
        for file in self.files(pin):
            check(self._data.files, self._data.root, file)

    def release(self) -> None:
        pass

    def bound(self, shares: LanceShares) -> None:
        del shares  # it caches nothing

    def cached_bytes(self) -> int:
        return 0


def stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def extended(manifest: FakeManifest, staged: StagedFiles) -> FakeManifest:
    parts = [json.loads(text) for text in staged.fragments]
    return replace(
        manifest,
        paths=(*manifest.paths, *(path for path, _ in parts)),
        rows=(*manifest.rows, *(rows for _, rows in parts)),
    )
