"""The drawing of the page has every curve that is kept, and is the same for the same numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from bench import curves, plots
from bench.kept import Run
from bench.results import Results
from bench.workload import Sizes

SVG = "{http://www.w3.org/2000/svg}"
LIMITS = {"fdatasync/s, preallocated file": 15.0}


def run_of(found: dict[str, Any]) -> Run:
    date = "2026-11-21T10:00:00+00:00"
    return Run("curves", "curves", date, "c1", 1.0, {}, LIMITS, found)


def curve_of(kind: type[curves.Curve], value: float) -> dict[str, Any]:
    points = [{"x": x, **dict.fromkeys(kind.drawn, value)} for x in kind.points]
    return {"points": points, "left_out": {}}


def words_of(path: Path) -> list[str]:
    return [text for each in ET.parse(path).iter() if (text := (each.text or "").strip())]


def test_every_curve_is_drawn_with_its_metrics_and_what_the_disk_allows(tmp_path: Path) -> None:
    found = {kind.name: curve_of(kind, 5.0) for kind in curves.ALL}
    plots.draw([run_of(found)], tmp_path / "benchmarks" / "curves.svg")
    words = words_of(tmp_path / "benchmarks" / "curves.svg")
    for kind in curves.ALL:
        assert {kind.title.capitalize(), kind.x, *kind.drawn} <= set(words)
    assert words.count("fdatasync/s alone") == 4


def test_curves_of_several_runs_stand_in_one_drawing(tmp_path: Path) -> None:
    runs = [run_of({kind.name: curve_of(kind, 5.0)}) for kind in curves.ALL[:2]]
    plots.draw(runs, tmp_path / "curves.svg")
    titles = [kind.title.capitalize() for kind in curves.ALL]
    words = words_of(tmp_path / "curves.svg")
    assert [title for title in titles if title in words] == titles[:2]


def test_a_point_that_lacks_a_metric_is_left_out(tmp_path: Path) -> None:
    found = curve_of(curves.ALL[0], 5.0)
    found["points"][0] = {"x": 1}
    plots.draw([run_of({curves.ALL[0].name: found})], tmp_path / "curves.svg")
    assert "commits/s" in words_of(tmp_path / "curves.svg")


def test_the_same_numbers_are_the_same_text(tmp_path: Path) -> None:
    runs = [run_of({curves.ALL[0].name: curve_of(curves.ALL[0], 0.0)})]
    for name in ("one.svg", "other.svg"):
        plots.draw(runs, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_a_drawing_has_the_ground_of_its_page_and_ink_for_a_light_and_a_dark_one(
    tmp_path: Path,
) -> None:
    plots.draw([run_of({curves.ALL[0].name: curve_of(curves.ALL[0], 5.0)})], tmp_path / "one.svg")
    (rules,) = (each.text or "" for each in ET.parse(tmp_path / "one.svg").iter(f"{SVG}style"))
    light, dark = rules.split("@media (prefers-color-scheme: dark)")
    assert '[style*="fill: #ffffff"] { fill: none !important }' in light
    assert all("text, g" in each for each in (light, dark))
    text = (tmp_path / "one.svg").read_text()
    for color in set(re.findall(r"style\*=\"(?:fill|stroke): (#\w+)\"", dark)) & {
        "#000000",
        "#1f77b4",
    }:
        assert text.count(color) > dark.count(color), "a rule for what is not drawn"


def results_of(rounds: dict[str, Any]) -> Results:
    return Results("", Sizes(1.0, 0.0, 1), {}, {}, rounds, {"siltstone", "sqlite"})


def test_what_is_kept_beside_others_has_a_panel_and_who_may_lose_commits_a_star(
    tmp_path: Path,
) -> None:
    peers = {name: {"1 threads": [1.0]} for name in ("siltstone", "sqlite", "lance")}
    plots.compare(results_of({"W1": peers}), tmp_path / "beside.svg")
    words = words_of(tmp_path / "beside.svg")
    assert {"siltstone", "sqlite", "lance *"} <= set(words)
    assert [title for title in plots.BESIDE if title in words] == [*plots.BESIDE][:1]


def test_of_nothing_kept_beside_others_nothing_is_drawn(tmp_path: Path) -> None:
    plots.compare(results_of({}), tmp_path / "beside.svg")
    assert list(tmp_path.iterdir()) == []


def test_without_curves_nothing_is_drawn(tmp_path: Path) -> None:
    plots.draw([], tmp_path / "curves.svg")
    assert list(tmp_path.iterdir()) == []
