"""Model: the tables of the demo, and the one transaction that it is about.

A landing writes the flight, the totals of its plane and the totals of its airport, or nothing.
So in every snapshot the totals are the sums of the flights: that is what `checks` looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        rows[name] = store.create_table(name, found.schema, key).upsert(found).rows
    return rows


def landing(flight: Flight, attempts: list[int]) -> Callable[[Any], None]:
    """Return the transaction of one landing; `attempts` counts how often it was begun."""

    def land(tx: Any) -> None:
        attempts[0] += 1
        known = tx["flights"].get(flight["id"])
        tx["flights"].upsert(flight)
        change = _change(known, flight)
        for name, column in KEYS.items():
            _add(tx[name], column, flight[column], change)

    return land


def _change(known: Flight | None, flight: Flight) -> dict[str, int]:
    """Return by how much the totals change: a flight that is corrected counts once."""
    new = {"flights": 1, **{name: flight[name] for name in ("miles", "minutes_late")}}
    if known is None:
        return new  # type: ignore[return-value]
    old = {"flights": 1, **{name: known[name] for name in ("miles", "minutes_late")}}
    return {name: new[name] - old[name] for name in new}  # type: ignore[operator]


def _add(table: Any, column: str, key: object, change: dict[str, int]) -> None:
    totals = table.get(key) or dict.fromkeys(TOTALS, 0)
    table.upsert({column: key, **{name: totals[name] + change[name] for name in TOTALS}})
