"""A request passes few functions: what it costs is its commit, not the layers on its way there."""

from __future__ import annotations

from pathlib import Path

from bench.calls import calls_in_process, calls_of_apply

CALLS_MAX = 150
IN_PROCESS_MAX = {"upsert": 42, "get": 8, "transfer": 200}


def test_apply_of_one_upsert_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = calls_of_apply(tmp_path)
    assert found.total() <= CALLS_MAX, found.most_common()
    assert ("server/http/pipeline.py", "Pipeline.answer") in found  # it counts the server's threads


def test_work_in_process_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = {name: calls.total() for name, calls in calls_in_process(tmp_path).items()}
    assert found.keys() == IN_PROCESS_MAX.keys()
    assert all(0 < found[name] <= most for name, most in IN_PROCESS_MAX.items()), found
