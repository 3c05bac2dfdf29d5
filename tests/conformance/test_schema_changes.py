"""Schema changes: columns are added, renamed, given another type and dropped, rows stay."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import CLIENTS, FILES, STATEMENTS, case, refused_with
from tests.conformance.guests import Guest, Path
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "schema changes"


@case(KIND, *CLIENTS)
def test_a_column_of_nulls_is_added(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.add_column(table, "n", "cast(NULL as bigint)")
    assert guest.schema(table).names == ["id", "v", "e", "n"]
    assert guest.schema(table).field("n").type == pa.int64()
    assert guest.rows(table, ["n"])["n"].to_pylist() == [None, None, None]


@case(KIND, *CLIENTS)
def test_a_column_is_added_by_an_expression(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.add_column(table, "twice", "id * 2")
    assert sorted(guest.rows(table, ["twice"])["twice"].to_pylist()) == [2, 4, 6]


@case(KIND, *FILES)
def test_a_column_is_added_by_its_type(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.add_typed_column(table, pa.field("day", pa.date32()))
    assert guest.schema(table).field("day").type == pa.date32()
    assert guest.rows(table, ["day"])["day"].null_count == 3


@case(KIND, *CLIENTS)
def test_rows_follow_an_added_column(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.add_column(table, "n", "cast(NULL as bigint)")
    guest.append(table, NEW.append_column("n", pa.array([5])))
    assert guest.rows(table, ["id", "n"], "n is not null").to_pylist() == [{"id": 9, "n": 5}]


@case(KIND, *CLIENTS)
def test_a_column_is_renamed(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.rename_column(table, "v", "word")
    assert guest.schema(table).names == ["id", "word", "e"]
    assert sorted(guest.rows(table, ["word"])["word"].to_pylist()) == ["a", "b", "c"]


@case(KIND, *CLIENTS)
def test_a_column_is_dropped(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.drop_column(table, "v")
    assert guest.schema(table).names == ["id", "e"]
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_a_column_gets_a_wider_type(guest: Guest, table: Path) -> None:
    guest.create(table, pa.table({"id": pa.array([1, 2], pa.int32())}))
    guest.cast_column(table, "id", pa.int64())
    assert guest.schema(table).field("id").type == pa.int64()
    assert sorted(guest.rows(table)["id"].to_pylist()) == [1, 2]


@case(KIND, *CLIENTS)
def test_a_column_that_is_not_there_is_not_dropped(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("none|was not found", errors.TableColumnNotFoundError):
        guest.drop_column(table, "none")
    assert guest.schema(table).names == ["id", "v", "e"]


@case(KIND, *CLIENTS)
def test_a_column_is_not_added_twice(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("v"):
        guest.add_column(table, "v", "'x'")
    assert guest.schema(table).names == ["id", "v", "e"]


@case(KIND, *CLIENTS, causes=(13,))
def test_rows_with_fewer_columns_replace_a_table(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.create(table, ROWS.select(["id"]), mode="overwrite")
    assert guest.schema(table).names == ["id"]


@case(KIND, Generated, OperationsInProcess)
def test_metadata_of_a_table_is_replaced(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.set_schema_metadata(table, owner="us", source="here")
    guest.set_schema_metadata(table, owner="you")
    assert guest.schema(table).metadata == {b"owner": b"you"}


@case(KIND, Generated, OperationsInProcess)
def test_metadata_that_says_what_a_column_is_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("(?i)reserved", errors.InvalidInputError):
        guest.set_schema_metadata(table, **{"ARROW:extension:name": "arrow.json"})


@case(KIND, *STATEMENTS)
def test_a_column_that_may_not_be_null_may_be_from_now_on(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS.cast(pa.schema([f.with_nullable(False) for f in ROWS.schema])))
    guest.allow_null(table, "v")
    assert [field.nullable for field in guest.schema(table)] == [False, True, False]
    guest.append(table, NEW.set_column(1, "v", pa.nulls(1, pa.string())))
    assert guest.count(table, "v is null") == 1


@case(KIND, *STATEMENTS)
def test_metadata_of_a_column_is_noted(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.note_column(table, "v", {"unit": "m", "gone": "x"})
    guest.note_column(table, "v", {"gone": None})
    assert guest.schema(table).field("v").metadata == {b"unit": b"m"}
