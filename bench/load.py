"""What loads cost, into a table with rows and from a stream.

python -m bench.load --rows 2e6
    a first load of so many rows, then a second one of as many other keys; a checkpoint, a merge:
    seconds, processor seconds, and the bytes of new data files by folder (a file with several
    names counts where it was first)
python -m bench.load streamed --rows 3e6 --memory-mb 32
    a load of so many rows, from a stream, into a table with one row; a get and a count; 20
    upserts; and a merge in this process, of what no child has merged before: seconds, processor
    seconds of all threads, the resident MB of this process and of its children at most, and
    what `status()` says of memory
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st

KINDS = (".attached", ".history", "base")
LOADED = {"id": "int64", "name": "string", "balance": "int64", "score": "float64"}
TIMES = 3
STREAMED = pa.schema([("id", pa.int64()), ("v", pa.string())])
BATCH_ROWS = 65_536
POLL_S = 0.05


def rows(first: int, count: int, turn: int) -> pa.Table:
    """Return `count` rows with keys from `first` on, shuffled."""
    random = np.random.default_rng(turn)
    keys = first + random.permutation(count).astype(np.int64)
    columns = [pa.array(keys), pa.array(keys * 3), pa.array(random.random(count))]
    columns.insert(1, columns[0].cast(pa.string()))
    return pa.table(columns, names=list(LOADED))


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


def twice(folder: Path, given: argparse.Namespace) -> None:
    """Load twice, in several stores, and compare the two loads."""
    count = int(given.rows or 2e6)
    speeds = sorted(once(folder / f"{turn}", count) for turn in range(TIMES))
    shown = ", ".join(f"{speed:.2f}" for speed in speeds)
    print(f"second load over first, by speed: {shown}; median {speeds[TIMES // 2]:.2f}")


def once(root: Path, count: int) -> float:
    """Load twice; return the speed of the second load over that of the first."""
    with st.connect(root, background=False, memory_bytes_max=4 << 30) as db:
        table, seen = db.create_table("accounts", LOADED, primary_key="id"), Seen(root)
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


def stream(count: int, *, is_shuffled: bool) -> pa.RecordBatchReader:
    """Return rows of about 80 bytes; shuffled, their keys are a permutation by a multiplier."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, count, BATCH_ROWS):
            keys = np.arange(first, min(first + BATCH_ROWS, count))
            keys = keys * 1_000_000_007 % count if is_shuffled else keys
            texts = [f"value of {key:060d}" for key in keys.tolist()]
            yield pa.record_batch([pa.array(keys), pa.array(texts)], schema=STREAMED)

    return pa.RecordBatchReader.from_batches(STREAMED, batches())


def megabytes(process: str, field: str) -> float:
    """Return a line of the kernel's account of a process, in MB; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class Children:
    """Watches how much the children of this process take, at most. One thread of its own."""

    def __init__(self) -> None:
        self.most_mb = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            for listed in Path("/proc/self/task").glob("*/children"):  # of each thread
                with contextlib.suppress(FileNotFoundError):
                    for child in listed.read_text().split():
                        self.most_mb = max(self.most_mb, megabytes(child, "VmHWM"))
            time.sleep(POLL_S)


def streamed(folder: Path, given: argparse.Namespace) -> None:
    """Load from a stream, and print what each step takes."""
    count, children = int(given.rows or 3e6), Children()
    with st.connect(folder / "s", memory_bytes_max=given.memory_mb << 20) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert({"id": -1, "v": "before"})
        db.checkpoint()

        def step(label: str, work: Callable[[], object]) -> None:
            begun, cpu = time.perf_counter(), time.process_time()
            work()
            seconds, memory = time.perf_counter() - begun, db.status().memory
            cpu = time.process_time() - cpu
            print(
                f"{label:10} {seconds:6.1f} s, {cpu:5.2f} of cpu "
                f" {megabytes('self', 'VmRSS'):5.0f} MB"
                f" (at most {megabytes('self', 'VmHWM'):.0f}; children {children.most_mb:.0f});"
                f" history_indexes {memory.history_indexes / 1e6:.0f} MB,"
                f" recent_writes {memory.recent_writes / 1e6:.0f} MB",
                flush=True,
            )

        step("open", lambda: None)
        step("load", lambda: table.upsert(stream(count, is_shuffled=given.shuffled)))
        step("get", lambda: table.get(count // 2))
        step("count", table.count)
        step("20 upserts", lambda: [table.upsert({"id": n, "v": "after"}) for n in range(20)])
        step("merge", db.merge)
        if table.count() != count + 1:
            raise SystemExit(f"there are {table.count()} rows")


CASES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "twice": twice,
    "streamed": streamed,
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m bench.load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="?", choices=CASES, default="twice")
    parser.add_argument("--rows", type=float, help="2e6 of each of two loads, 3e6 of a stream")
    parser.add_argument("--memory-mb", type=int, default=32, help="`memory_bytes_max`, in MiB")
    parser.add_argument("--shuffled", action="store_true", help="keys of the stream in no order")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="siltstone-load-") as folder:
        CASES[given.case](Path(folder), given)


if __name__ == "__main__":
    main()
