"""Of each subject the newest run is kept, with its command, commit and machine."""

from __future__ import annotations

import json
from pathlib import Path

from bench import kept, page
from bench.kept import Run
from bench.results import Results
from tests.bench.runs import MACHINE, one_thread, run_of


def test_a_run_is_kept_and_read_as_it_was(tmp_path: Path) -> None:
    made = run_of(1, {"W1": one_thread(1.0, 2.0)})
    for _ in range(2):
        kept.keep(made, tmp_path / "results.json")
        assert kept.load(tmp_path / "results.json") == [made]


def test_a_kept_run_names_its_command_commit_and_machine() -> None:
    told = json.loads(kept.as_json(run_of(3, {})))
    assert (told["command"], told["commit"], told["machine"]) == ("python -m bench", "c3", MACHINE)


def test_the_values_of_all_rounds_stand_in_one_line() -> None:
    rounds = {"W1": {"siltstone": {"1 threads": [1.0, 2.5, 3e-05]}}}
    assert '"1 threads": [1.0, 2.5, 3e-05]' in kept.as_json(run_of(1, rounds))


def test_the_newest_run_that_asked_for_a_workload_counts(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    cold = {"siltstone": {"cold": [90_000.0]}}
    kept.keep(run_of(1, {"W1": one_thread(1.0, 2.0), "W4": cold}), file)
    kept.keep(run_of(2, {"W1": one_thread(3.0, 2.0)}), file)
    runs = kept.load(file)
    assert [(run.commit, run.subjects) for run in runs] == [("c1", {"W4"}), ("c2", {"W1"})]
    assert page.together(runs).rounds == {"W4": cold, "W1": one_thread(3.0, 2.0)}
    kept.keep(run_of(3, {"W4": cold}), file)
    assert [run.commit for run in kept.load(file)] == ["c2", "c3"]


def test_a_workload_that_failed_in_the_newest_run_is_not_answered_by_an_older_one(
    tmp_path: Path,
) -> None:
    failed = run_of(2, {})
    failure = {"workload": "W1", "peer": "siltstone", "error": "no room"}
    failed.found["failures"].append(failure)
    for run in (run_of(1, {"W1": one_thread(1.0, 2.0)}), failed):
        kept.keep(run, tmp_path / "results.json")
    runs = kept.load(tmp_path / "results.json")
    assert page.answers(runs)[0].value is None
    assert page.together(runs).failures == [failure]


def test_a_curve_that_a_later_run_left_out_stays_with_its_own_run(tmp_path: Path) -> None:
    file = tmp_path / "results.json"

    def run(day: int, *names: str) -> Run:
        found = {name: {"points": [{"x": 1, "commits/s": 1.0}], "left_out": {}} for name in names}
        date = f"2026-11-{day:02}T10:00:00+00:00"
        return Run("curves", "curves", date, f"c{day}", 1.0, {}, {}, found)

    kept.keep(run_of(1, {"W1": one_thread(1.0, 2.0)}), file)
    for each in (run(2, "rows", "tables"), run(3, "threads"), run(4, "rows")):
        kept.keep(each, file)
    found = [(each.commit, each.subjects) for each in kept.load(file)]
    assert found == [("c1", {"W1"}), ("c2", {"tables"}), ("c3", {"threads"}), ("c4", {"rows"})]


def test_results_are_the_same_after_a_way_through_what_is_kept() -> None:
    results = Results.of(run_of(1, {"W1": one_thread(1.0, 2.0)}).found)
    assert Results.of(results.found()) == results
