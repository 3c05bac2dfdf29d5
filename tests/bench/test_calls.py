"""A request passes few functions: what it costs is its commit, not the layers on its way there."""

from __future__ import annotations

from pathlib import Path

from bench.calls import calls_in_process, calls_of_apply, ours

CALLS_MAX = 110
# Of ours; with those of C; of ours up to the write that is synced.
IN_PROCESS_MAX = {"upsert": (26, 100, 15), "get": (5, 9, 0), "transfer": (125, 292, 109)}


def test_apply_of_one_upsert_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = calls_of_apply(tmp_path)
    assert ours(found) <= CALLS_MAX, found.most_common()
    assert ("server/http/pipeline.py", "Pipeline.end") in found  # it counts the server's threads


def test_work_in_process_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = {
        name: (ours(calls), calls.total(), before_sync)
        for name, (calls, before_sync) in calls_in_process(tmp_path).items()
    }
    assert found.keys() == IN_PROCESS_MAX.keys()
    for name, most in IN_PROCESS_MAX.items():
        assert all(have <= may for have, may in zip(found[name], most, strict=True)), found
    assert found["upsert"][2] > 0
