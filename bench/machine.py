"""Machine: its facts and limits, so that a rate can be shown as a share of a limit."""

from __future__ import annotations

import os
import platform
import time
import timeit
from importlib.metadata import version
from pathlib import Path

import numpy as np

from siltstone.storage.files.files import RealFiles

_BLOCK = b"x" * 256
_COPIED = 1 << 25  # of 8 bytes: far above what caches hold
_PREALLOCATED_BYTES = 16 << 20


def facts(folder: Path) -> dict[str, str]:
    """Return the facts of the machine that a reader needs to judge the numbers."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": RealFiles().filesystem(folder) or "unknown",
        "python": platform.python_version(),
        "siltstone": version("siltstone"),
        "lance": version("pylance"),
        "pyarrow": version("pyarrow"),
    }


def syncs_per_s(path: Path, seconds: float, *, is_growing: bool = False) -> float:
    """Return how often per second 256 bytes are written to a new file and synced by fdatasync.

    The file is overwritten, as the log is, or grows with each write, which makes a sync slower.
    """
    preallocated = 0 if is_growing else _PREALLOCATED_BYTES
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, bytes(preallocated))
        os.fsync(descriptor)
        return _syncs(descriptor, seconds, preallocated)
    finally:
        os.close(descriptor)
        path.unlink()


def _syncs(descriptor: int, seconds: float, preallocated: int) -> float:
    count, begin, offset = 0, time.perf_counter(), 0
    while (spent := time.perf_counter() - begin) < seconds or not count:
        os.pwrite(descriptor, _BLOCK, offset)
        os.fdatasync(descriptor)
        offset += len(_BLOCK)
        if preallocated:
            offset %= preallocated
        count += 1
    return count / spent


def memcpy_bytes_per_s() -> float:
    """Return how many bytes per second one thread copies in memory."""
    source = np.ones(_COPIED, dtype=np.int64)
    target = np.empty_like(source)
    return source.nbytes / min(timeit.repeat(lambda: np.copyto(target, source), number=1, repeat=4))


def _field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "unknown")
