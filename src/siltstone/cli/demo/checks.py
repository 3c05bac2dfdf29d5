"""Checks: in a snapshot the totals of every plane and airport are the sums of the flights."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.snapshot import Snapshot
from siltstone.cli.demo.model import ALL_KEYS, KEYS, TOTALS

VIOLATIONS_SHOWN = 5


def violations(snapshot: Snapshot) -> list[str]:
    """Return what is wrong with the totals of a snapshot: nothing, if all is well."""
    columns = ["miles", "minutes_late"]
    flights = snapshot["flights"].to_arrow([*KEYS.values(), *columns])
    wrong: list[str] = []
    for name, key in KEYS.items():
        grouped = flights.group_by(key).aggregate(
            [("miles", "count"), ("miles", "sum"), ("minutes_late", "sum")]
        )
        grouped = grouped.select([key, "miles_count", "miles_sum", "minutes_late_sum"])
        sums = grouped.rename_columns([key, *TOTALS]).sort_by(key)
        totals = snapshot[name].to_arrow([key, *TOTALS]).sort_by(key)
        if not _equal(sums, totals):
            wrong.append(
                f"at seq {snapshot.seq} {name} is not the sum of the flights: it says"
                f" {_said(totals)}, they are {_said(sums)}"
            )
    return wrong


def rows_of(snapshot: Snapshot) -> dict[str, pa.Table]:
    """Return all rows of all tables, in the order of their keys."""
    return {
        name: snapshot[name].to_arrow().sort_by([(key, "ascending") for key in keys])
        for name, keys in ALL_KEYS.items()
    }


def differences(expected: Mapping[str, pa.Table], found: Mapping[str, pa.Table]) -> list[str]:
    """Return which tables have other rows than they should have."""
    return [
        f"{name} has {len(found[name])} rows that are not the {len(rows)} that were read before"
        for name, rows in expected.items()
        if not rows.equals(found[name])
    ]


def _equal(one: pa.Table, other: pa.Table) -> bool:
    return all(one.column(name).equals(other.column(name)) for name in one.column_names)


def _said(totals: pa.Table) -> str:
    sums = {name: pc.sum(totals.column(name)).as_py() for name in TOTALS}
    return f"{len(totals)} keys, " + ", ".join(f"{n} {name}" for name, n in sums.items())


@dataclass
class Findings:
    """Counts of checks by kind, and what was wrong. Lock: one, for the counts."""

    began_s: float = field(default_factory=time.perf_counter)
    checked: dict[str, int] = field(default_factory=dict[str, int])
    wrong: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, wrong: list[str], count: int = 1) -> None:
        """Count `count` checks of a kind, and what they found wrong."""
        with self._lock:
            self.checked[kind] = self.checked.get(kind, 0) + count
            self.wrong += wrong

    def fail(self, text: str) -> None:
        """Count a part of the demo that broke off as a violated check."""
        self.note("runs to the end", [text])
