"""Merge insert: rows that match are replaced, others are added, and those it lacks may go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import CHANGED, ROWS
from tests.conformance.cases import CLIENTS, Refusal, case, not_offered, refused_with
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import LanceDBRemote

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "merge_insert"


def values(guest: Guest, table: Path) -> dict[int, str]:
    found = guest.rows(table, ["id", "v"]).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


@case(KIND, *CLIENTS)
def test_matching_rows_are_replaced_and_others_added(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED)
    assert values(guest, table) == {1: "a", 2: "b", 3: "C", 9: "new"}


@case(KIND, *CLIENTS)
def test_rows_are_added_only_if_they_are_new(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED, updates=False)
    assert values(guest, table) == {1: "a", 2: "b", 3: "c", 9: "new"}


@case(KIND, *CLIENTS)
def test_rows_are_replaced_only_if_they_are_there(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED, inserts=False)
    assert values(guest, table) == {1: "a", 2: "b", 3: "C"}


@case(KIND, *CLIENTS)
def test_rows_that_the_source_lacks_are_deleted(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED, deletes=True)
    assert values(guest, table) == {3: "C", 9: "new"}


@case(KIND, *CLIENTS)
def test_rows_that_the_source_lacks_are_deleted_by_a_filter(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED, deletes="id < 2")
    assert values(guest, table) == {2: "b", 3: "C", 9: "new"}


@case(
    KIND,
    *CLIENTS,
    refused=not_offered(
        "when_matched_update_all_filt is not offered",
        "the store merges by keys and columns alone: take the rows that should stay out of the"
        " source, or merge through the files",
    ),
)
def test_a_matching_row_is_replaced_on_a_condition(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED, inserts=False, only_if="target.v = 'none'")
    assert values(guest, table) == {1: "a", 2: "b", 3: "c"}


@case(KIND, *CLIENTS)
def test_rows_match_by_two_columns(guest: Guest, table: Path) -> None:
    old = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "n": [1, 2, 3]})
    guest.create(table, old)
    new = pa.table({"a": [1, 2], "b": ["y", "y"], "n": [20, 40]})
    guest.merge(table, new, ["a", "b"])
    assert sorted(guest.rows(table)["n"].to_pylist()) == [1, 3, 20, 40]


@case(
    KIND,
    *CLIENTS,
    refused={
        LanceDBRemote: Refusal(ValueError, "empty", "it sends no empty stream", by_client=True)
    },
)
def test_a_merge_of_no_rows_changes_nothing(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.merge(table, CHANGED.slice(0, 0))
    assert values(guest, table) == {1: "a", 2: "b", 3: "c"}


@case(KIND, *CLIENTS)
def test_a_merge_on_a_column_that_is_not_there_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("none|was not found", errors.TableColumnNotFoundError):
        guest.merge(table, CHANGED, "none")
    assert values(guest, table) == {1: "a", 2: "b", 3: "c"}
