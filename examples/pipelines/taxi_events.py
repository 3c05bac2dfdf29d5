"""Taxi events: the raw files of the medallion pipeline, and what its tables must hold.

A file has what the meters sent, all of it as text. Meters send a trip again when they are not sure
that it arrived, correct it later (a correction may move it to another zone or day), and void it.
Some events come after their own correction, and some cannot be read. File k depends on k alone, so
the files are the same on every machine, and more trips only add files.

`differences` computes the tables again from all files at once, by DuckDB, and compares.
"""

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import siltstone as st

TRIPS_PER_FILE = 500
COLUMNS = [
    *("trip", "sent_at", "status", "vehicle", "zone", "started_at"),
    *("fare", "tip", "paid_by", "odometer_km"),
]
ZONES = ("Airport", "Harbour", "Market", "Museum", "Station", "Stadium", "University")
FIRST = dt.datetime(2026, 11, 1)  # noqa: DTZ001 - UTC, as all times of these files


def write_files(folder: Path, trips: int) -> int:
    """Write the files that are not there yet; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = -(-trips // TRIPS_PER_FILE)
    for number in range(count):
        path = folder / f"events-{number:05}.parquet"
        if path.exists():
            continue
        # Spark overlooks names that begin with a dot, so it never sees half a file.
        hidden = path.with_name(f".{path.name}")
        rows = [dict(zip(COLUMNS, event, strict=True)) for event in _events(number)]
        schema = pa.schema([(name, pa.string()) for name in COLUMNS])
        pq.write_table(pa.Table.from_pylist(rows, schema), hidden)
        # Spark takes files in the order of their times; written in one second, they had the same.
        os.utime(hidden, times=(FIRST.timestamp() + number,) * 2)
        hidden.rename(path)
    return count


def _events(number: int) -> Iterator[tuple[str, ...]]:
    """Yield the events of a file: new trips, and what comes later of those in earlier files."""
    new, last, before = (_trips(number - age) for age in range(3))
    yield from (_event(trip, "done") for trip in new if not _is_late(trip))
    yield from (_event(trip, "done") for trip in new if _draw(20, trip, "twice at once") == 0)
    yield from (_event(trip, "done") for trip in last if _draw(10, trip, "sent again") == 0)
    for trip in last:
        if _draw(6, trip, "corrected") == 0 or _is_late(trip):
            yield _event(trip, "corrected")
    yield from (_event(trip, "done") for trip in before if _is_late(trip))
    yield from (_event(trip, "void") for trip in before if _draw(25, trip, "void") == 0)


def _event(trip: int, status: str) -> tuple[str, ...]:
    is_first = status == "done"
    started = FIRST + dt.timedelta(seconds=97 * trip)
    sent = started + dt.timedelta(minutes=25, hours=9 * ("done", "corrected", "void").index(status))
    if not is_first and _draw(3, trip, "moved") == 0:
        started -= dt.timedelta(hours=7)
    fare = 500 + _draw(4_000, trip, "fare") + (0 if is_first else _draw(300, trip, "more"))
    tip = _draw(900, trip, "tip")
    is_unreadable = is_first and _draw(70, trip, "unreadable") == 0
    return (
        str(trip),
        sent.isoformat(" "),
        status,
        str(_draw(40, trip, "vehicle")),
        ZONES[_draw(len(ZONES), trip, "zone" if is_first else "other zone")],
        started.isoformat(" "),
        "n/a" if is_unreadable else f"{fare // 100}.{fare % 100:02}",
        f"{tip // 100}.{tip % 100:02}",
        ("card", "cash")[_draw(2, trip, "paid")],
        str(10_000 + 3 * trip),
    )


def _trips(number: int) -> range:
    first = number * TRIPS_PER_FILE
    return range(max(0, first), max(0, first + TRIPS_PER_FILE))


def _is_late(trip: int) -> bool:
    return _draw(30, trip, "late") == 0


def _draw(below: int, trip: int, what: str) -> int:
    """Return a number below `below` that looks random and is the same in every run."""
    return crc32(f"{trip} {what}".encode()) % below


READABLE = """
    CREATE VIEW events AS SELECT * FROM (
        SELECT TRY_CAST(trip AS BIGINT) AS trip, TRY_CAST(sent_at AS TIMESTAMP) AS sent_at,
            TRY_CAST(vehicle AS BIGINT) AS vehicle, zone,
            TRY_CAST(started_at AS TIMESTAMP) AS started_at,
            TRY_CAST(fare AS DECIMAL(10,2)) AS fare, TRY_CAST(tip AS DECIMAL(10,2)) AS tip,
            paid_by, TRY_CAST(odometer_km AS BIGINT) AS odometer_km, status = 'void' AS is_void
        FROM read_parquet('{files}')
    ) WHERE COLUMNS(*) IS NOT NULL"""
NEWEST = "FROM events QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY sent_at DESC) = 1"
EXPECTED = {
    "silver_trips": "SELECT trip, vehicle, zone, started_at, fare, is_void, sent_at "
    + NEWEST.format(key="trip"),
    "silver_payments": "SELECT trip, paid_by, CAST(fare + tip AS DECIMAL(10,2)) AS amount, sent_at "
    + NEWEST.format(key="trip"),
    "silver_vehicles": "SELECT vehicle, zone, odometer_km, sent_at " + NEWEST.format(key="vehicle"),
    "gold_zone_days": """
        SELECT zone, CAST(started_at AS DATE) AS day, count(*) AS trips,
            CAST(sum(fare) AS DECIMAL(18,2)) AS fares
        FROM silver_trips_expected WHERE NOT is_void GROUP BY ALL""",
}


def differences(store: Path, folder: Path) -> dict[str, tuple[int, int]]:
    """Return for each table its rows, and how many are missing, wrong or too many."""
    result = {}
    with st.connect(store, read_only=True) as db, db.snapshot() as now, duckdb.connect() as duck:
        duck.execute(READABLE.format(files=folder / "*.parquet"))
        for table, query in EXPECTED.items():
            duck.execute(f"CREATE TABLE {table}_expected AS {query}")
            found = now[table].to_arrow()
            duck.register(table, found)
            names = ", ".join(found.column_names)
            either = f"""
                (SELECT {names} FROM {table} EXCEPT ALL SELECT {names} FROM {table}_expected)
                UNION ALL
                (SELECT {names} FROM {table}_expected EXCEPT ALL SELECT {names} FROM {table})"""
            row = duck.execute(f"SELECT count(*) FROM ({either})").fetchone()
            result[table] = (found.num_rows, row[0] if row else 0)
    return result
