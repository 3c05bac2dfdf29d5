"""large: whole rows by key, of a base that does not fit into the memory for bases.

10 M rows of 100 bytes, with all background work done and the store opened again. Reads and
transfers run in a process of their own, with the default memory, then once more with 256 MiB: what
is measured is their processor time, and the anonymous memory of the process at the end. The page
cache is warm; what siltstone keeps in files of the user is in a folder of the run.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import data
from bench.workload import Metrics, Place

_ROWS, _SLICE_ROWS, _NAME_CHARACTERS = 10_000_000, 1_000_000, 76
SMALL_BUDGET_BYTES = 256 << 20
_OTHER_KEYS = 1_000
"""Each process moves money under numbers of its own."""


class LargeReads:
    name = "large"
    title = "rows of a base larger than memory"

    def prepare(self, peer: Place) -> None:
        count = peer.sizes.rows(_ROWS)
        ids = np.random.default_rng(1).permutation(count).astype(np.int64)
        for start in range(0, count, _SLICE_ROWS):
            peer.store.load(_wide(data.accounts(ids[start : start + _SLICE_ROWS], start)))
        peer.store.settle()
        peer.close()

    def measure(self, peer: Place, turn: int) -> Metrics:
        count = str(peer.sizes.rows(_ROWS))
        found = _child(peer, count, str(turn), "0")
        if peer.name != "siltstone":
            return found
        small = _child(peer, count, str(turn + _OTHER_KEYS), str(SMALL_BUDGET_BYTES))
        return found | {"anonymous MiB at 256 MiB": small["anonymous MiB"]}


def _child(peer: Place, *arguments: str) -> Metrics:
    command = [sys.executable, "-m", "bench.child", "reads", peer.name, str(peer.path), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {name: float(value) for name, value in json.loads(done.stdout).items()}


def _wide(rows: pa.Table) -> pa.Table:
    """Return accounts of about 100 bytes."""
    names = pc.utf8_rpad(rows["name"], _NAME_CHARACTERS, "x")
    return rows.set_column(rows.schema.get_field_index("name"), rows.schema.field("name"), names)
