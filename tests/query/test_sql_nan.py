"""SQL ranks NaN as DuckDB does, whether a filter is pushed into the scan or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.engine.filter.nan_order import ranked
from tests.nightly import by_day
from tests.query.scannable import Recording, result_of

NAN = float("nan")
ROWS = pa.table(
    {
        "id": range(1, 8),
        "f": pa.array([1.0, NAN, -0.0, 0.0, None, float("inf"), -2.0]),
        "g": pa.array([NAN, 0.5, NAN, 2.0, 1.0, None, -0.0], pa.float32()),
        "s": [{"x": value} for value in (NAN, 1.0, None, -0.0, 0.0, 3.0, NAN)],
        "k": [True, False, None, True, False, None, True],
    }
)
SIGNS, VALUES = ("<", "<=", ">", ">=", "=", "<>"), ("0.5", "0.0", "-0.0", "'inf'", "'nan'")
COMPARED = [
    f"{column} {sign} {value}::{kind}"
    for (column, kind), sign, value in itertools.product(
        (("f", "double"), ("g", "float"), ("s.x", "double")), SIGNS, VALUES
    )
]
CONDITIONS = [
    *COMPARED,
    *(f"NOT ({each})" for each in COMPARED),
    "f BETWEEN 0.5 AND 'nan'::double", "'nan'::double >= f", "f <= 'nan'::double AND id > 2",
    "f <= (SELECT max(f) FROM t)", "id IN (SELECT id FROM t WHERE s.x <= 'nan'::double)",
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
    assert found == [id_ for (id_,) in native.execute(text).fetchall()]


COMPARISONS = some.one_of(
    some.sampled_from(CONDITIONS),
    some.sampled_from([c for c in CONDITIONS if "nan" in c]),
    some.sampled_from(["k", "k = true", "id > 3", "f IS NULL"]),
)
COMBINED = some.recursive(
    COMPARISONS,
    lambda inner: some.one_of(
        inner.map("NOT ({})".format),
        some.tuples(inner, inner).map(lambda two: "({}) AND ({})".format(*two)),
        some.tuples(inner, inner).map(lambda two: "({}) OR ({})".format(*two)),
    ),
    max_leaves=4,
)


@settings(max_examples=by_day(20, 60), deadline=None)
@given(COMBINED)
def test_combined_filters_of_floats_find_the_rows_that_duckdb_finds_in_a_table_of_its_own(
    db: st.Store, native: duckdb.DuckDBPyConnection, condition: str
) -> None:
    text = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    found = pa.table(db.sql(text)).column("id").to_pylist()
    assert found == [id_ for (id_,) in native.execute(text).fetchall()]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.id, b.id FROM t a JOIN t b ON a.f = b.f ORDER BY ALL",
        "SELECT a.id, b.id FROM t a JOIN t b ON a.s.x = b.f ORDER BY ALL",
        "SELECT a.id FROM t a LEFT JOIN t b ON a.f <= b.f AND b.g <= 'nan'::float ORDER BY ALL",
        "SELECT id FROM t WHERE id > 0 UNION ALL SELECT id + 9 FROM t WHERE g <= 'nan' ORDER BY 1",
        "SELECT count(*) FILTER (f <= 'nan'::double), count(*) FROM t WHERE g <= 'nan'::float",
    ],
)
def test_statements_over_floats_answer_as_over_a_table_of_duckdb(
    db: st.Store, native: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert db.sql(text).fetchall() == native.execute(text).fetchall()


def test_a_filter_that_comes_after_the_first_rows_finds_its_rows_too() -> None:
    many = pa.table(
        {
            "id": pa.array(range(80_000), pa.int64()),
            "f": pa.array([None, NAN, 1.0, -0.0] * 20_000),
        }
    )
    text = (
        "SELECT id FROM t WHERE id < 60000 UNION ALL SELECT id FROM t WHERE f <= 'nan'::double"
        " UNION ALL SELECT a.id FROM t a JOIN (SELECT unnest([1.0, 'nan'::double]) AS f) b"
        " ON a.f = b.f"
    )
    reader = result_of(text, lambda _: Recording(many), ["t"]).fetchall()
    assert len(reader) == 60_000 + 60_000 + 40_000


def test_a_boolean_column_is_pushed_and_read_once() -> None:
    read = Recording(ROWS)
    text = "SELECT id FROM t WHERE k = true AND f <= 7 ORDER BY id"
    assert result_of(text, lambda _: read, ["t"]).fetchall() == [(1,), (4,), (7,)]
    assert len(read.calls) == 1
    assert "k == true" in read.calls[0][1]


def test_an_expression_without_floats_or_of_an_unknown_form_stays_as_it_is() -> None:
    schema = ROWS.schema
    for one in (pc.field("id") > 3, pc.field("id").isin([1, 2]), pc.field("f") * 2 > 1.0):
        assert ranked(one, schema).equals(one)
