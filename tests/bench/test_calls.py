"""A request passes few functions: what it costs is its commit, not the layers on its way there."""

from __future__ import annotations

from pathlib import Path

from bench.cpu.calls import calls_in_process, calls_of_apply, ours

CALLS_MAX = 110
TO_THE_SYNC_MAX, READ_MAX = 13, 6
# Of ours; with those of C: two are of a look at the path, which a slow machine takes each time. Two
# of a transfer make a reader each, whose constructor is ours: that of a dataclass is not counted.
IN_PROCESS_MAX = {
    "upsert": (24, 99),
    "get": (5, 9),
    "transfer": (114, 270),
    "statements": (111, 258),
}


def test_apply_of_one_upsert_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = calls_of_apply(tmp_path)
    assert ours(found) <= CALLS_MAX, found.most_common()
    assert ("server/http/pipeline.py", "Pipeline.end") in found  # it counts the server's threads


def test_work_in_process_runs_at_most_so_many_functions(tmp_path: Path) -> None:
    found = calls_in_process(tmp_path)
    counts = {name: (ours(calls), calls.total()) for name, (calls, _) in found.items()}
    assert counts.keys() == IN_PROCESS_MAX.keys()
    for name, most in IN_PROCESS_MAX.items():
        are_few = all(have <= may for have, may in zip(counts[name], most, strict=True))
        assert are_few, (counts[name], sorted(found[name][0].items()))


def test_thirteen_functions_lead_from_an_upsert_to_its_sync_and_six_to_rows(
    tmp_path: Path,
) -> None:
    """More than that decide nothing, and each costs twice after a sync, when its code is cold."""
    found = calls_in_process(tmp_path)
    assert 0 < found["upsert"][1] <= TO_THE_SYNC_MAX, found["upsert"]
    assert 0 < ours(found["get"][0]) <= READ_MAX, found["get"]
