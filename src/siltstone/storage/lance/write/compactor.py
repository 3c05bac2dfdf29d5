"""Lance compactor: parts of a version rewritten as few files, and put into later versions.

Lance's own task does the work, so that rows keep their stable ids; its own planner and commit are
not used. It groups fragments by number, ours by position; and `Compaction.commit` makes two
commits, and looks for the first one in `_versions/`, where a private manifest is not.

Lance applies a hand-made Rewrite unchecked: an input that gained deletions since would restore its
deleted rows. Only `rewrite` builds one, and it refuses such inputs.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files import manifest as lance_manifest
from siltstone.storage.lance.files.dataset_files import DATA, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.lance.search import indexes as lance_indexes
from siltstone.storage.lance.write.commits import LanceCommits
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import Compacted, InputsMovedError, Span
from siltstone.units import require

_EVERY_ROW = 1 << 62


class LanceCompactor:
    """See `tables.TableCompactor`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._root = data, data.root
        self._reader, self._commits = reader, commits

    def compact(self, pin: Pin, within: tuple[int, int]) -> Compacted:
        """See `tables.TableCompactor.compact`. Inputs are verified."""
        table = self._reader.fresh(pin)
        parts = [part for part in table.parts if part.is_within(within)]
        require(bool(parts), f"{within} of {pin.path} holds no part")
        inputs = [table.files[path] for part in parts for path in part.paths]
        # Lance has no checksums: a flipped byte would get a new file, and with it a right one.
        fragments = [table.fragment_of(part, is_checked=True) for part in parts]
        with translated(self._root / pin.folder, is_reading=False):
            old, new = compact(table.dataset, fragments)
            names = [f"{pin.folder}/{DATA}/{file['path']}" for f in new for file in f["files"]]
            seqs = staging.span(inputs, None, has_more=False)
            files = self._data.seal(pin.folder, DATA, names, seqs)
        rows = sum(fragment["physical_rows"] for fragment in new)
        require(rows == within[1] - within[0], f"{within} of {pin.path} gave {rows} rows")
        return Compacted(
            rows,
            tuple(canonical(fragment) for fragment in old),
            tuple(json.dumps(fragment) for fragment in new),
            tuple(files),
        )

    def untouched(self, pin: Pin, planned: Pin, within: Sequence[Span]) -> list[bool]:
        """See `tables.TableCompactor.untouched`."""
        if pin.path == planned.path:
            return [True] * len(within)
        today = described(self._reader.shown(pin))
        table = self._reader.open(planned)
        before = described(self._reader.shown(planned))
        return [
            all(before[p.number] == today.get(p.number) for p in table.parts if p.is_within(span))
            for span in within
        ]

    def swap(self, pin: Pin, compacted: Sequence[Compacted], *, keeps_indexes: bool = False) -> Pin:
        """See `tables.TableCompactor.swap`."""
        if not compacted:
            return pin
        dataset = self._reader.shown(pin)
        manifest = lance_manifest.decode(self._data.read(pin.path))
        operations = [rewrite(dataset, compacted, manifest.fragment_id_max + 1)]
        lance_indexes.refuse_unfit(dataset, map(numbers, compacted))
        # Lance refuses to compact what an index covers together with what it does not.
        split = lance_indexes.split(dataset, map(numbers, compacted))
        if split and keeps_indexes:
            raise InputsMovedError
        if split:
            operations.insert(0, lance_indexes.change(dataset, (), split))
        files = [file for item in compacted for file in item.files]
        return self._commits.commit(pin, operations, files, rows=pin.rows)

    def bare(self, pin: Pin, drop: Sequence[str]) -> list[Span]:
        """See `tables.TableCompactor.bare`. Lance: "Fragment 0 does not contain any data"."""
        table = self._reader.fresh(pin)
        if not drop:
            return []
        schema = table.dataset.lance_schema
        return [
            part.span
            for part in table.parts
            if staging.is_bare(table.fragment_of(part).metadata, schema, drop)
        ]


def compact(dataset: Any, fragments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Rewrite `fragments` of `dataset`.

    Returns:
        The inputs and the new fragments, as Lance describes them in JSON.
    """
    optimize = importlib.import_module("lance.optimize")
    wanted = json.loads(_some_task())
    wanted["task"]["fragments"] = [fragment.metadata.to_json() for fragment in fragments]
    wanted["read_version"] = dataset.version
    wanted["options"]["data_storage_version"] = dataset.data_storage_version
    task = optimize.CompactionTask.from_json(json.dumps(wanted))
    done = json.loads(task.execute(dataset).json())
    return done["original_fragments"], done["new_fragments"]


@functools.cache
def _some_task() -> str:
    """Return a task with all the options that this Lance knows, of two fragments in memory.

    Of the dataset itself a plan may have none: what an index covers, and what not, stays apart.
    """
    optimize = importlib.import_module("lance.optimize")
    write = importlib.import_module("lance").write_dataset
    rows = pa.table({"n": [1, 2]})
    dataset = write(
        rows, "memory://siltstone-task", max_rows_per_file=1, enable_stable_row_ids=True
    )
    plan = optimize.Compaction.plan(dataset, {"target_rows_per_fragment": _EVERY_ROW})
    return plan.tasks[0].json()


def canonical(fragment: Any) -> str:
    """Return a key that is equal for two descriptions of one fragment with the same rows."""
    metadata = importlib.import_module("lance").FragmentMetadata
    described = metadata.from_json(json.dumps(fragment)).to_json()
    return json.dumps(described, sort_keys=True)


def described(dataset: Any) -> dict[int, str]:
    """Return all fragments of a version by their ids, in the form of `canonical`."""
    return {f.fragment_id: canonical(f.metadata.to_json()) for f in dataset.get_fragments()}


def numbers(compacted: Compacted) -> set[int]:
    """Return the ids of the fragments that were compacted."""
    return {json.loads(text)["id"] for text in compacted.inputs}


def rewrite(dataset: Any, compacted: Iterable[Compacted], first_id: int) -> Any:
    """Return the one operation that replaces the inputs of `compacted` by its results.

    The results are numbered from `first_id` on, which no fragment of the dataset ever had. Lance
    numbers what has no number, but only after it has noted what text and vector segments cover:
    these would then claim fragment 0, and searches would leave its rows out.

    Raises:
        InputsMovedError: An input is not in `dataset`, or has changed.
    """
    lance = importlib.import_module("lance")
    today, ids = set(described(dataset).values()), itertools.count(first_id)
    groups = []
    for item in compacted:
        if not today.issuperset(item.inputs):
            raise InputsMovedError
        made = (json.dumps(json.loads(text) | {"id": next(ids)}) for text in item.fragments)
        old, new = (
            [lance.FragmentMetadata.from_json(text) for text in texts]
            for texts in (item.inputs, made)
        )
        groups.append(lance.LanceOperation.RewriteGroup(old, new))
    return lance.LanceOperation.Rewrite(groups=groups, rewritten_indices=[])
