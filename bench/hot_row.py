"""Hot row: increments of one row from many threads by `db.run`: `python -m bench.hot_row`.

    python -m bench.hot_row                     6, 16 and 40 threads, 400 increments each
    python -m bench.hot_row --threads 40 --jobs 400 --door http
    python -m bench.hot_row --threads 40 --rate 300     arrivals per second, instead of a loop

It prints how many increments were lost (their run gave up), how often the work was tried, and how
long all of it took, for a new store in a directory below `TMPDIR`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import siltstone as st
from siltstone.joined.store import JoinedStore

DOORS = ("owner", "socket", "http")


@dataclass(frozen=True, slots=True)
class HotRow:
    """What became of the increments."""

    lost: int
    tries: int
    seconds: float
    slowest_s: float


@contextmanager
def behind(door: str, folder: Path) -> Iterator[st.Store]:
    """Yield a new store as its owner has it, or as one who joined it."""
    with st.connect(folder / "shop") as owner, ExitStack() as held:
        owner.create_table("c", {"id": "int64", "n": "int64"}, primary_key="id")
        owner["c"].insert({"id": 1, "n": 0})
        if door == "owner":
            yield owner
        elif door == "socket":
            yield held.enter_context(JoinedStore(owner.path, str(owner.serve_local())))
        else:
            yield held.enter_context(st.connect(owner.serve(port=0).url))


def measure(db: st.Store, threads: int, jobs: int, rate: float | None) -> HotRow:
    """Increment the row `jobs` times from `threads` threads."""
    tries = itertools.count()

    def work(tx: st.Transaction) -> None:
        next(tries)
        row = tx["c"].get(1)
        assert row is not None
        tx["c"].update(1, n=row["n"] + 1)

    def job(at_s: float) -> tuple[bool, float]:
        time.sleep(max(0.0, at_s - time.perf_counter()))
        begun_s = time.perf_counter()
        try:
            db.run(work)
        except st.ConflictError:
            return True, time.perf_counter() - begun_s
        return False, time.perf_counter() - begun_s

    begun_s = time.perf_counter()
    starts = [begun_s + (0.0 if rate is None else number / rate) for number in range(jobs)]
    with ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(job, starts))
    seconds = time.perf_counter() - begun_s
    lost = sum(is_lost for is_lost, _ in done)
    row = db["c"].get(1)
    assert row is not None
    assert row["n"] == jobs - lost, "an increment that was acknowledged is gone"
    return HotRow(lost, next(tries), seconds, max(took_s for _, took_s in done))


def main() -> None:
    """Print one line for each number of threads."""
    parser = argparse.ArgumentParser(description="Increments of one row from many threads.")
    parser.add_argument("--threads", type=int, nargs="+", default=[6, 16, 40])
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--door", choices=DOORS, default="owner")
    parser.add_argument("--rate", type=float, help="arrivals per second")
    asked = parser.parse_args()
    for threads in asked.threads:
        with tempfile.TemporaryDirectory() as folder, behind(asked.door, Path(folder)) as db:
            found = measure(db, threads, asked.jobs, asked.rate)
        print(
            f"{threads} threads, {asked.door}: {found.lost} of {asked.jobs} lost,"
            f" {found.tries} tries, {found.seconds:.2f} s, slowest {found.slowest_s * 1000:.0f} ms"
        )


if __name__ == "__main__":
    main()
