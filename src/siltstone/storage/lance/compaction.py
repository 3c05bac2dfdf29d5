"""Lance compaction: some fragments become fewer, with the same rows in the same order.

Lance's own task does the work, so that rows keep their stable ids; its own planner and commit are
not used. It bins fragments by number, ours go by position; and `Compaction.commit` makes two
commits, of which it seeks the first in `_versions/`, where a private manifest is not.

A hand-made Rewrite is applied unchecked: an input that gained deletions since would come back with
its deleted rows. `rewrite` is the one function that builds one, and it refuses such inputs.
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
    """Write `fragments` of `dataset` anew.

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
    """Return what tells whether two descriptions are of one fragment with the same rows."""
    metadata = importlib.import_module("lance").FragmentMetadata
    described = metadata.from_json(json.dumps(fragment)).to_json()
    return json.dumps(described, sort_keys=True)


def described(dataset: Any) -> dict[int, str]:
    """Return all fragments of a version by their ids, as `canonical` has them."""
    return {f.fragment_id: canonical(f.metadata.to_json()) for f in dataset.get_fragments()}


def numbers(compacted: Compacted) -> set[int]:
    """Return the ids of the fragments that were compacted."""
    return {json.loads(text)["id"] for text in compacted.inputs}


def rewrite(dataset: Any, compacted: Iterable[Compacted]) -> Any:
    """Return the one operation that puts all of `compacted` in the place of its inputs.

    Raises:
        InputsMovedError: An input is not in `dataset`, or not as it was.
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
