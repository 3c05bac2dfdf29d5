"""What a load into a table with rows costs: `python -m bench.load --help`.

    python -m bench.load --rows 2e6     a first load of so many rows, then a second one of as many
                                        other keys; a checkpoint, a merge

After each step: its seconds, its processor seconds, and the bytes of new data files by folder. A
file with several names counts where it was first. It needs only the public doors, so the same file
measures another checkout: `PYTHONPATH=<checkout>/src python bench/load.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st

KINDS = (".attached", ".history", "base")
SCHEMA = {"id": "int64", "name": "string", "balance": "int64", "score": "float64"}
TIMES = 3


def rows(first: int, count: int, turn: int) -> pa.Table:
    """Return `count` rows with keys from `first` on, shuffled."""
    random = np.random.default_rng(turn)
    keys = first + random.permutation(count).astype(np.int64)
    columns = [pa.array(keys), pa.array(keys * 3), pa.array(random.random(count))]
    columns.insert(1, columns[0].cast(pa.string()))
    return pa.table(columns, names=list(SCHEMA))


class Seen:
    """The data files that were seen so far, by their identities."""

    def __init__(self, root: Path) -> None:
        self._root, self._known = root, set[int]()

    def fresh(self) -> Counter[str]:
        """Return the bytes of the files that came since, by kind."""
        found = Counter[str]()
        for path in self._root.rglob("*.lance"):
            with contextlib.suppress(FileNotFoundError):
                about = path.lstat()
                if path.is_file() and about.st_ino not in self._known:
                    self._known.add(about.st_ino)
                    kind = next((k for k in KINDS if f"/{k}/" in str(path)), "other")
                    found[kind] += about.st_size
        return found


def timed(label: str, seen: Seen, work: Callable[[], object]) -> float:
    """Do a step, and print what it took and wrote."""
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    megabytes = {kind: round(n / 1e6, 1) for kind, n in seen.fresh().items() if n > 1e5}
    print(f"{label:12} {seconds:6.2f} s, {cpu:5.2f} of cpu  MB written: {megabytes}", flush=True)
    return seconds


def once(root: Path, count: int) -> float:
    """Load twice; return the speed of the second load over that of the first."""
    with st.connect(root, background=False, memory_bytes_max=4 << 30) as db:
        table, seen = db.create_table("accounts", SCHEMA, primary_key="id"), Seen(root)
        first, second = (rows(turn * count, count, turn) for turn in range(2))
        print(f"{count} rows, {first.nbytes / 1e6:.0f} MB in memory, each time")
        one = timed("first load", seen, lambda: table.upsert(first))
        other = timed("second load", seen, lambda: table.upsert(second))
        timed("checkpoint", seen, db.checkpoint)
        timed("merge", seen, db.merge)
        timed("count", seen, table.count)
        if table.count() != 2 * count:
            raise SystemExit(f"there are {table.count()} rows")
    return one / other


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.load", description=__doc__)
    parser.add_argument("--rows", type=float, default=2e6, help="of each load")
    given = parser.parse_args()
    speeds: list[float] = []
    for _ in range(TIMES):
        folder = Path(tempfile.mkdtemp(prefix="siltstone-load-"))
        try:
            speeds.append(once(folder / "s", int(given.rows)))
        finally:
            shutil.rmtree(folder)
    shown = ", ".join(f"{speed:.2f}" for speed in speeds)
    print(f"second load over first, by speed: {shown}; median {sorted(speeds)[TIMES // 2]:.2f}")


if __name__ == "__main__":
    main()
