"""CPU seconds of this process and all that it started: Spark's JVM and its Python workers."""

from __future__ import annotations

import os
from pathlib import Path

_PARENT, _TIMES = 1, slice(11, 15)
"""In the fields of proc(5)'s `stat` after the name: ppid; utime, stime, cutime, cstime."""


def cpu_s() -> float:
    """Return what they have used; of one that has ended, once its parent has waited for it."""
    found: dict[int, tuple[int, int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(each.parent.name)] = (
            int(fields[_PARENT]),
            sum(int(ticks) for ticks in fields[_TIMES]),
        )
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    return sum(found[pid][1] for pid in mine) / os.sysconf("SC_CLK_TCK")
