"""Vectors: the nearest rows, before or after the filter, within a distance, of the column asked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.conformance.cases import CLIENTS, FILES, case, not_offered, refused_with
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "vector search"
PAIR = pa.list_(pa.float32(), 2)
POINTS = pa.table(
    {
        "id": range(10),
        "e": pa.array([[float(x), 0.0] for x in range(10)], PAIR),
        "f": pa.array([[0.0, float(10 - x)] for x in range(10)], PAIR),
    }
)


@case(KIND, *CLIENTS)
def test_the_nearest_rows_come_first_with_their_distance(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [2.2, 0.0], 3, column="e")
    assert found["id"].to_pylist() == [2, 3, 1]
    assert found["_distance"].to_pylist() == pytest.approx([0.04, 0.64, 1.44], abs=1e-4)


@case(KIND, *CLIENTS, causes=(3,))
def test_a_filter_before_the_search_leaves_k_rows(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [0.0, 0.0], 3, "id >= 5", column="e")
    assert found["id"].to_pylist() == [5, 6, 7]


@case(KIND, *CLIENTS, causes=(3,))
def test_a_filter_after_the_search_leaves_fewer_rows(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [0.0, 0.0], 3, "id >= 2", prefilter=False, column="e")
    assert found["id"].to_pylist() == [2]


@case(KIND, *CLIENTS)
def test_the_vector_column_is_the_one_that_is_named(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    assert guest.nearest(table, [0.0, 1.0], 1, column="f")["id"].to_pylist() == [9]


@case(KIND, *CLIENTS)
def test_the_distance_is_the_one_that_is_named(guest: Guest, table: Path) -> None:
    vectors = pa.array([[1.0, 0.0], [0.0, 5.0], [3.0, 3.1]], PAIR)
    guest.create(table, pa.table({"id": [1, 2, 3], "e": vectors}))

    def best(metric: str) -> int:
        return guest.nearest(table, [0.1, 1.0], 1, column="e", metric=metric)["id"][0].as_py()

    assert [best(metric) for metric in ("l2", "cosine", "dot")] == [1, 2, 2]


@case(KIND, *CLIENTS, causes=(8,))
def test_rows_within_a_range_of_distances_are_found(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [0.0, 0.0], 10, between=(1.0, 9.0), column="e")
    assert found["id"].to_pylist() == [1, 2]


@case(KIND, *CLIENTS, causes=(8,))
def test_a_search_gives_the_ids_of_rows(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [0.0, 0.0], 2, column="e", with_row_id=True)
    assert "_rowid" in found.schema.names
    assert len(set(found["_rowid"].to_pylist())) == 2


@case(
    KIND,
    *CLIENTS,
    causes=(8,),
    refused=not_offered(
        "is within column 'at': a vector within a struct is not searched",
        "no search of a table ranks a field of a struct: keep the vector in a column of its own",
    ),
)
def test_a_vector_in_a_struct_is_searched(guest: Guest, table: Path) -> None:
    struct = pa.array([{"e": [float(x), 0.0]} for x in range(4)], pa.struct([pa.field("e", PAIR)]))
    guest.create(table, pa.table({"id": range(4), "at": struct}))
    assert guest.nearest(table, [2.9, 0.0], 1, column="at.e")["id"].to_pylist() == [3]


@case(KIND, *CLIENTS, causes=(10,))
def test_a_search_for_more_rows_than_there_are_gives_all(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    assert guest.nearest(table, [0.0, 0.0], 500, column="e").num_rows == 10


@case(KIND, *CLIENTS)
def test_a_vector_of_another_length_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    with refused_with("(?i)dim|numbers|length|size", errors.InvalidInputError):
        guest.nearest(table, [0.0, 0.0, 0.0], 1, column="e")


@case(KIND, LanceDBNamespace, LanceDBRemote)
def test_the_only_vector_column_need_not_be_named(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS.select(["id", "e"]))
    assert guest.nearest(table, [4.1, 0.0], 1)["id"].to_pylist() == [4]


@case(KIND, *FILES, LanceDBRemote)
def test_a_search_gives_the_columns_that_are_asked_for(guest: Guest, table: Path) -> None:
    guest.create(table, POINTS)
    found = guest.nearest(table, [4.1, 0.0], 1, column="e", columns=["id"])
    assert set(found.schema.names) <= {"id", "_distance"}
    assert found["id"].to_pylist() == [4]
