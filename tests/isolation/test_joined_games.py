"""Processes that play against each other on one store see the isolation that they asked for.

Their transactions run where they are; one of them owns the store, and is killed as it commits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import siltstone as st
from proof.isolation import clients
from proof.isolation.journal import LEVELS, entries, judge
from siltstone.failpoints import Failpoint
from tests.nightly import by_day

PLAYERS = 4
TURNS = by_day(90, 400)
KILLED_AT = (25, 60)
"""At which of their commits the first owners die."""


def player(path: Path, number: int, seed: int, begun: float, order: str) -> subprocess.Popen[str]:
    module = "tests.isolation.joined_player"
    given = [path / "shop", path / "journal", number, seed, begun, TURNS]
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, given)],
        env={**os.environ, "SILTSTONE_FAILPOINTS": order},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "point", [None, Failpoint.COMMIT_BEFORE_FRAME, Failpoint.COMMIT_AFTER_FRAME]
)
def test_processes_see_what_their_level_promises_whoever_owns_the_store(
    tmp_path: Path, point: Failpoint | None
) -> None:
    with st.connect(tmp_path / "shop", background=False) as db:
        clients.create(db)
    begun, players = time.monotonic(), list[subprocess.Popen[str]]()
    try:
        for number in range(PLAYERS):
            is_to_die = point is not None and number < len(KILLED_AT)
            order = f"{point.label}=kill@{KILLED_AT[number]}" if is_to_die else ""
            players.append(player(tmp_path, number, 1, begun, order))
            stdout = players[-1].stdout
            assert stdout is not None
            assert stdout.readline() == "ready\n"  # the first one owns the store
        for each in players:  # not sooner: who began alone would meet nobody
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        ended = [each.wait(240) for each in players]
    finally:
        for each in players:
            each.kill()
            each.communicate()
    assert ended[0] == (0 if point is None else -9)
    assert ended[2:] == [0, 0]
    with st.connect(tmp_path / "shop", background=False) as db:
        assert clients.crowded_pairs(db) == []
        verdict = judge(entries([tmp_path / "journal"]), clients.lists_in(db))
    print(verdict)  # noqa: T201 - what it was worth
    assert verdict.violations == []
    if point is None:
        assert all(verdict.worth[level].is_enough for level in LEVELS)
