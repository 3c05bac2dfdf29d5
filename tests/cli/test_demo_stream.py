"""A restart of the demo's stream has a batch come again, wherever Spark stood at the stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import siltstone as st
from siltstone.cli.demo.tpch.pipeline import STOPS_MAX, RefreshStream


class Query:
    """Spark's hold of a stream, as far as a restart asks it."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1

    def exception(self) -> None:
        return None


class StagedStream(RefreshStream):
    """A stream whose checkpoint the test writes; `on_start` does what Spark does when it starts."""

    def __init__(self, folder: Path, on_start: Callable[[StagedStream], None]) -> None:
        super().__init__(*cast("Any", (None, None, None)), folder)
        self.query, self.starts, self.on_start = Query(), 0, on_start
        self._query = cast("Any", self.query)
        self.notes, self.plans = self._checkpoint / "commits", self._checkpoint / "offsets"
        self.notes.mkdir(parents=True)
        self.plans.mkdir()

    def plan(self, number: int) -> None:
        """As Spark: the plan of a batch is written before it runs."""
        (self.plans / str(number)).touch()

    def run(self, number: int, *, is_noted: bool = True) -> None:
        """As Spark: a batch that ran is noted."""
        self._tried.add(number)
        self.tries += 1
        if is_noted:
            (self.notes / str(number)).touch()
            (self.notes / f".{number}.crc").touch()

    def start(self) -> None:
        self.starts += 1
        self.on_start(self)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def after_two_batches(folder: Path, on_start: Callable[[StagedStream], None]) -> StagedStream:
    stream = StagedStream(folder, on_start)
    for number in range(2):
        stream.plan(number)
        stream.run(number)
    return stream


def test_a_note_is_forgotten_where_no_batch_is_planned_beyond_it(tmp_path: Path) -> None:
    stream = after_two_batches(tmp_path, on_start=lambda _: None)
    stream.restart()
    assert names(stream.notes) == [".0.crc", "0"]
    assert (stream.query.stops, stream.starts) == (1, 1)


def test_nothing_is_forgotten_where_a_batch_ran_that_is_not_noted(tmp_path: Path) -> None:
    stream = after_two_batches(tmp_path, on_start=lambda _: None)
    stream.plan(2)
    stream.run(2, is_noted=False)
    stream.restart()
    assert names(stream.notes) == [".0.crc", ".1.crc", "0", "1"]
    assert (stream.query.stops, stream.starts) == (1, 1)


def test_a_planned_batch_that_has_not_run_is_run_before_the_stream_is_stopped_again(
    tmp_path: Path,
) -> None:
    def run_what_is_planned(stream: StagedStream) -> None:
        if stream.starts == 1:
            stream.run(2)

    stream = after_two_batches(tmp_path, on_start=run_what_is_planned)
    stream.plan(2)
    stream.restart()
    assert names(stream.notes) == [".0.crc", ".1.crc", "0", "1"]  # of 2, which comes again
    assert (stream.query.stops, stream.starts) == (2, 2)


def test_a_stream_that_always_has_planned_the_next_batch_is_given_up(tmp_path: Path) -> None:
    def run_and_plan(stream: StagedStream) -> None:
        stream.run(stream.starts + 1)
        stream.plan(stream.starts + 2)

    stream = after_two_batches(tmp_path, on_start=run_and_plan)
    stream.plan(2)
    with pytest.raises(st.BusyError, match=f"stopped {STOPS_MAX} times"):
        stream.restart()
    assert stream.query.stops == STOPS_MAX
