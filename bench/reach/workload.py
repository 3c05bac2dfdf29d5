"""reach: a store with a mirror, and readers of it, on SeaweedFS of this machine.

Each request takes 0, 30 or 100 ms more. SlateDB and Delta are measured on the same server.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.reach import before, commits, mirrors, readers, scans
from bench.reach.lake import lake
from bench.workload import Metrics, Place

_ROWS = 10_000_000


class Reach:
    name = "reach"
    title = "a store and its bucket"

    def prepare(self, peer: Place) -> None:
        scans.prepare(peer.path, _rows(peer))

    def measure(self, peer: Place, turn: int) -> Metrics:
        del turn
        folder = Path(f"{peer.path}-beside")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with lake(folder / "server") as running:
                return (
                    mirrors.without(folder)
                    | before.compared(before.COMMIT)
                    | mirrors.copies(running.doors, folder)
                    | commits.shipped(running.doors, folder, peer.sizes.seconds)
                    | readers.lag(running.doors[30], folder, peer.sizes.seconds)
                    | mirrors.beside_writers(running.doors[0], folder, peer.sizes.seconds)
                    | scans.scans(running, peer.path, _rows(peer))
                    | commits.slatedb(running.doors, peer.sizes.seconds)
                    | commits.delta(running.doors)
                )
        except (pytest.skip.Exception, pytest.fail.Exception) as outcome:
            raise RuntimeError(f"no server: {outcome}") from outcome
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _rows(peer: Place) -> int:
    return peer.sizes.rows(_ROWS, 100_000)
