"""The page of benchmarks is what is kept of runs, and every missed target has its reason."""

from __future__ import annotations

import re

from bench import kept, page
from bench.targets import ALL as TARGETS
from bench.targets import Answer
from bench.workloads import ALL as WORKLOADS
from tests.bench.runs import one_thread, run_of

RUNS = kept.load()


BEHIND = page.PAGE.parent / page.BEHIND


def test_the_pages_are_what_is_kept() -> None:
    """If not: `python -m bench report` writes them anew."""
    assert page.PAGE.read_text() == page.text(RUNS)
    assert BEHIND.read_text() == page.targets(RUNS)


def test_the_page_is_five_sentences_and_two_drawings() -> None:
    _, _, text = page.PAGE.read_text().partition("# Benchmarks\n\n")
    summary, beside, more = re.split(r"\n\n## .+\n\n", text)
    *sentences, _, link = summary.splitlines()
    assert [(line[:2], line[-1]) for line in sentences] == [("- ", ".")] * 5
    assert link.endswith(f"({page.BEHIND})")
    assert "not measured" not in summary
    for drawing, file in ((beside, page.BESIDE), (more, page.CURVES)):
        assert re.match(rf"!\[[^\]]+\]\({file}\)\n", drawing)
        assert (page.PAGE.parent / file).exists()
    assert "|" not in text


def test_the_words_for_the_drawing_say_where_siltstone_stands() -> None:
    rounds = {"siltstone": {"1 threads": [2.0]}, "sqlite": {"1 threads": [3.0]}}
    assert "commits of one row per second, 1 thread: 2 of 2]" in page.text(
        [run_of(1, {"W1": rounds})]
    )


def test_the_page_behind_it_is_a_table_of_targets_and_one_of_misses() -> None:
    _, _, text = BEHIND.read_text().partition("# Targets\n\n")
    _, _, tables = text.partition("\n\n")
    targets, misses = re.split(r"\n\n## .+\n\n", tables)
    for table in (targets, misses):
        assert {line[0] for line in table.splitlines()} == {"|"}
    named = [line.split(" | ")[0].removeprefix("| ") for line in targets.splitlines()[2:]]
    assert named == [answer.name for answer in page.answers(RUNS)]


def test_each_target_of_the_page_has_its_command_day_and_commit() -> None:
    lines = [line for line in BEHIND.read_text().splitlines() if "| met |" in line]
    assert lines
    for line in lines:
        assert re.search(r"\| `python -m [^`]+` \| \d{4}-\d\d-\d\d, [0-9a-f]{10} \|$", line), line


def test_every_target_begins_with_its_workload() -> None:
    names = {workload.name for workload in WORKLOADS}
    assert {Answer(each.name, 0, None, is_ceiling=False).subject for each in TARGETS} <= names


def test_every_reason_is_of_a_target_that_is_there() -> None:
    assert page.reasons().keys() - {answer.name for answer in page.answers(RUNS)} == set()


def test_every_missed_target_has_its_reason() -> None:
    missed = [one.name for one in page.answers(RUNS) if one.is_met is False]
    assert [name for name in missed if name not in page.reasons()] == []


def test_targets_of_one_reason_stand_in_one_line_with_what_was_wanted() -> None:
    slow = one_thread(1.0, 2.0)
    slow["siltstone"]["8 threads"], slow["sqlite"]["8 threads"] = [1.0], [2.0]
    (line,) = [x for x in page.targets([run_of(1, {"W1": slow})]).splitlines() if "; W1" in x]
    one, eight = "W1, 1 thread: x SQLite: 0.5, wanted >= 0.95", "W1, 8 threads: x best durable peer"
    assert line.startswith(f"| {one}; {eight}: 0.5, wanted >= 2.5 | A commit of one thread")


def test_runs_of_several_days_answer_together_each_with_its_own_commit() -> None:
    runs = [
        run_of(1, {"W4": {"siltstone": {"recent": [300_000.0]}}}),
        run_of(2, {"W1": one_thread(3.0, 2.0)}),
    ]
    found = {one.name: one.value for one in page.answers(runs)}
    assert found["W1, 1 thread: x SQLite"] == 1.5
    assert found["W4, recent: reads/s"] == 300_000.0
    lines = page.targets(runs).splitlines()
    assert [line[-18:] for line in lines if "W4, recent: reads" in line] == ["| 2026-11-01, c1 |"]
    assert [line[-18:] for line in lines if "W1, 1 thread" in line] == ["| 2026-11-02, c2 |"]


def test_a_page_of_no_run_says_that_nothing_is_measured() -> None:
    assert "Of the 0 targets that siltstone set itself 0 are met" in page.text([])


def test_the_page_has_the_targets_of_spark() -> None:
    target = {"name": "Spark, count: x", "bound": 2.0, "value": 1.25, "is_ceiling": True}
    run = kept.Run(
        "spark", "python -m bench.spark", "2026-11-26T10:00:00+00:00", "c1", 9.0,
        {}, {}, {"rows": 10, "medians": {}, "targets": [target]},
    )  # fmt: skip
    line = "| Spark, count: x | <= 2 | 1.25 | met |  | `python -m bench.spark` | 2026-11-26, c1 |"
    assert line in page.targets([run]).splitlines()
