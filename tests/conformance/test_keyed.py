"""Keyed tables: statements see and write every row; files show them as of the last merge."""

from __future__ import annotations

import pytest

from tests.clients.operations import CHANGED, NEW, ROWS
from tests.conformance.cases import CLIENTS, STATEMENTS, case
from tests.conformance.guests import Guest, Path
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "keyed tables"


def keyed(guest: Guest, table: Path) -> None:
    guest.db.create_table(table[0], ROWS.schema, primary_key="id").upsert(ROWS)


def ids(guest: Guest, table: Path) -> list[int]:
    return sorted(guest.rows(table, ["id"], limit=99)["id"].to_pylist())


@case(KIND, *CLIENTS)
def test_a_merged_keyed_table_is_read(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.db.checkpoint()
    guest.db.merge(table[0])
    assert ids(guest, table) == [1, 2, 3]


@case(KIND, *STATEMENTS)
def test_rows_are_read_before_any_merge(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    assert ids(guest, table) == [1, 2, 3]


@case(KIND, *STATEMENTS)
def test_rows_of_a_keyed_table_are_inserted(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.append(table, NEW)
    assert ids(guest, table) == [1, 2, 3, 9]


@case(KIND, *STATEMENTS)
def test_rows_are_merged_by_the_key(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.merge(table, CHANGED)
    assert guest.rows(table, ["v"], "id = 3", limit=9).to_pylist() == [{"v": "C"}]
    assert ids(guest, table) == [1, 2, 3, 9]


@case(KIND, *STATEMENTS)
def test_rows_of_a_keyed_table_are_updated_and_deleted(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.update(table, "id = 2", v="'z'")
    guest.delete(table, "id = 1")
    assert guest.rows(table, ["id", "v"], "id = 2", limit=9).to_pylist() == [{"id": 2, "v": "z"}]
    assert ids(guest, table) == [2, 3]


@case(KIND, *STATEMENTS)
def test_the_nearest_rows_of_a_keyed_table_are_found(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.db[table[0]].upsert({"id": 7, "v": "x", "e": [9.0, 9.0]})
    assert guest.nearest(table, [9.0, 8.9], 1, column="e")["id"].to_pylist() == [7]


@case(KIND, *STATEMENTS)
def test_words_of_a_keyed_table_are_found(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.db[table[0]].create_index("v", kind="fts")
    guest.db[table[0]].upsert({"id": 7, "v": "an old river", "e": [9.0, 9.0]})
    assert guest.text(table, "rivers", "v")["id"].to_pylist() == [7]


@case(KIND, *STATEMENTS)
def test_a_key_is_indexed(guest: Guest, table: Path) -> None:
    keyed(guest, table)
    guest.index(table, "v")
    assert len(guest.indexes(table)) == 1


@case(KIND, Generated, OperationsInProcess)
def test_a_table_with_a_key_is_made(guest: Guest, table: Path) -> None:
    guest.create_keyed(table, ROWS, "id")
    assert guest.db[table[0]].primary_key == ("id",)
    guest.merge(table, CHANGED.slice(0, 1))
    assert ids(guest, table) == [1, 2, 3]
