"""Stalled: tables that merges fail to merge; their rows hold up no writer of another table.

    a merge begins ─▶ it ends by itself, and failed ─▶ what it left as it was is stalled, until
    a merge moves it; once its rows have doubled it is a reason for a merge again

All that is not merged counts for the backpressure on all writers; without this, a table that no
merge can write would stop them all. A merge that was killed, or ran out of time, says nothing about
any table.

Lock: none; the thread of the scheduler writes, each change is one assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from siltstone.engine.read.view import View
from siltstone.maintenance.schedule.unmerged import foldable_rows, history_bytes


class Stall(msgspec.Struct, frozen=True):
    """Why a table is not merged, and how many rows it had then."""

    reason: str
    rows: int


class Stalled:
    """See the module."""

    def __init__(self) -> None:
        self.tables: Mapping[int, Stall] = MappingProxyType({})
        self._begun: Mapping[int, int] = MappingProxyType({})

    def begins(self, view: View) -> None:
        """Hear that a merge begins: of all tables that have rows to fold."""
        self._begun = {
            number: levels.storage.merged_seq
            for number, levels in view.levels.items()
            if foldable_rows(levels)
        }

    def ended(self, view: View, failure: str | None) -> None:
        """Hear that it ended; `failure`: by itself, and not all was merged."""
        begun, self._begun = self._begun, MappingProxyType({})
        merged = {number: levels.storage.merged_seq for number, levels in view.levels.items()}
        left = {number for number, seq in begun.items() if merged.get(number) == seq}
        known = {
            number: stall
            for number, stall in self.tables.items()
            if number in merged and (number in left or number not in begun)
        }
        if failure is not None:
            known |= {n: Stall(failure, foldable_rows(view.levels[n])) for n in left}
        self.tables = known

    def full(self, view: View, bytes_max: int) -> dict[int, str]:
        """Return the stalled tables, and what their writers hear; none below so many bytes."""
        others = view.levels.keys() - self.tables.keys()
        if not self.tables or history_bytes(view, others) < bytes_max:
            return {}
        return {
            number: f"no merge of {view.levels[number].storage.folder} succeeds, and too many rows"
            f" wait for one: change or drop that table; the last merge says: {stall.reason}"
            for number, stall in self.tables.items()
            if number in view.levels
        }

    def held_back(self, view: View) -> frozenset[int]:
        """Return the stalled tables that are no reason for a merge yet."""
        return frozenset(
            number
            for number, stall in self.tables.items()
            if number in view.levels and foldable_rows(view.levels[number]) < 2 * stall.rows
        )
