"""Rows: a table of 100 bytes a row, what its store writes, and what a process takes."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st

KINDS = {
    ".history": "history",
    "base/data": "base",
    "base/_deletions": "deletion files",
    "base/_indices": "indexes",
    "base/_siltstone/_keys": "key runs",
    "inventory": "inventories",
    "manifest": "records",
}
SCHEMA = {"id": "int64", "v": "int64", "w": "float64", "text": "string"}
BATCH_ROWS = 20_000
TEXT = 75
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def rows(keys: np.ndarray, turn: int) -> pa.Table:
    """Return rows of about 100 bytes, made fast."""
    random = np.random.default_rng(turn)
    numbers = random.integers(0, 1 << 62, len(keys))
    text = pa.py_buffer(_HEX[random.integers(0, 16, len(keys) * TEXT, np.uint8)].tobytes())
    offsets = pa.py_buffer((np.arange(len(keys) + 1, dtype=np.int32) * TEXT).tobytes())
    texts = pa.StringArray.from_buffers(len(keys), offsets, text)
    values = [pa.array(keys), pa.array(numbers), pa.array(numbers / 3), texts]
    return pa.table(values, names=list(SCHEMA))


def loaded(db: st.Store, count: int) -> st.Table:
    """Return a table with so many rows in base."""
    table = db.create_table("t", SCHEMA, primary_key="id")
    for first in range(0, count, 1_000_000):
        table.upsert(rows(np.arange(first, min(count, first + 1_000_000)), first))
        db.checkpoint()
    db.merge()
    return table


def written(root: Path) -> Counter[str]:
    """Return the bytes of all files by kind; a file with two names counts once."""
    found, seen = Counter[str](), set[int]()
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if path.is_file() and about.st_ino not in seen and "wal" not in path.parts:
                seen.add(about.st_ino)
                name = str(path.relative_to(root)).replace("_siltstone/_kept/", "")
                kind = next((kind for part, kind in KINDS.items() if part in name), "other")
                found[kind] += about.st_size
    return found


def peak_bytes(pid: str) -> int:
    """Return the most memory that a process had; 0 if it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def written_by_process() -> int:
    """Return the bytes that this process wrote, and its children that have ended."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def apart(work: Callable[..., None], *given: object) -> None:
    """Do something in a new process: its memory and its writes are its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(work, *given).result()
