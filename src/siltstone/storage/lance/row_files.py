"""Row files: rows written into new data files of a dataset, durable, named by no version yet."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from siltstone.storage.lance.dataset_files import DATA, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.staged_catalog import lance_module
from siltstone.storage.tables import staging
from siltstone.storage.tables.tables import StagedFiles


class RowFiles:
    """Writes data files; threads may share it."""

    def __init__(self, data: DatasetFiles) -> None:
        self._data, self._root, self._inventories = data, data.root, data.inventories

    def write(
        self,
        folder: str,
        dataset: Any,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: str = "append",
    ) -> list[Any]:
        """Write rows through Lance; what the caller's iterator raises comes out as it is."""
        where, feed = self._root / folder, staging.BatchFeed(batches, schema)
        try:
            with translated(where, is_reading=False):
                write = importlib.import_module("lance.fragment").write_fragments
                return write(feed.reader(), dataset, mode=mode)
        except Exception:
            if feed.error is not None:
                raise feed.error from None  # what the caller's own iterator raised
            raise

    def seal(
        self,
        folder: str,
        fragments: Sequence[Any],
        columns: tuple[staging.Column, ...],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        with translated(self._root / folder, is_reading=False):
            names = [f"{folder}/{DATA}/{file.path}" for f in fragments for file in f.files]
            self._data.name(names)
            files = self._inventories.seal(names, seqs)
            self._data.sync_names(folder, DATA)
        return StagedFiles(
            sum(fragment.num_rows for fragment in fragments),
            tuple(json.dumps(fragment.to_json()) for fragment in fragments),
            tuple(files),
            columns,
        )


def fragments_of(staged: StagedFiles) -> list[Any]:
    metadata = lance_module().FragmentMetadata
    return [metadata.from_json(text) for text in staged.fragments]
