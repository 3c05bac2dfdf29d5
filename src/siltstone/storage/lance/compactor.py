"""Lance compactor: parts of a version rewritten as few files, and put into later versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from siltstone.storage.lance import compaction
from siltstone.storage.lance import indexes as lance_indexes
from siltstone.storage.lance.commits import LanceCommits
from siltstone.storage.lance.dataset_files import DATA, DatasetFiles
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.pinned import LancePinned, Part
from siltstone.storage.lance.reader import LanceReader
from siltstone.storage.tables import staging
from siltstone.storage.tables.tables import Compacted, Span
from siltstone.units import require

if TYPE_CHECKING:
    from siltstone.formats.manifest import Pin


class LanceCompactor:
    """See `tables.TableCompactor`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._root, self._inventories = data, data.root, data.inventories
        self._reader, self._commits = reader, commits

    def compact(self, folder: str, pin: Pin, within: tuple[int, int]) -> Compacted:
        """See `tables.TableCompactor.compact`. Inputs are verified."""
        table = self._reader.fresh(folder, pin)
        parts = _parts_within(table, within)
        require(bool(parts), f"{within} of {pin.path} holds no part")
        inputs = [table.inventory()[path] for part in parts for path in part.paths]
        fragments = [table.fragment_of(part) for part in parts]
        with translated(self._root / folder, is_reading=False):
            old, new = compaction.compact(table.dataset, fragments)
            names = [f"{folder}/{DATA}/{file['path']}" for f in new for file in f["files"]]
            self._data.name(names)
            files = self._inventories.seal(names, staging.span(inputs, None, has_more=False))
            self._data.sync_names(folder, DATA)
        rows = sum(fragment["physical_rows"] for fragment in new)
        require(rows == within[1] - within[0], f"{within} of {pin.path} gave {rows} rows")
        return Compacted(
            rows,
            tuple(compaction.canonical(fragment) for fragment in old),
            tuple(json.dumps(fragment) for fragment in new),
            tuple(files),
        )

    def untouched(self, folder: str, pin: Pin, planned: Pin, within: Sequence[Span]) -> list[bool]:
        """See `tables.TableCompactor.untouched`."""
        if pin.path == planned.path:
            return [True] * len(within)
        today = compaction.described(self._reader.open(folder, pin).dataset)
        table = self._reader.open(folder, planned)
        before = compaction.described(table.dataset)
        return [
            all(
                before[part.number] == today.get(part.number) for part in _parts_within(table, span)
            )
            for span in within
        ]

    def ready(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        """See `tables.TableCompactor.ready`."""
        dataset = self._reader.open(folder, pin).dataset
        split = lance_indexes.split(dataset, map(compaction.numbers, compacted))
        if not split:
            return pin
        return self._commits.commit(
            folder, pin, [lance_indexes.change(dataset, (), split)], (), rows=pin.rows
        )

    def swap(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        """See `tables.TableCompactor.swap`."""
        if not compacted:
            return pin
        dataset = self._reader.open(folder, pin).dataset
        operations = [compaction.rewrite(dataset, compacted)]
        # Lance refuses to compact what an index covers together with what it does not.
        split = lance_indexes.split(dataset, map(compaction.numbers, compacted))
        if split:
            operations.insert(0, lance_indexes.change(dataset, (), split))
        files = [file for item in compacted for file in item.files]
        return self._commits.commit(folder, pin, operations, files, rows=pin.rows)

    def bare(self, folder: str, pin: Pin, drop: Sequence[str]) -> list[Span]:
        """See `tables.TableCompactor.bare`. Lance: "Fragment 0 does not contain any data"."""
        table = self._reader.fresh(folder, pin)
        if not drop:
            return []
        schema = table.dataset.lance_schema
        return [
            span
            for part, span in zip(table.parts, table.spans, strict=True)
            if staging.is_bare(table.fragment_of(part).metadata, schema, drop)
        ]


def _parts_within(table: LancePinned, within: Span) -> list[Part]:
    """Return the parts whose rows all lie in [first, end)."""
    first, end = within
    return [p for p in table.parts if first <= p.start and p.start + p.rows <= end]
