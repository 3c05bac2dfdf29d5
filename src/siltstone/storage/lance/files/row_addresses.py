"""Row addresses: where Lance's numbers of rows lie in our order of the rows of one version.

    Lance's row address   = fragment id << 32 | offset
    Lance's row id        = a number that a row keeps in all versions, also through a compaction

Rows get their ids as they come, so the ids of a part are few runs of consecutive numbers, and are
kept as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from siltstone.storage.lance.files.parts import Part

OFFSET_BITS = 32
_OFFSET = (1 << OFFSET_BITS) - 1


class RowAddresses:
    """The positions of row addresses.

    No lock: nothing changes after construction but a memo, from absent to present.
    """

    def __init__(self, parts: Sequence[Part], offsets: Callable[[int], np.ndarray]) -> None:
        """`offsets` reads the offsets of the live rows of a part, by its index, ascending."""
        numbers = np.array([part.number for part in parts], dtype=np.int64)
        starts = np.array([part.start for part in parts], dtype=np.int64)
        self._order = np.argsort(numbers)
        self._numbers, self._starts = numbers[self._order], starts[self._order]
        self._stored = [part.stored for part in parts]
        self._has_deletions = any(part.rows != part.stored for part in parts)
        self._offsets = offsets
        self._deletions: dict[int, np.ndarray] = {}

    def positions(self, addresses: np.ndarray) -> np.ndarray:
        """Return the positions of the rows at int64 `addresses`, in no order."""
        fragment, offset = addresses >> OFFSET_BITS, addresses & _OFFSET
        if len(fragment) and fragment[0] == fragment[-1] and (fragment == fragment[0]).all():
            start = self._starts[np.searchsorted(self._numbers, fragment[0])]
        else:
            start = self._starts[np.searchsorted(self._numbers, fragment)]
        if self._has_deletions:
            for number in np.unique(fragment).tolist():
                mine = fragment == number
                offset[mine] -= np.searchsorted(self._deleted(number), offset[mine])
        return offset + start

    def _deleted(self, number: int) -> np.ndarray:
        """Return the offsets of the deleted rows of a fragment, ascending; found out once."""
        known = self._deletions.get(number)
        if known is None:
            index = int(self._order[np.searchsorted(self._numbers, number)])
            gone = np.ones(self._stored[index], dtype=bool)
            gone[self._offsets(index)] = False
            known = self._deletions[number] = np.flatnonzero(gone)
        return known


def live_offsets(dataset: Any, fragment: Any) -> np.ndarray:
    """Return the offsets of the rows of a fragment that are not deleted, ascending."""
    options = {"with_row_address": True, "scan_in_order": True}
    found = dataset.scanner(columns=[], fragments=[fragment], **options).to_table()
    return found.column("_rowaddr").to_numpy() & np.uint64(_OFFSET)


@dataclass(frozen=True, eq=False)
class RowIds:
    """The row ids of all positions: from position `starts[i]` on they count up from `ids[i]`."""

    starts: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, pieces: Iterable[Any]) -> RowIds:
        """Return the ids in some arrays, one behind the other in the order of the positions."""
        starts, ids, start = list[np.ndarray](), list[np.ndarray](), 0
        for piece in pieces:
            found = piece.to_numpy(zero_copy_only=False).view(np.int64)
            if len(found):
                begins = np.append(0, np.flatnonzero(np.diff(found) != 1) + 1)
                starts.append(begins + start)
                ids.append(found[begins])
                start += len(found)
        if not starts:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return cls(np.concatenate(starts), np.concatenate(ids))

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids of the rows at some positions."""
        run = np.searchsorted(self.starts, positions, side="right") - 1
        return self.ids[run] + positions - self.starts[run]

    def positions(self, ids: np.ndarray, rows: int) -> np.ndarray:
        """Return the positions, of `rows`, of the rows with some ids; -1: no row has it."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        order = self._order
        run = np.searchsorted(self.ids[order], ids, side="right") - 1
        chosen = order[np.maximum(run, 0)]
        found = self.starts[chosen] + ids - self.ids[chosen]
        ends = np.append(self.starts[1:], rows)
        return np.where((run >= 0) & (found < ends[chosen]), found, -1)

    @cached_property
    def _order(self) -> np.ndarray:
        """The numbers of the runs by their ids."""
        return np.argsort(self.ids)


def row_ids(dataset: Any, fragments: Sequence[Any]) -> RowIds:
    """Return the ids of the rows of some fragments, in the order of these."""
    options = {"with_row_id": True, "scan_in_order": True}
    reader = dataset.scanner(columns=[], fragments=list(fragments), **options).to_reader()
    return RowIds.of(batch.column("_rowid") for batch in reader)
