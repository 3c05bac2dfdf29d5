"""Limits: what this machine can do at best, so that a rate can be read as a share of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench import data, machine, raw_lance
from bench.measure import timed

_ROWS = 1_000_000
_REPEATS = 3


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Return what disk, memory and Lance do, each by itself; a million rows through Lance."""
    folder.mkdir(parents=True, exist_ok=True)
    growing = machine.syncs_per_s(folder / "growing", seconds, is_growing=True)
    return {
        "fdatasync/s, growing file": growing,
        "fdatasync/s, preallocated file": machine.syncs_per_s(folder / "fixed", seconds),
        "memcpy GB/s": machine.memcpy_bytes_per_s() / 1e9,
        **_lance(folder / "raw.lance"),
    }


def _lance(path: Path) -> dict[str, float]:
    rows = data.base(_ROWS)
    write = timed(lambda: raw_lance.write(rows, path))
    scan = min(timed(lambda: raw_lance.scan(path)) for _ in range(_REPEATS))
    shutil.rmtree(path)
    return {
        "raw Lance, rows/s written and synced": _ROWS / write,
        "raw Lance, rows/s scanned": _ROWS / scan,
    }
