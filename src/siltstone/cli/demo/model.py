"""Model: the tables of the demo, and the one transaction that it is about.

A landing writes the flight, the totals of its plane and the totals of its airport, or nothing.
So in every snapshot the totals are the sums of the flights: that is what `checks` looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.transaction import Transaction
from siltstone.cli.demo import data
from siltstone.cli.demo.data import Flight
from siltstone.store import Store

REFERENCES = {
    "airlines": ["carrier"],
    "airports": ["faa"],
    "planes": ["tailnum"],
    "weather": ["origin", "time_hour"],
}
FLIGHTS = {
    "id": "int64",
    "landed": "timestamp[us, tz=UTC]",
    "carrier": "string",
    "number": "int64",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "miles": "int64",
    "minutes_late": "int64",
}
TOTALS = {"flights": "int64", "miles": "int64", "minutes_late": "int64"}
# table of totals -> the column of a flight that is its key
KEYS = {"plane_totals": "tailnum", "airport_totals": "dest"}
ALL_KEYS = {
    "flights": ["id"],
    **{name: [column] for name, column in KEYS.items()},
    **REFERENCES,
}
ATTEMPTS = 1_000


def prepare(store: Store) -> dict[str, int]:
    """Create the tables and load the reference tables; return the rows of each."""
    with store.transaction() as tx:
        tx.create_table("flights", FLIGHTS, "id")
        for name, column in KEYS.items():
            tx.create_table(name, {column: "string", **TOTALS}, column)
    rows: dict[str, int] = {}
    for name, key in REFERENCES.items():
        found = data.reference(name)
        made = store.create_table(name, found.schema, key)
        made.upsert(found)
        rows[name] = made.count()
    return rows


def landing(flight: Flight, attempts: list[int]) -> Callable[[Transaction], Transaction]:
    """Return the transaction of one landing; `attempts` counts how often it was begun."""

    def land(tx: Any) -> Transaction:
        attempts[0] += 1
        known = tx["flights"].get(flight["id"])
        tx["flights"].upsert(flight)
        # A flight that is corrected counts once.
        new, old = _counted(flight), dict.fromkeys(TOTALS, 0) if known is None else _counted(known)
        for name, column in KEYS.items():
            key = flight[column]
            totals = tx[name].get(key) or dict.fromkeys(TOTALS, 0)
            changed = {total: totals[total] + new[total] - old[total] for total in TOTALS}
            tx[name].upsert({column: key, **changed})
        return tx

    return land


def invented(landed: pa.Table, flights: pa.Table) -> list[str]:
    """Return what is wrong with the rows of `flights` in a store: each is one of `data.flights`."""
    landed = landed.sort_by("id")
    source = flights.take(pc.subtract(landed["id"], 1))
    names = [name for name in FLIGHTS if name != "minutes_late"]
    wrong = [name for name in names if not landed[name].equals(source[name])]
    late, early = source["minutes_late"], source["minutes_late_at_departure"]
    told = landed["minutes_late"]
    if not pc.all(pc.or_(pc.equal(told, late), pc.equal(told, early)), min_count=0).as_py():
        wrong.append("minutes_late")
    return [f"flights have {name} that no flight of 2013 had" for name in wrong]


def _counted(flight: Mapping[str, Any]) -> dict[str, int]:
    return {"flights": 1, "miles": flight["miles"], "minutes_late": flight["minutes_late"]}
