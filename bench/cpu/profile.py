"""Profile: where the microseconds of a commit go.

Functions of the path of a commit are wrapped, in this process and for as long as it measures; the
product knows nothing of it. Each stage is the time inside its function without that of the wrapped
ones inside it. A wrapper's own cost is measured and taken away, half of it from the stage that it
wraps and half from the one around that. Commits with wrappers and without take turns, so that the
disk is the same for both; what a commit without any takes more than the sum, or less, stands in the
last stage.

What a run found:

    {case: {"stages": {stage: us}, "ran": [stage], "whole": us}}
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import siltstone as st
from bench import data
from bench.report import number
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.recent_writes import RecentWrites
from siltstone.engine.write.row_plan import RowPlan
from siltstone.formats.log import group
from siltstone.storage.files.files import Buffer, RealFile
from siltstone.storage.wal import wal
from siltstone.storage.wal.wal import Wal

_ROWS = 100_000
_CALLS = 100_000
_REST = "the call itself, and what wrapping hides"
_TURNS = 8

# Where, which function, and what it is called on the page; in the order of a commit.
_STAGES: tuple[tuple[Any, str, str], ...] = (
    (RowPlan, "upsert", "check the row, find its key, make the write set"),
    (Committer, "commit", "wait for room"),
    (Committer, "_enter", "queue, lead, hand over"),
    (Committer, "_write", "admit"),
    (RecentWrites, "take", "admit"),
    (group, "encode", "encode"),
    (Wal, "append", "frame and its place in the log"),
    (wal, "encode_frame", "frame and its place in the log"),
    (RealFile, "pwritev_synced", "write and sync"),
    (Wal, "tell", "MARK"),
    (wal, "encode_mark", "MARK"),
    (Committer, "_apply_rows", "apply"),
    (Committer, "_apply", "reveal"),
)


class Probe:
    """Wraps functions; keeps the time spent in each stage of the present commit. One thread."""

    def __init__(self) -> None:
        self.now: dict[str, float] = {}
        self.calls = 0
        self._inner = [0.0]
        self._half = 0.0
        self._half = self._cost() / 2

    def wrap(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        clock, inner, half = time.perf_counter, self._inner, self._half

        def wrapped(*args: Any, **named: Any) -> Any:
            inner.append(0.0)
            begin = clock()
            try:
                return function(*args, **named)
            finally:
                spent = clock() - begin
                self.now[stage] = self.now.get(stage, 0.0) + spent - inner.pop() - half
                inner[-1] += spent + half
                self.calls += 1

        return wrapped

    @contextmanager
    def on(self, stages: tuple[tuple[Any, str, str], ...]) -> Generator[None]:
        """Wrap the stages, until the end of the block."""
        with ExitStack() as undo:
            for owner, name, stage in stages:
                function = vars(owner)[name]
                setattr(owner, name, self.wrap(function, stage))
                undo.callback(setattr, owner, name, function)
            yield

    def _cost(self) -> float:
        """Return the seconds that one wrapped call takes more than a plain one."""

        def nothing() -> None:
            pass

        plain = _seconds(nothing)
        cost = max(0.0, _seconds(self.wrap(nothing, "nothing")) - plain) / _CALLS
        self.now, self.calls, self._inner[:] = {}, 0, [0.0]
        return cost


def main(folder: Path, given: argparse.Namespace) -> None:
    """Measure upserts of one row by the main thread, each synced; and as if a sync took no time.

    Shown are means over the middle 80 % of the commits.
    """
    _show(profile(folder / "store", given.seconds), Console())


def profile(path: Path, seconds: float) -> dict[str, Any]:
    """Return what a run found (see the module) in a new store at `path`."""
    stream = data.rows(_ROWS, 1)
    with st.connect(path, background=False, memtable_bytes_max=1 << 30) as db:
        accounts = db.create_table("accounts", data.ACCOUNTS, primary_key="id")
        accounts.upsert(data.base(_ROWS))
        cases = {"synced": _case(accounts, stream, seconds)}
        with _instant_sync():
            cases["if a sync took no time"] = _case(accounts, stream, seconds)
    return cases


def _case(table: Any, stream: Iterator[data.Row], seconds: float) -> dict[str, Any]:
    _commits(table, stream, seconds / 4)
    probe = Probe()
    plain: list[tuple[float, dict[str, float]]] = []
    wrapped: list[tuple[float, dict[str, float]]] = []
    for _ in range(_TURNS):
        plain += _commits(table, stream, seconds / _TURNS)
        with probe.on(_STAGES):
            wrapped += _commits(table, stream, seconds / _TURNS, probe)
    commits = _middle(wrapped)
    stages = {stage: 0.0 for _, _, stage in _STAGES}
    for _, spent in commits:
        for stage, value in spent.items():
            stages[stage] += 1e6 * value / len(commits)
    stages = {stage: max(0.0, value) for stage, value in stages.items()}
    whole = _middle(plain)
    mean = 1e6 * sum(spent for spent, _ in whole) / len(whole)
    ran = sorted({stage for _, spent in commits for stage in spent})
    return {"stages": {**stages, _REST: mean - sum(stages.values())}, "ran": ran, "whole": mean}


def _commits(
    table: Any, stream: Iterator[data.Row], seconds: float, probe: Probe | None = None
) -> list[tuple[float, dict[str, float]]]:
    """Commit for a while; return of each commit its seconds, and those of its stages."""
    found: list[tuple[float, dict[str, float]]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 10:
        row = data.as_dict(next(stream))
        if probe is not None:
            probe.now = {}
        begin = time.perf_counter()
        table.upsert(row)
        found.append((time.perf_counter() - begin, {} if probe is None else probe.now))
    return found


def _middle(
    commits: list[tuple[float, dict[str, float]]],
) -> list[tuple[float, dict[str, float]]]:
    """Leave out the fastest and the slowest tenth: a memtable's seal, a turn of the disk."""
    ordered = sorted(commits, key=lambda one: one[0])
    tenth = len(ordered) // 10
    return ordered[tenth : len(ordered) - tenth]


@contextmanager
def _instant_sync() -> Generator[None]:
    functions = RealFile.sync, RealFile.pwritev_synced

    def written(self: RealFile, buffers: Sequence[Buffer], offset: int) -> bool:
        self.pwritev(buffers, offset)
        return True

    RealFile.sync, RealFile.pwritev_synced = lambda _: None, written
    try:
        yield
    finally:
        RealFile.sync, RealFile.pwritev_synced = functions


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    for _ in range(_CALLS):
        work()
    return time.perf_counter() - begin


def _show(found: dict[str, Any], console: Console) -> None:
    table = Table("us", *found)
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in next(iter(found.values()))["stages"]:
        table.add_row(stage, *(number(case["stages"][stage]) for case in found.values()))
    table.add_section()
    table.add_row("all of it", *(number(case["whole"]) for case in found.values()))
    console.print(table)
