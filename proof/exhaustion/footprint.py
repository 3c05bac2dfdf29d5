"""Footprint: what a process holds of the system: descriptors, threads, locks, memory."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Footprint:
    """`descriptors` are what is open, by name.

    `threads` are Python's, `native` all of the process; `locks` are flocks that it holds.
    """

    descriptors: tuple[str, ...]
    threads: int
    native: int
    locks: int
    resident_bytes: int


def footprint() -> Footprint:
    """Return what is held now, after garbage is gone."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return Footprint(
        descriptors=_descriptors(),
        threads=threading.active_count(),
        native=len(list(Path("/proc/self/task").iterdir())),
        locks=_locks(os.getpid()),
        resident_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES,
    )


def _descriptors() -> tuple[str, ...]:
    links = list(Path("/proc/self/fd").iterdir())  # the folder's own is gone by now
    return tuple(sorted(str(link.readlink()) for link in links if link.is_symlink()))


def _locks(pid: int) -> int:
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(line.split()[-4] == str(pid) for line in lines)
