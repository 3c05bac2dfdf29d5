"""The tour of the guide shows what a person sees: a test types it into a terminal."""

from __future__ import annotations

from pathlib import Path

from tests.cli.tours import bash, consoles, shown, without_times


def test_the_tour_shows_what_is_shown(tmp_path: Path) -> None:
    (tour,) = consoles("docs/guide.md")
    with bash(tmp_path) as terminal:
        assert shown(terminal, tour) == without_times(tour)
