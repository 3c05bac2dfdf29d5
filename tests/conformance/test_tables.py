"""Tables: they are made whole or not at all, replaced, renamed, dropped, and lie where they say."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import CLIENTS, FILES, case, refused_with
from tests.conformance.guests import Guest, Path, Pylance, PylanceInProcess
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "tables"
MODELS = (Pylance, Generated, PylanceInProcess, OperationsInProcess)
"""The clients that have the models of the specification."""


@case(KIND, *CLIENTS)
def test_a_table_is_made_with_rows_and_read_back(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    assert guest.rows(table).sort_by("id").to_pylist() == ROWS.to_pylist()
    assert guest.schema(table).names == ["id", "v", "e"]
    assert guest.db[table[0]].to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


@case(KIND, LanceDBNamespace, LanceDBRemote)
def test_a_table_is_made_of_its_columns_alone(guest: Guest, table: Path) -> None:
    guest.create_empty(table, ROWS.schema)
    assert guest.count(table) == 0
    guest.append(table, ROWS)
    assert guest.count(table) == 3


@case(KIND, *MODELS)
def test_a_declared_table_gets_its_columns_with_its_first_rows(guest: Guest, table: Path) -> None:
    guest.declare(table)
    assert guest.has_table(table)
    guest.create(table, ROWS, mode="overwrite")
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_a_table_is_not_made_over_another(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("already", errors.TableAlreadyExistsError):
        guest.create(table, NEW)
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_a_table_is_replaced_when_that_is_asked_for(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.create(table, pa.table({"other": ["x"]}), mode="overwrite")
    assert guest.rows(table).to_pylist() == [{"other": "x"}]


@case(KIND, *CLIENTS)
def test_a_dropped_table_is_gone_and_its_name_is_free(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.drop(table)
    assert table[0] not in guest.list_tables([])
    guest.create(table, NEW)
    assert guest.count(table) == 1


@case(KIND, *(each for each in CLIENTS if hasattr(each, "has_table")))
def test_whether_a_table_exists_is_told(guest: Guest, table: Path) -> None:
    assert not guest.has_table(table)
    guest.create(table, ROWS)
    assert guest.has_table(table)


@case(KIND, *CLIENTS)
def test_a_renamed_table_keeps_its_rows(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.rename(table, f"{table[0]}new")
    assert guest.count([f"{table[0]}new"]) == 3
    assert table[0] not in guest.list_tables([])


@case(KIND, *CLIENTS)
def test_a_table_is_not_renamed_to_one_that_exists(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.create([f"{table[0]}b"], NEW)
    with refused_with("already", errors.TableAlreadyExistsError):
        guest.rename(table, f"{table[0]}b")
    assert [guest.count(table), guest.count([f"{table[0]}b"])] == [3, 1]


@case(KIND, *MODELS)
def test_a_deregistered_table_is_no_longer_listed(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.deregister(table)
    assert table[0] not in guest.list_tables([])


@case(KIND, LanceDBRemote, causes=(6,))
def test_a_remote_table_is_opened_as_a_dataset(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.db.checkpoint()
    assert lance.dataset(guest.open(table).uri).count_rows() == 3


@case(KIND, *MODELS, causes=(6,))
def test_a_declared_table_lies_where_every_answer_says(guest: Guest, table: Path) -> None:
    told = guest.declare(table)
    assert guest.location(table) == told
    assert guest.drop(table) == told


@case(KIND, *MODELS, causes=(6,))
def test_a_table_with_rows_lies_where_every_answer_says(guest: Guest, table: Path) -> None:
    told = guest.create(table, ROWS) or guest.location(table)
    guest.db.checkpoint()
    guest.db.merge()  # which gives the versions their names for readers of the path
    assert lance.dataset(told).count_rows() == 3
    assert guest.location(table) == told
    assert guest.drop(table) == told


@case(KIND, *CLIENTS)
def test_rows_are_appended_and_replaced(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    assert guest.count(table) == 4
    guest.overwrite(table, NEW)
    assert guest.rows(table, ["id"]).to_pylist() == [{"id": 9}]


@case(KIND, *CLIENTS)
def test_rows_are_updated_and_deleted_by_a_filter(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.update(table, "id >= 2", v="upper(v)")
    guest.delete(table, "id = 3")
    assert guest.rows(table, ["v"]).sort_by("v").to_pylist() == [{"v": "B"}, {"v": "a"}]


@case(KIND, *CLIENTS)
def test_a_number_is_updated_by_an_expression_of_itself(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.update(table, "id = 3", id="id * 10 + 1")
    assert sorted(guest.rows(table, ["id"])["id"].to_pylist()) == [1, 2, 31]


@case(KIND, LanceDBNamespace, LanceDBRemote, causes=(8,))
def test_a_vector_is_updated_by_its_value(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.set_values(table, "id = 2", e=[7.0, 8.0])
    assert guest.rows(table, ["e"], "id = 2").to_pylist() == [{"e": [7.0, 8.0]}]


@case(KIND, LanceDBNamespace, LanceDBRemote)
def test_a_text_with_quotes_is_updated_by_its_value(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.set_values(table, "id = 2", v='it\'s "so"')
    assert guest.rows(table, ["v"], "id = 2").to_pylist() == [{"v": 'it\'s "so"'}]


@case(KIND, *FILES, LanceDBRemote)
def test_files_of_a_table_are_compacted(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    guest.compact(table)
    assert guest.count(table) == 4
