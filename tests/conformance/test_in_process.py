"""In process: a dataset goes to other processes, and results are what other libraries take."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import pyarrow as pa
import pytest

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import FILES, Refusal, case
from tests.conformance.guests import Guest, Path, Pylance, PylanceInProcess
from tests.conformance.lancedb_guests import LanceDBRemote
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "pickles and results"


def counted(pickled: bytes) -> int:
    return pickle.loads(pickled).count_rows()


@case(KIND, Pylance, PylanceInProcess, LanceDBRemote, causes=(13,))
def test_a_handle_of_a_table_is_pickled(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    assert counted(pickle.dumps(guest.open(table))) == 3


@case(KIND, PylanceInProcess, causes=(13,))
def test_a_dataset_is_read_in_another_process(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    pickled = pickle.dumps(guest.db[table[0]].dataset())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(counted, (pickled,)) == 3


@case(KIND, PylanceInProcess, causes=(13,))
def test_a_pickled_dataset_keeps_its_rows_while_the_table_goes_on(
    guest: Guest, table: Path
) -> None:
    guest.create(table, ROWS)
    pickled = pickle.dumps(guest.db[table[0]].dataset())
    guest.append(table, NEW)
    assert counted(pickled) == 3


@case(KIND, PylanceInProcess, causes=(13,))
def test_a_dataset_is_seen_with_some_of_its_columns(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    some = pa.schema([("v", pa.string())])
    assert guest.db[table[0]].dataset().replace_schema(some).to_table().column_names == ["v"]


OTHER_CALL = {
    client: Refusal(
        NotImplementedError,
        "Cannot replace the schema",
        "a dataset of pylance has no other schema: name `columns` when you read, or take that of"
        " `table.dataset()`",
        by_client=True,
    )
    for client in (Pylance, PylanceInProcess)
}


@case(KIND, Pylance, PylanceInProcess, refused=OTHER_CALL, causes=(13,))
def test_a_dataset_of_pylance_is_seen_with_some_of_its_columns(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    found: Any = guest.open(table)
    found.replace_schema(pa.schema([("v", pa.string())]))


@case(KIND, PylanceInProcess, causes=(13,))
def test_results_of_sql_have_the_usual_methods(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    sql = f"select id, v from {table[0]} order by id"
    result = guest.db.sql(sql)
    assert [each[0] for each in result.description] == ["id", "v"]
    assert result.fetchone() == (1, "a")
    assert result.fetchmany(2) == [(2, "b"), (3, "c")]


@case(KIND, PylanceInProcess, causes=(13,))
def test_results_of_sql_are_frames(guest: Guest, table: Path) -> None:
    import polars as pl

    guest.create(table, ROWS)
    found = guest.db.sql(f"select id from {table[0]}")
    for frame in (found.pl(), found.to_polars(), pl.DataFrame(found)):
        assert isinstance(frame, pl.DataFrame)
        assert frame["id"].to_list() == pa.table(found)["id"].to_pylist()
        assert frame.height == 3


@case(KIND, Generated, OperationsInProcess, causes=(13,))
def test_the_rows_of_a_table_are_counted_in_its_statistics(guest: Guest, table: Path) -> None:
    guest.db.create_table(table[0], ROWS.schema).append(ROWS)
    assert guest.stats(table) == 3


@case(KIND, *FILES)
def test_rows_are_read_in_batches(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    handle = guest.open(table)
    if hasattr(handle, "to_batches"):
        assert sum(batch.num_rows for batch in handle.to_batches(batch_size=1)) == 3
    else:
        assert sum(batch.num_rows for batch in handle.search().to_batches(1)) == 3
