"""The page of benchmarks is what its history says, and every missed target has its reason."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import curves, history, measured, page, plots, svg
from bench.curves.curve import Bounds, follow
from bench.history import Run
from bench.results import Results
from bench.targets import ALL as TARGETS

RUNS = history.load()
DRAWN = page.render(RUNS)


def run_of(day: int, rounds: dict[str, Any]) -> Run:
    found = {
        "sizes": {"scale": 1.0, "seconds": 1.0, "rounds": 1},
        "durable": ["siltstone", "sqlite"],
        "rounds": rounds,
        "failures": [],
    }
    date = f"2026-11-{day:02}T10:00:00+00:00"
    return Run("workloads", date, f"c{day}", "python -m bench", 9.0, {}, {}, found)


def one_thread(ours: float, theirs: float) -> dict[str, Any]:
    return {"siltstone": {"1 threads": [ours]}, "sqlite": {"1 threads": [theirs]}}


def test_the_page_is_what_the_history_says() -> None:
    """If not: `python -m bench report` writes it anew."""
    assert page.PAGE.read_text() == "\n".join(DRAWN.parts)


def test_the_plots_are_what_the_history_says() -> None:
    folder = page.PAGE.parent / "benchmarks"
    assert {path.name: path.read_text() for path in folder.iterdir()} == DRAWN.plots


def test_every_reason_is_of_a_target_that_is_there() -> None:
    names = {target.name for target in TARGETS}
    unknown = page.reasons().keys() - names
    assert [name for name in unknown if not name.startswith("Spark, ")] == []


def test_every_missed_target_has_its_reason() -> None:
    missed = [one.name for one in page.asked(RUNS) if one.is_met is False]
    assert [name for name in missed if name not in page.reasons()] == []


def test_the_newest_run_that_asked_for_a_workload_counts() -> None:
    runs = [
        run_of(1, {"W1": one_thread(1.0, 2.0), "W4": {"siltstone": {"cold": [90_000.0]}}}),
        run_of(2, {"W1": one_thread(3.0, 2.0)}),
    ]
    found = {one.name: one.value for one in page.asked(runs)}
    assert found["W1, 1 thread: x SQLite"] == 1.5
    assert found["W4, cold: reads/s"] == 90_000.0
    _, sources = page.together(runs)
    assert {name: run.commit for name, run in sources.items()} == {"W1": "c2", "W4": "c1"}


def test_a_workload_that_failed_in_the_newest_run_is_not_answered_by_an_older_one() -> None:
    failed = run_of(2, {})
    failed.found["failures"].append({"workload": "W1", "peer": "siltstone", "error": "no room"})
    runs = [run_of(1, {"W1": one_thread(1.0, 2.0)}), failed]
    assert page.asked(runs)[0].value is None
    assert "- W1, siltstone: no room" in "\n".join(page.render(runs).parts)


def test_the_history_shows_a_target_run_by_run() -> None:
    runs = [run_of(1, {"W1": one_thread(1.0, 2.0)}), run_of(2, {"W1": one_thread(3.0, 2.0)})]
    lines = "\n".join(page.render(runs).parts).splitlines()
    assert lines[-1] == "| W1, 1 thread: x SQLite | 0.5 | 1.5 |"


def test_a_page_of_no_run_says_that_nothing_is_measured() -> None:
    assert "0 of 0 are met" in "\n".join(page.render([]).parts)


def test_a_run_is_kept_and_read_as_it_was(tmp_path: Path) -> None:
    made = run_of(1, {"W1": one_thread(1.0, 2.0)})
    history.add(made, tmp_path)
    assert history.load(tmp_path) == [made]
    with pytest.raises(FileExistsError):
        history.add(made, tmp_path)


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    path = history.add(run_of(1, {}), tmp_path)
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match="has format 2"):
        history.load(tmp_path)


class Doubling:
    name = "doubling"
    title = "a made-up curve"
    x = "things"
    points = (1, 10, 100, 1_000)
    x_usual = 100
    s_each = 0.0
    panels = (("things/s", ("things/s", "others/s")),)

    def __init__(self, folder: Path, seconds: float) -> None:
        self.closed = False

    def measure(self, x: int) -> dict[str, float]:
        if x == 100:
            raise RuntimeError("a hundred is too much")
        return {"things/s": 2.0 * x}

    def close(self) -> None:
        self.closed = True


def test_a_curve_keeps_its_points_when_a_later_one_fails(tmp_path: Path) -> None:
    found = follow(Doubling, tmp_path, Bounds(0.1, 10.0), lambda _: None)
    assert found["points"] == [{"x": 1, "things/s": 2.0}, {"x": 10, "things/s": 20.0}]
    assert found["error"] == "RuntimeError: a hundred is too much"
    assert list(tmp_path.iterdir()) == []


def test_a_curve_without_time_names_what_it_left_out(tmp_path: Path) -> None:
    found = follow(Doubling, tmp_path, Bounds(0.1, 0.0), lambda _: None)
    assert [point["x"] for point in found["points"]] == [1]
    assert list(found["left_out"]) == ["10", "100", "1000"]


def test_a_curve_names_the_points_that_nobody_asked_for(tmp_path: Path) -> None:
    found = follow(Doubling, tmp_path, Bounds(0.1, 10.0, 10), lambda _: None)
    assert [point["x"] for point in found["points"]] == [1, 10]
    assert found["left_out"] == dict.fromkeys(["100", "1000"], "this run ended at 10")


def test_every_curve_names_what_is_drawn_of_it() -> None:
    for kind in curves.ALL:
        assert kind.x_usual in kind.points
        metrics = [metric for _, each in kind.panels for metric in each]
        found = {"points": [{"x": x, **dict.fromkeys(metrics, 5.0)} for x in kind.points]}
        ET.fromstring(plots.curve(kind, found, 7.0))


def test_curves_and_a_profile_come_to_the_page_with_what_was_left_out() -> None:
    points = [{"x": x, "commits/s": 10.0 * x} for x in (1, 2)]
    drawn = {"points": points, "left_out": {"64": "no time"}, "error": "OSError: full"}
    stages = {"fdatasync": 90.0, "encode": 4.0}
    case = {"synced": {"stages": stages, "whole": 94.0}}
    date = "2026-11-21T10:00:00+00:00"
    limits = {"fdatasync/s, preallocated file": 15.0}
    runs = [
        Run("curves", date, "c1", "curves", 1.0, {}, limits, {"threads": drawn}),
        Run("profile", date, "c1", "profile", 1.0, {}, {}, {"about": "Of one.", "cases": case}),
    ]
    made = page.render(runs)
    lines = "\n".join(made.parts).splitlines()
    for line in (
        "| threads | 1 | 2 |",
        "| commits/s | 10 | 20 |",
        "- 64 left out: no time",
        "- it failed: OSError: full",
        "| fdatasync | 90 |",
        "| **all of it** | 94 |",
    ):
        assert line in lines
    assert {"threads.svg", "profile.svg"} <= made.plots.keys()
    for plot in made.plots.values():
        ET.fromstring(plot)


def test_a_curve_that_a_later_run_left_out_stays_with_its_own_run() -> None:
    def run(day: int, name: str) -> Run:
        found = {name: {"points": [{"x": 1, "commits/s": 10.0 * day}], "left_out": {}}}
        date = f"2026-11-{day:02}T10:00:00+00:00"
        return Run("curves", date, f"c{day}", f"curves --only {name}", 1.0, {}, {}, found)

    parts = page.render([run(1, "rows"), run(2, "threads"), run(3, "rows")]).parts
    lines = "\n".join(parts).splitlines()
    assert "| commits/s | 30 |" in lines
    assert "| commits/s | 20 |" in lines
    assert "| commits/s | 10 |" not in lines
    assert lines.count("`curves --only rows`, 2026-11-03 10:00, commit c3.") == 1
    assert lines.count("`curves --only threads`, 2026-11-02 10:00, commit c2.") == 1


@pytest.mark.parametrize("values", [[0.0, 0.0], [0.5, 0.5], [1e-3, 1e6], [17.8, 99.9]])
def test_a_drawing_is_well_formed_whatever_the_numbers(values: list[float]) -> None:
    points = list(enumerate(values, 1))
    panels = [
        svg.Lines("a < b & c", "x", [svg.Series("y", points), svg.Series("z", points)], ("top", 3)),
        svg.Bars("bars", [(str(x), y) for x, y in points]),
        svg.Dots("dots", [(str(x), y) for x, y in points]),
    ]
    ET.fromstring(svg.figure("several", panels))


def test_results_are_the_same_after_a_way_through_the_history() -> None:
    results = Results.of(run_of(1, {"W1": one_thread(1.0, 2.0)}).found)
    assert Results.of(results.found()) == results


def test_of_each_command_the_newest_output_is_shown() -> None:
    def run(day: int, command: str, line: str) -> Run:
        found = {"program": "fold", "lines": [line]}
        date = f"2026-11-{day:02}T10:00:00+00:00"
        return Run(
            "measured", date, f"c{day}", f"python -m bench.fold {command}", 9.0, {}, {}, found
        )

    runs = [run(1, "--rows 1", "older"), run(2, "--rows 1", "newer"), run(1, "--rows 2", "other")]
    drawn = "\n".join(page.render(runs).parts)
    assert "newer\n```" in drawn
    assert "other\n```" in drawn
    assert "older" not in drawn
    assert "### What merges write" in drawn


def test_a_program_that_fails_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept: list[Run] = []
    monkeypatch.setattr(history, "add", lambda run: kept.append(run) or tmp_path / "run")
    assert measured.main(["fold", "--no-such-option"]) != 0
    assert kept == []
    assert measured.main(["load", "--help"]) == 0
    assert kept[0].command == "python -m bench.load --help"
    assert kept[0].found["lines"] == capfd.readouterr().out.splitlines()
    with pytest.raises(SystemExit):
        measured.main(["rm"])


def test_the_page_shows_for_each_query_of_tpch_how_it_is_beside_parquet() -> None:
    ratios = {"siltstone": {"Q1": 1.25}, "siltstone with fresh rows": {"Q1": 1.5}}
    found = {"rows": 10, "medians": {}, "targets": [], "TPC-H": {"scale": 1, "ratios": ratios}}
    run = Run(
        "spark", "2026-11-26T10:00:00+00:00", "c1", "python -m bench.spark", 9.0, {}, {}, found
    )
    text = "\n".join(page.render([run]).parts)
    assert "### TPC-H, scale 1, on Spark" in text
    assert "| x Parquet's seconds | siltstone | siltstone with fresh rows |" in text
    assert "| Q1 | 1.25 | 1.5 |" in text
