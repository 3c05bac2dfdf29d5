"""Client views: what is written for other Lance clients alone, and what no pin names.

An overlay, a version with more rows over a pin:

    deletion files of the hidden rows           ─▶ one commit in private ─▶ its manifest, with a
    one fragment or several of the rows on top      number of its own

A client may cache several versions by the number of the version or of the fragment, so neither is
ever reused. Fragments on top have numbers from 2^31 on, which no dataset of ours ever reaches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from siltstone.errors import UnavailableError
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files import manifest as lance_manifest
from siltstone.storage.lance.files.dataset_files import DATA, DatasetFiles
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
from siltstone.storage.tables import promotion, staging
from siltstone.storage.tables.inventories import describe
from siltstone.storage.tables.values import Batches, Ephemeral

_FRAGMENTS_FROM = 1 << 31
_FRAGMENTS_MAX = 64


class LanceClientViews:
    """See `tables.ClientViews`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._reader, self._commits = reader, commits

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
