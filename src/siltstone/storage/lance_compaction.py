"""Lance compaction: some fragments become fewer, with the same rows in the same order.

Lance's own task does the work, so that rows keep their stable ids; its own planner and commit are
not used. It bins fragments by number, ours go by position; and `Compaction.commit` makes two
commits, of which it seeks the first in `_versions/`, where a private manifest is not.

A hand-made Rewrite is applied unchecked: an input that gained deletions since would come back with
its deleted rows. `rewrite` is the one function that builds one, and it refuses such inputs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from siltstone.storage.tables import Compacted, InputsMovedError

_EVERY_ROW = 1 << 62


def compact(dataset: Any, fragments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Write `fragments` of `dataset` anew.

    Returns:
        The inputs and the new fragments, as Lance describes them in JSON.
    """
    optimize = importlib.import_module("lance.optimize")
    # A plan over everything gives a task with all the options that this Lance knows.
    plan = optimize.Compaction.plan(dataset, {"target_rows_per_fragment": _EVERY_ROW})
    wanted = json.loads(plan.tasks[0].json())
    wanted["task"]["fragments"] = [fragment.metadata.to_json() for fragment in fragments]
    task = optimize.CompactionTask.from_json(json.dumps(wanted))
    done = json.loads(task.execute(dataset).json())
    return done["original_fragments"], done["new_fragments"]


def canonical(fragment: Any) -> str:
    """Return what tells whether two descriptions are of one fragment with the same rows."""
    metadata = importlib.import_module("lance").FragmentMetadata
    described = metadata.from_json(json.dumps(fragment)).to_json()
    return json.dumps(described, sort_keys=True)


def rewrite(dataset: Any, compacted: Iterable[Compacted]) -> Any:
    """Return the one operation that puts all of `compacted` in the place of its inputs.

    Raises:
        InputsMovedError: An input is not in `dataset`, or not as it was.
    """
    lance = importlib.import_module("lance")
    today = {canonical(f.metadata.to_json()) for f in dataset.get_fragments()}
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
