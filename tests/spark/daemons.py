"""The Python processes of catalogs: which run for this process's JVM."""

from __future__ import annotations

import os
from pathlib import Path


def daemons(of: int | None = None) -> list[int]:
    """Return the pids of those that descend from a process, by default this one."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(each.parent.name)] = int(fields[1])
    mine = {of or os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sorted(pid for pid in mine if _is_daemon(pid))


def memory_files(pid: int) -> int:
    """Return how many descriptors of memory a process has."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += each.readlink().name.startswith("memfd:siltstone")
        except OSError:  # it is closed
            continue
    return found


def _is_daemon(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"siltstone.spark.daemon" in words
