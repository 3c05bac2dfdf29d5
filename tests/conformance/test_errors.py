"""Errors: what is wrong is told by one sentence and the specification's class; nothing changes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import CLIENTS, FILES, STATEMENTS, case, refused_with
from tests.conformance.guests import Guest, Path, Pylance, PylanceInProcess
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "errors"
MODELS = (Pylance, Generated, PylanceInProcess, OperationsInProcess)


@case(KIND, *CLIENTS)
def test_a_table_that_is_not_there_is_named(guest: Guest, table: Path) -> None:
    with refused_with(f"{table[0]}|not found", errors.TableNotFoundError):
        guest.count(table)
    with refused_with(f"{table[0]}|not found", errors.TableNotFoundError):
        guest.drop(table)


@case(KIND, *CLIENTS)
def test_a_filter_on_a_column_that_is_not_there_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("nowhere"):
        guest.rows(table, where="nowhere = 1", limit=9)


@case(KIND, *CLIENTS)
def test_a_filter_that_is_no_sql_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("id >|sql parser|parse", errors.InvalidInputError):
        guest.rows(table, where="id >", limit=9)


@case(KIND, *CLIENTS)
def test_a_delete_by_a_filter_that_is_wrong_deletes_nothing(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("nowhere|No field|column"):
        guest.delete(table, "nowhere = 1")
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_rows_of_other_columns_are_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("other|schema|Schema", errors.TableSchemaValidationError):
        guest.append(table, pa.table({"other": [1]}))
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_rows_of_another_type_are_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    wrong = NEW.set_column(0, "id", pa.array(["nine"]))
    with refused_with("id|[Ss]chema|cast", errors.TableSchemaValidationError):
        guest.append(table, wrong)
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_an_update_of_a_column_that_is_not_there_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("nowhere|was not found"):
        guest.update(table, "id = 1", nowhere="1")
    assert guest.schema(table).names == ["id", "v", "e"]


@case(KIND, *CLIENTS)
def test_columns_that_are_not_there_are_not_read(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("nowhere"):
        guest.rows(table, ["nowhere"], limit=9)


@case(KIND, *MODELS)
def test_a_table_elsewhere_is_not_registered(guest: Guest, table: Path) -> None:
    with refused_with("(?i)store|supported", errors.UnsupportedOperationError):
        guest.register(table, "elsewhere")
    assert not guest.has_table(table)


@case(KIND, *STATEMENTS)
def test_branches_are_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("(?i)branch|line of versions|supported", errors.UnsupportedOperationError):
        guest.create_branch(table, "try")
    assert guest.list_branches(table) == []


@case(KIND, *FILES)
def test_rows_of_a_keyed_table_are_not_written_as_files(guest: Guest, table: Path) -> None:
    keyed = guest.db.create_table(table[0], ROWS.schema, primary_key="id")
    keyed.upsert(ROWS)
    guest.db.checkpoint()
    guest.db.merge(table[0])
    with refused_with("unknown"):
        guest.append(table, NEW)
    assert keyed.count() == 3
