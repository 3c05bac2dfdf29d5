"""What a streamed load takes in memory until it is merged: `python -m bench.load_memory --help`.

    python -m bench.load_memory --rows 3e6 --memory-mb 32
        a load of so many rows, from a stream, into a table with one row; a get and a count; 20
        upserts; and a merge in this process, of what no child has merged before

After each step: its seconds, the processor seconds of all threads of this process, the resident MB
of this process and of its children at most, and what `status()` says of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
BATCH_ROWS = 65_536
POLL_S = 0.05


def stream(count: int, *, is_shuffled: bool) -> pa.RecordBatchReader:
    """Return rows of about 80 bytes; shuffled, their keys are a permutation by a multiplier."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, count, BATCH_ROWS):
            keys = np.arange(first, min(first + BATCH_ROWS, count))
            keys = keys * 1_000_000_007 % count if is_shuffled else keys
            texts = [f"value of {key:060d}" for key in keys.tolist()]
            yield pa.record_batch([pa.array(keys), pa.array(texts)], schema=SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


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


def measured(root: Path, count: int, memory_mb: int, *, is_shuffled: bool) -> None:
    """Load, and print what each step takes."""
    children = Children()
    with st.connect(root, memory_bytes_max=memory_mb << 20) as db:
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
        step("load", lambda: table.upsert(stream(count, is_shuffled=is_shuffled)))
        step("get", lambda: table.get(count // 2))
        step("count", table.count)
        step("20 upserts", lambda: [table.upsert({"id": n, "v": "after"}) for n in range(20)])
        step("merge", db.merge)
        if table.count() != count + 1:
            raise SystemExit(f"there are {table.count()} rows")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.load_memory", description=__doc__)
    parser.add_argument("--rows", type=float, default=3e6)
    parser.add_argument("--memory-mb", type=int, default=32, help="`memory_bytes_max`, in MiB")
    parser.add_argument("--shuffled", action="store_true", help="keys in no order")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="siltstone-load-"))
    try:
        measured(folder / "s", int(given.rows), given.memory_mb, is_shuffled=bool(given.shuffled))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
