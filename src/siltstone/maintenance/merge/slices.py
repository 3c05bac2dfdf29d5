"""Slices: how far one fold goes, so that what it holds in memory is bounded.

A fold holds the keys of the history that it folds (some 100 bytes a row, until it is published), so
a large history is folded in slices, oldest first, each published by itself. A slice ends between
two commits. One commit larger than a slice is folded whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from siltstone.engine.levels.history_run import HistoryRun, seqs_of
from siltstone.engine.levels.sources import Source

ROWS_MIN = 65_536
ROW_BYTES = 112


def slice_rows(index_bytes_max: int) -> int:
    """Return how many rows a slice has, by the share of the memory for what finds rows."""
    return max(ROWS_MIN, index_bytes_max // ROW_BYTES)


def slice_end(runs: Iterable[Source], upto: int, rows_max: int) -> int:
    """Return the seq up to which `runs` (oldest first) are folded: `rows_max` rows, or one commit.

    It reads their seqs alone, and holds a batch of them.
    """
    left, first = rows_max, None
    for run in runs:
        assert isinstance(run, HistoryRun)  # nothing else is folded
        for seqs in seqs_of(run):
            first = int(seqs[0]) if first is None else first
            if len(seqs) > left:
                beyond = int(seqs[left])
                return beyond if beyond == first else beyond - 1
            left -= len(seqs)
    return upto
