"""A restart of the demo's stream has a batch applied twice, as after a crash of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from examples.tpch.pipeline import RefreshStream


class Query:
    """Spark's hold of a stream, as far as a restart asks it."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


class CountedStream(RefreshStream):
    """A stream without Spark; it counts what would be done."""

    def __init__(self, folder: Path) -> None:
        super().__init__(*cast("Any", (None, None, [])), folder)
        self.query, self.starts = Query(), 0
        self.refreshed: list[int] = []
        self._query = cast("Any", self.query)

    def start(self) -> None:
        self.starts += 1

    def run(self, number: int) -> None:
        """As Spark: run a batch."""
        self._apply(cast("Any", None), number)

    def _refresh(self, batch: object, number: int) -> None:
        self.refreshed.append(number)


def test_after_a_restart_one_batch_is_applied_twice(tmp_path: Path) -> None:
    stream = CountedStream(tmp_path)
    stream.run(0)
    stream.restart()
    assert (stream.query.stops, stream.starts) == (1, 1)
    for number in (1, 2):
        stream.run(number)
    assert stream.refreshed == [0, 1, 1, 2]
    assert (stream.tries, stream.applied) == (4, {0, 1, 2})
