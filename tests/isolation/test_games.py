"""Clients that play against each other beside maintenance see the isolation that they asked for."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

import siltstone as st
from proof.isolation import clients
from proof.isolation.journal import LEVELS, Journal, Verdict, entries, judge
from tests.engine.seams import Threads
from tests.isolation.stores import opened
from tests.support.simulated_files import SimFiles

PLAYERS, TURNS = 6, 200


@pytest.fixture(autouse=True)
def frequent_switches():
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(old)


def played(db: st.Store, path: Path, seed: int) -> tuple[Verdict, int]:
    """Let threads play while the store is flushed, merged and optimized, and say how often."""
    clients.create(db)
    journal, begun = Journal(path), time.monotonic()
    stop, rounds = threading.Event(), [0]

    def client_of(number: int) -> clients.Client:
        return clients.Client(db, journal, number=number, seed=seed, run=0, begun=begun)

    def play(number: int) -> None:
        client = client_of(number)
        for _ in range(TURNS):
            client.play()

    def maintain() -> None:
        while not rounds[0] or not stop.is_set():
            db.checkpoint()
            db.merge()
            db.optimize()
            rounds[0] += 1

    client_of(100).cross(client_of(101))
    players, others = Threads(), Threads()
    others.start(maintain)
    for number in range(PLAYERS):
        players.start(play, number)
    players.join()
    stop.set()
    others.join()
    journal.close()
    assert clients.crowded_pairs(db) == []
    return judge(entries([path]), clients.lists_in(db)), rounds[0]


@pytest.mark.parametrize("seed", [1])
def test_threads_see_what_their_level_promises_and_snapshots_show_write_skew(
    tmp_path: Path, seed: int
) -> None:
    verdict, rounds = played(opened(SimFiles()), tmp_path / "journal", seed)
    print(seed, verdict, rounds)  # noqa: T201 - what it was worth
    assert verdict.violations == []
    assert verdict.has_write_skew
    assert all(verdict.worth[level].is_enough for level in LEVELS)
    assert verdict.operations["register"] > 50
    assert verdict.operations["fork"] > 50
    assert rounds
