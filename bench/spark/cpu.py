"""CPU seconds of this process and all that it started: Spark's JVM and its Python workers."""

from __future__ import annotations

import os
from pathlib import Path

_PARENT, _TIMES = 1, slice(11, 13)
"""In the fields of proc(5)'s `stat` after the name: ppid; utime, stime."""
_used: dict[int, int] = {}


def cpu_s() -> float:
    """Return what they have used; of one that has ended, what it had at the call before."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(each.parent.name)
        parents[pid], ticks[pid] = int(fields[_PARENT]), sum(map(int, fields[_TIMES]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    _used.update({pid: ticks[pid] for pid in mine})
    return sum(_used.values()) / os.sysconf("SC_CLK_TCK")
