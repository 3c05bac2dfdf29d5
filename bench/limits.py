"""Limits: what this machine can do at best, so that a rate can be read as a share of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

_BLOCK = b"x" * 256


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Return syncs per second of a growing and of a preallocated file, and memcpy in GB/s."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "fdatasync/s, growing file": _syncs(folder / "growing", seconds, preallocated=0),
        "fdatasync/s, preallocated file": _syncs(folder / "fixed", seconds, preallocated=16 << 20),
        "memcpy GB/s": _memcpy(),
    }


def _syncs(path: Path, seconds: float, *, preallocated: int) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, bytes(preallocated))
    os.fsync(descriptor)
    count, begin = 0, time.perf_counter()
    offset = 0 if preallocated else None
    while time.perf_counter() - begin < seconds:
        if offset is None:
            os.write(descriptor, _BLOCK)
        else:
            os.pwrite(descriptor, _BLOCK, offset)
            offset = (offset + len(_BLOCK)) % preallocated
        os.fdatasync(descriptor)
        count += 1
    rate = count / (time.perf_counter() - begin)
    os.close(descriptor)
    path.unlink()
    return rate


def _memcpy() -> float:
    source = np.ones(1 << 25, dtype=np.int64)
    target = np.empty_like(source)
    best = min(_copy_seconds(source, target) for _ in range(4))
    return source.nbytes / best / 1e9


def _copy_seconds(source: np.ndarray, target: np.ndarray) -> float:
    begin = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - begin
