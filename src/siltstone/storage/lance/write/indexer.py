"""Lance indexer: builds segments of indexes, which are in no version until a commit adds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.index_files import index_files
from siltstone.storage.lance.read.pinned import parts_with
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.lance.search import indexes as lance_indexes
from siltstone.storage.lance.write.commits import LanceCommits
from siltstone.storage.lance.write.compactor import canonical, described
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import (
    INDEX_DIRECTORY,
    BuiltSegment,
    IndexSpec,
    InputsMovedError,
    Span,
)


class LanceIndexer:
    """See `tables.TableIndexer`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._inventories, self._syncs = data.inventories, data.syncs
        self._reader, self._commits = reader, commits

    def build(self, pin: Pin, spec: IndexSpec, within: Sequence[Span]) -> BuiltSegment:
        """See `tables.TableIndexer.build`. Inputs are verified."""
        table, where = self._reader.fresh(pin), self._root / pin.folder
        staging.refuse_unknown(table.schema, spec.column)
        parts = parts_with(table, within)
        fragments = [table.fragment_of(part, is_checked=True) for part in parts]
        with translated(where, is_reading=False):
            built = lance_indexes.build(table.dataset, spec, fragments)
            home = f"{pin.folder}/{INDEX_DIRECTORY}/{built.uuid}"
            written = kept.place(self._files, self._root, home)
            left = written / lance_indexes.STAGING
            if self._files.is_dir(left):
                self._files.rmdir(left)
            self._data.name(f"{home}/{name}" for name in self._files.list(written))
            names = index_files(self._files, self._root, home)
            with self._syncs.all() as syncing:
                self._data.begin(syncing, names, is_known=True)
                files = self._inventories.hashed(names, None)
        inputs = [canonical(each.metadata.to_json()) for each in fragments]
        inputs = inputs or [_column(table.dataset, spec.column)]
        return BuiltSegment(spec.name, tuple(inputs), lance_indexes.encode(built), tuple(files))

    def put(self, pin: Pin, built: Sequence[BuiltSegment], gone: Sequence[str] = ()) -> Pin:
        """See `tables.TableIndexer.put`. No data file is written."""
        if not (built or gone):
            return pin
        dataset = self._reader.open(pin).dataset
        numbers = described(dataset)
        today = {text: number for number, text in numbers.items()}
        columns = {_column(dataset, name) for name in dataset.schema.names}
        new: list[Any] = []
        for segment in built:
            covered = {today[text] for text in segment.inputs if text in today}
            is_gone = not covered and columns.isdisjoint(segment.inputs)
            if is_gone or covered & lance_indexes.covered(dataset, segment.index, gone):
                raise InputsMovedError  # two that cover a row would give it twice
            index = lance_indexes.decode(segment.described)
            if covered != numbers.keys() & set(index.fragment_ids):
                raise InputsMovedError  # a part was altered
            # It still names parts that are gone: by these Lance knows that it must leave out rows
            # of the segment that are not in the version.
            new.append(index)
        operation = lance_indexes.change(dataset, new, set(gone))
        files = [file for segment in built for file in segment.files]
        return self._commits.commit(pin, [operation], files, rows=pin.rows)


def _column(dataset: Any, name: str) -> str:
    """Return a key of a column, the input of a segment of no parts: its number, name and type.

    Lance numbers columns anew when all rows are replaced, and a segment names its column by number.
    """
    (found,) = staging.columns_of(dataset.lance_schema, pa.schema([dataset.schema.field(name)]))
    return json.dumps(found)
