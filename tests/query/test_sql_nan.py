"""SQL ranks NaN as DuckDB does, whether a filter is pushed into the scan or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.filter.nan_order import ranked

NAN = float("nan")
ROWS = pa.table(
    {
        "id": range(1, 8),
        "f": pa.array([1.0, NAN, -0.0, 0.0, None, float("inf"), -2.0]),
        "g": pa.array([NAN, 0.5, NAN, 2.0, 1.0, None, -0.0], pa.float32()),
        "s": [{"x": value} for value in (NAN, 1.0, None, -0.0, 0.0, 3.0, NAN)],
    }
)
SIGNS, VALUES = ("<", "<=", ">", ">=", "=", "<>"), ("0.5", "0.0", "-0.0", "'inf'", "'nan'")
# DuckDB pushes `x <= 'nan'` as "true", so a null passes: it is no answer to compare with.
COMPARED = [
    f"{column} {sign} {value}::double"
    for column, sign, value in itertools.product(("f", "s.x"), SIGNS, VALUES)
    if (sign, value) != ("<=", "'nan'")
]
CONDITIONS = [
    *COMPARED,
    *(f"NOT ({each})" for each in COMPARED if "> 'nan'" not in each),
    "g > 0.5::float", "g IN (0.5::float, 0.0::float)", "g = 'nan'::float",
    "f IN (0.0, 7)", "f IN (-0.0, 'nan'::double)", "f NOT IN (0.0, 7)", "f IN (0.0, NULL)",
    "f BETWEEN 0.5 AND 'inf'::double", "f > 0.5 OR id > 100", "f > 0.5 AND g > 0.5::float",
    "f + 0 > 0.5", "0.5 < f", "f IS NOT NULL AND f > 0.5", "f = g",
]  # fmt: skip


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("nan") / "s"
    with st.connect(path, background=False) as store:
        table = store.create_table("t", ROWS.schema, primary_key="id")
        table.upsert(ROWS.slice(0, 4))
        store.checkpoint()
        store.merge()
        table.upsert(ROWS.slice(4))
        yield store


@pytest.fixture(scope="module")
def native() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.register("given", ROWS)
    connection.execute("CREATE TABLE t AS FROM given")
    yield connection
    connection.close()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_floats_finds_the_rows_that_duckdb_finds_in_a_table_of_its_own(
    db: st.Store, native: duckdb.DuckDBPyConnection, condition: str
) -> None:
    text = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    found = pa.table(db.sql(text)).column("id").to_pylist()
    assert found == native.execute(text).to_arrow_table().column("id").to_pylist()


def test_an_expression_without_floats_or_of_an_unknown_form_stays_as_it_is() -> None:
    schema = ROWS.schema
    for given in (pc.field("id") > 3, pc.field("id").isin([1, 2]), pc.field("f") * 2 > 1.0):
        assert ranked(given, schema).equals(given)
