"""Column types: a type is kept as it is by every client, or refused by its name and a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest

from tests.conformance.cases import CLIENTS, FILES, STATEMENTS, case, refused_with
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import LanceDBRemote

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
UNKNOWN = "Commit result for version 1 is unknown"
"""What clients of the files say, whatever they are told; a question about the table tells why."""
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


@case(KIND, *CLIENTS, causes=(7,))
def test_bytes_of_a_fixed_size_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.binary(16), [bytes(range(16)), b"\xff" * 16])


@case(KIND, *CLIENTS, causes=(7,))
def test_large_lists_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.large_list(pa.int64()), [[1, 2], [], [3]])


@case(KIND, *CLIENTS, causes=(7,))
def test_durations_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.duration("us"), [timedelta(seconds=1), timedelta(0)])


@case(KIND, *CLIENTS, causes=(7,))
def test_dates_in_milliseconds_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.date64(), [date(2026, 11, 20), date(1970, 1, 1)])


@case(KIND, *CLIENTS, causes=(7,))
def test_decimals_of_256_bits_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.decimal256(50, 2), [Decimal("1.25"), Decimal(10) ** 40])


@case(KIND, *STATEMENTS, causes=(7,))
def test_rows_with_dictionaries_are_taken_as_their_values(guest: Guest, table: Path) -> None:
    rows = pa.table({"id": [0, 1, 2], "x": pa.array(["a", None, "a"]).dictionary_encode()})
    guest.create(table, rows)
    guest.append(table, rows.slice(1, 1))
    found = guest.rows(table, limit=9)
    assert found.schema.field("x").type == pa.string()
    assert sorted(found["x"].to_pylist(), key=str) == [None, None, "a", "a"]


@case(KIND, *FILES, causes=(7,))
def test_a_table_with_dictionaries_is_refused_and_not_left_behind(
    guest: Guest, table: Path
) -> None:
    rows = pa.table({"id": [0, 1, 2], "x": pa.array(["a", "b", "a"]).dictionary_encode()})
    with refused_with("(?i)dictionary|" + UNKNOWN):
        guest.create(table, rows)
    assert table[0] not in guest.list_tables([])


@case(KIND, *(each for each in CLIENTS if each is not LanceDBRemote), causes=(7,))
def test_maps_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.map_(pa.string(), pa.int64()), [[("a", 1)], []])


@case(KIND, *CLIENTS, causes=(7,))
def test_json_is_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.json_(), ['{"a":1}', "[]"])


@case(KIND, *CLIENTS, causes=(7,))
def test_tensors_of_a_fixed_shape_are_kept(guest: Guest, table: Path) -> None:
    keeps(guest, table, pa.fixed_shape_tensor(pa.float32(), (2, 2)), [[1.0, 2.0, 3.0, 4.0]])


@case(KIND, *FILES, causes=(7,))
def test_blobs_in_files_of_their_own_are_refused_and_not_left_behind(
    guest: Guest, table: Path
) -> None:
    rows = pa.table({"id": [1], "x": lance.blob_array([b"x" * 100_000])})
    with refused_with("(?i)blob column|" + UNKNOWN):
        guest.create(table, rows)
    assert table[0] not in guest.list_tables([])


@case(KIND, *STATEMENTS, causes=(7,))
def test_blobs_are_kept_and_read_as_bytes(guest: Guest, table: Path) -> None:
    mark = {"lance-encoding:blob": "true"}
    schema = pa.schema([("id", pa.int64()), pa.field("x", pa.large_binary(), metadata=mark)])
    rows = pa.table({"id": [0, 1, 2], "x": [b"x" * 100_000, None, b""]}, schema=schema)
    guest.create(table, rows)
    guest.append(table, rows.slice(0, 1))
    found = guest.rows(table, limit=9)
    assert found.schema.field("x").type == pa.large_binary()
    assert found.slice(0, 3).sort_by("id")["x"].to_pylist() == rows["x"].to_pylist()


@case(KIND, *CLIENTS, causes=(7,))
def test_a_type_that_is_not_kept_is_refused_by_its_name(guest: Guest, table: Path) -> None:
    rows = pa.table({"id": [1], "x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with refused_with("(?i)interval"):
        guest.create(table, rows)


@case(KIND, *CLIENTS, causes=(7,))
def test_a_struct_without_fields_is_refused(guest: Guest, table: Path) -> None:
    rows = pa.table({"id": [1], "x": pa.array([{}], pa.struct([]))})
    with refused_with("(?i)struct|" + UNKNOWN):
        guest.create(table, rows)
