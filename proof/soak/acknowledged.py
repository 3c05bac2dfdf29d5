"""Acknowledged: which transactions of which writers were acknowledged, and at which seq.

A file of lines "writer n seq", in the order of n for each writer. Each process reads on where it
was: a soak acknowledges hundreds of thousands.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path


class Acknowledged:
    """One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._seqs = defaultdict[int, list[int]](list)
        self._numbers = defaultdict[int, list[int]](list)
        self.newest_seq = 0

    def read_on(self) -> None:
        """Take in what was acknowledged since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            told = file.read()
        told = told[: told.rfind(b"\n") + 1]
        self._offset += len(told)
        for line in told.splitlines():
            writer, n, seq = map(int, line.split())
            self._numbers[writer].append(n)
            self._seqs[writer].append(seq)
            self.newest_seq = max(self.newest_seq, seq)

    def check(self, last: dict[int, int], seq: int) -> None:
        """Check that a snapshot at `seq`, with these last n, has all up to it and nothing else."""
        for writer, seqs in self._seqs.items():
            place, numbers = bisect_right(seqs, seq), self._numbers[writer]
            if place:
                text = f"writer {writer}: {numbers[place - 1]} is lost at seq {seq}: {last[writer]}"
                assert numbers[place - 1] <= last[writer], text
            if place < len(seqs):
                text = f"writer {writer}: {numbers[place]} of seq {seqs[place]} is there at {seq}"
                assert last[writer] < numbers[place], text


def note(file: int, writer: int, n: int, seq: int) -> None:
    """Append a line, in one write."""
    os.write(file, b"%d %d %d\n" % (writer, n, seq))
