"""A curve is followed as far as its limit allows, and what was left out is named."""

from __future__ import annotations

from pathlib import Path

from bench import curves
from bench.curves.curve import Bounds, follow


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


def test_every_curve_names_a_usual_end_and_what_is_drawn_of_it() -> None:
    for kind in curves.ALL:
        assert kind.x_usual in kind.points
        assert kind.drawn
