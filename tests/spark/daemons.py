"""The Python processes of catalogs: which run for this process's JVM."""

from __future__ import annotations

import os
from pathlib import Path


def daemons(of: int | None = None) -> list[int]:
    """Return the pids of those that descend from a process, by default this one."""
    parents, mine = _parents(), {of or os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sorted(pid for pid in mine if _is_daemon(pid))


def all_daemons() -> list[int]:
    """Return the pids of all on this machine."""
    return sorted(pid for pid in _parents() if _is_daemon(pid))


def siblings() -> list[int]:
    """Return the pids of those of the JVM that started this worker, or the parent of it."""
    parents = _parents()
    return daemons(of=parents[parents[os.getpid()]])


def parent_of(pid: int) -> int:
    """Return the pid of its JVM."""
    return _parents()[pid]


def socket_of(pid: int) -> Path:
    """Return the path of its socket."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Path(words[words.index(b"siltstone.spark.daemon") + 1].decode())


def memory_files(pid: int) -> int:
    """Return how many descriptors of memory a process has."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += each.readlink().name.startswith("memfd:siltstone")
        except OSError:  # it is closed
            continue
    return found


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def answering_threads(pid: int) -> int:
    """Return how many threads a process has that are not of Lance's pools, which grow by load."""
    found = 0
    for each in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += not (each / "comm").read_text().startswith("lance")
        except OSError:  # it has ended
            continue
    return found


def resident_bytes(pid: int) -> int:
    """Return how much memory of its own a process has: not what it shares with its JVM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(found) << 10


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(each.parent.name)] = int(fields[1])
    return found


def _is_daemon(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"siltstone.spark.daemon" in words
