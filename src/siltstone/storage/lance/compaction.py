"""Lance compaction: some fragments become fewer, with the same rows in the same order.

Lance's own task does the work, so that rows keep their stable ids; its own planner and commit are
not used. It groups fragments by number, ours by position; and `Compaction.commit` makes two
commits, and looks for the first one in `_versions/`, where a private manifest is not.

Lance applies a hand-made Rewrite unchecked: an input that gained deletions since would restore its
deleted rows. Only `rewrite` builds one, and it refuses such inputs.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from siltstone.storage.tables.tables import Compacted, InputsMovedError

_EVERY_ROW = 1 << 62


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


def rewrite(dataset: Any, compacted: Iterable[Compacted]) -> Any:
    """Return the one operation that replaces the inputs of `compacted` by its results.

    Raises:
        InputsMovedError: An input is not in `dataset`, or has changed.
    """
    lance = importlib.import_module("lance")
    today = set(described(dataset).values())
    groups = []
    for item in compacted:
        if not today.issuperset(item.inputs):
            raise InputsMovedError
        old, new = (
            [lance.FragmentMetadata.from_json(text) for text in texts]
            for texts in (item.inputs, item.fragments)
        )
        groups.append(lance.LanceOperation.RewriteGroup(old, new))
    return lance.LanceOperation.Rewrite(groups=groups, rewritten_indices=[])
