"""Writer: the child that is killed. It says of each landing that it is acknowledged, then goes on.

python -m siltstone.cli.demo.writer STORE START THREADS      until it is killed; lines "id seq"
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

from siltstone.cli.demo import data, model
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.replay import Shared
from siltstone.store import Store, connect

CHECKPOINT_EVERY_S = 0.2


def _write(store: Store, flights: Iterator[Flight]) -> None:
    for flight in flights:
        seqs: list[object] = []
        land = model.landing(flight, [0])

        def noted(tx: object, land: object = land, seqs: list[object] = seqs) -> None:
            seqs[:] = [tx]
            land(tx)  # type: ignore[operator]

        store.run(noted, model.ATTEMPTS)
        # One write of less than PIPE_BUF bytes is whole or not there at all.
        os.write(1, f"{flight['id']} {seqs[0].seq}\n".encode())  # type: ignore[attr-defined]


def main() -> None:
    """Land flights, and checkpoint all the time, so that the kill may hit anything."""
    path, start, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    flights = Shared(data.landings(data.flights(), start))
    with connect(path, segment_bytes=1 << 20) as store:
        for _ in range(threads):
            threading.Thread(target=_write, args=(store, flights), daemon=True).start()
        pause = threading.Event()
        while not pause.wait(CHECKPOINT_EVERY_S):
            store.checkpoint()


if __name__ == "__main__":
    main()
