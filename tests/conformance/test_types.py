"""Column types: a type is kept as it is by every client, or refused by its name and a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.cases import CLIENTS, case
from tests.conformance.guests import Guest, Path

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "column types"


def keeps(guest: Guest, table: Path, kind: pa.DataType, values: list[Any]) -> None:
    """Write a column of a type and rows after it, and read them as they were."""
    array = pa.array(values, kind.storage_type if isinstance(kind, pa.ExtensionType) else kind)
    if isinstance(kind, pa.ExtensionType):
        array = pa.ExtensionArray.from_storage(kind, array)
    rows = pa.table({"id": range(len(values)), "x": array})
    guest.create(table, rows)
    guest.append(table, rows.slice(0, 1))
    found = guest.rows(table, limit=9)
    assert found.schema.field("x").type == kind
    assert found.num_rows == len(values) + 1
    assert found.slice(0, len(values)).sort_by("id")["x"].to_pylist() == rows["x"].to_pylist()


@case(KIND, *CLIENTS)
def test_numbers_and_bools_are_kept(guest: Guest, table: Path) -> None:
    kinds = {
        f"c{at}": pa.array([0, 1, None], kind)
        for at, kind in enumerate(
            (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
        )
    }
    rows = pa.table(
        {
            **kinds,
            "u": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "h": pa.array([0.5, None, 2.0], pa.float16()),
            "f": pa.array([0.5, None, 2.0], pa.float32()),
            "d": pa.array([0.1, None, 2.0], pa.float64()),
            "b": pa.array([True, None, False]),
            "m": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
        }
    )
    guest.create(table, rows)
    found = guest.rows(table, limit=9)
    assert (found.schema.types, found.to_pylist()) == (rows.schema.types, rows.to_pylist())


@case(KIND, *CLIENTS)
def test_texts_and_bytes_are_kept(guest: Guest, table: Path) -> None:
    for kind in (pa.string(), pa.large_string()):
        keeps(guest, [f"{table[0]}{kind}"], kind, ["", "ä€😀", None])
    for kind in (pa.binary(), pa.large_binary()):
        keeps(guest, [f"{table[0]}{kind}"], kind, [b"", b"\0\xff", None])


@case(KIND, *CLIENTS)
def test_dates_and_times_are_kept(guest: Guest, table: Path) -> None:
    moment = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    rows = pa.table(
        {
            "day": pa.array([date(2026, 11, 20), None], pa.date32()),
            "at": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("ms")),
            "hour": pa.array([time(10, 30), None], pa.time64("us")),
        }
    )
    guest.create(table, rows)
    found = guest.rows(table, limit=9)
    assert (found.schema.types, found.to_pylist()) == (rows.schema.types, rows.to_pylist())


@case(KIND, *CLIENTS)
def test_lists_and_structs_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, [f"{table[0]}l"], pa.list_(pa.int64()), [[1, 2], [], [3]])
    struct = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    keeps(guest, [f"{table[0]}s"], struct, [{"x": 1, "y": ["a"]}, {"x": None, "y": []}])
