"""Player: two threads of one process that play on a store which they join, or own by turns.

python -m tests.isolation.joined_player <store> <journal> <number> <seed> <begun> <turns>
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

import siltstone as st
from proof.isolation.clients import Client
from proof.isolation.journal import Journal

THREADS = 2
GONE = (st.UnavailableError, st.ClosedError, st.OwnedError, st.PoisonedError, st.FencedError)


def wait_for_all() -> None:
    """Say that this process is there, and wait until whoever began it says that all are."""
    print("ready", flush=True)  # noqa: T201 - it is read
    sys.stdin.readline()


def main(store: str, journal: str, number: str, seed: str, begun: str, turns: str) -> None:
    """Play; whoever finds no owner becomes it, and serves the others."""
    told, start = Journal(Path(journal)), threading.Barrier(THREADS, wait_for_all)

    def play(place: int) -> None:
        client = Client(
            None,
            told,
            number=10 * int(number) + place,
            seed=int(seed),
            run=0,
            begun=float(begun),
        )
        left, handles = int(turns), contextlib.ExitStack()
        while left:
            with contextlib.suppress(*GONE):
                db = st.connect(store, join=True)
                handles.close()  # not sooner: who takes over goes on from what it has read
                handles.enter_context(db)
                client.db = db
                client.resolve()
                if left == int(turns):
                    start.wait(60)
                while left:
                    client.play()
                    left -= 1
            time.sleep(0.01)
        handles.close()

    threads = [threading.Thread(target=play, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
