"""A filter finds the rows that DuckDB finds, also one that it cannot push into a scan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import siltstone as st
from tests.query.scannable import Recording, result_of
from tests.server.stores import opened

YEARS = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2020, 2021, 2022)]
NANOS = [1_577_836_800_000_000_001, 1_577_836_800_000_000_002, 1_577_836_800_000_000_000]
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "ts": pa.array(YEARS, pa.timestamp("us", "UTC")),
        "place": pa.array(YEARS, pa.timestamp("ms", "Europe/Berlin")),
        "u": pa.array([1, 2**63, 2**64 - 1], pa.uint64()),
        "ns": pa.array(NANOS, pa.timestamp("ns")),
        "tn": pa.array([1001, 1002, 1000], pa.time64("ns")),
        "nz": pa.array(NANOS, pa.timestamp("ns", "UTC")),  # microseconds in DuckDB
        "f": [1.0, float("nan"), None],
        "s": [{"x": float("nan"), "u": 1}, {"x": 1.0, "u": 2}, None],
        "deep": pa.array(
            [{"in": {"u": 2**63, "ns": NANOS[0], "ts": YEARS[0], "tn": 1001}}, {"in": None}, None],
            pa.struct(
                [
                    (
                        "in",
                        pa.struct(
                            [
                                ("u", pa.uint64()),
                                ("ns", pa.timestamp("ns")),
                                ("tn", pa.time64("ns")),
                                ("ts", pa.timestamp("us", "UTC")),
                            ]
                        ),
                    )
                ]
            ),
        ),
    }
)
FIRST, LAST = "'2020-01-01T00:00:00Z'", "'2022-01-01T00:00:00Z'"
NS = "'2020-01-01 00:00:00.00000000{}'::TIMESTAMP_NS"
CONDITIONS = [
    *(f"{name} IN ({FIRST}, {LAST})" for name in ("ts", "place")),
    f"ts NOT IN ({FIRST}, {LAST})", f"ts IN ({FIRST}, NULL)", f"ts = {FIRST} OR ts = {LAST}",
    f"ts IS NOT DISTINCT FROM {FIRST}", f"ts BETWEEN {FIRST} AND '2021-06-01T00:00:00Z'",
    f"ts = ANY([{FIRST}::TIMESTAMPTZ, {LAST}])", f"ts IN ({FIRST}, {LAST}) AND id IN (1, 2)",
    f"ts IN (SELECT unnest([{FIRST}::TIMESTAMPTZ, {LAST}]))",
    "u IN (1, 18446744073709551615)", "u IN (9223372036854775808, 18446744073709551615)",
    "u = 18446744073709551615", "u IS NOT DISTINCT FROM 18446744073709551615", "u IN (1, 2)",
    "u IN (SELECT unnest([1::UBIGINT, 18446744073709551615]))",
    f"ns IN ({NS.format(1)}, {NS.format(5)})", f"ns IN ({NS.format(0)}, {NS.format(2)})",
    f"ns = {NS.format(2)}", f"ns > {NS.format(1)}",
    f"ns IN ({NS.format(1)}, {NS.format(5)}) OR u = 18446744073709551615",
    "tn IN ('00:00:00.000001001'::TIME_NS, '00:00:01'::TIME_NS)",
    "tn = '00:00:00.000001002'::TIME_NS", "tn > '00:00:00.000001001'::TIME_NS",
    "deep.in.u IN (1, 9223372036854775808)", f"deep.in.ts IN ({FIRST}, {LAST})",
    f"deep.in.ns IN ({NS.format(1)}, {NS.format(5)})", f"deep.in.ns IN ({NS.format(0)})",
    "deep.in.tn = '00:00:00.000001001'::TIME_NS", f"deep.in.ns = {NS.format(1)}",
    f"nz = {FIRST}", f"nz > {FIRST}", f"nz <= {FIRST} AND id > 1", f"nz IN ({FIRST}, {LAST})",
    "f > 0.5", "s.x > 0.5", "f IN ('nan'::DOUBLE, 3)", "s.u IN (1, 5)",
]  # fmt: skip
NAMES = ["t", "sales.t"]


@pytest.fixture(scope="module")
def native() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.register("given", ROWS)
    connection.execute("CREATE TABLE t AS FROM given")
    yield connection
    connection.close()


def _ids(connection: duckdb.DuckDBPyConnection, text: str) -> list[int]:
    return [id_ for (id_,) in connection.execute(text).fetchall()]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_any_type_finds_the_rows_that_duckdb_finds(
    native: duckdb.DuckDBPyConnection, condition: str
) -> None:
    text = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    wanted = [(id_,) for id_ in _ids(native, text)]
    frame = ROWS
    assert result_of(text, lambda _: Recording(ROWS), NAMES).fetchall() == wanted
    in_namespace = text.replace("FROM t", "FROM sales.t")
    assert result_of(in_namespace, lambda _: Recording(ROWS), NAMES).fetchall() == wanted
    of_frame = text.replace("FROM t", "FROM frame")
    given = {"frame": frame}
    found = result_of(of_frame, lambda _: None, [], variables=given.get)
    assert found.fetchall() == wanted


def test_a_join_of_few_keys_that_cannot_be_pushed_finds_its_rows() -> None:
    text = (
        "WITH k AS MATERIALIZED (SELECT unnest([1::UBIGINT, 18446744073709551615]) AS u)"
        " SELECT id FROM t JOIN k USING (u) ORDER BY id"
    )
    assert result_of(text, lambda _: Recording(ROWS), NAMES).fetchall() == [(1,), (3,)]


def test_only_what_cannot_be_pushed_stays_with_duckdb() -> None:
    pushed = Recording(ROWS)
    result_of(f"SELECT id FROM t WHERE ts > {FIRST} AND u = 1", lambda _: pushed, NAMES)
    assert "ts > " in pushed.calls[0][1]
    assert "u == 1" in pushed.calls[0][1]
    shielded = Recording(ROWS)
    text = "SELECT id FROM t WHERE u IN (1, 18446744073709551615) AND id > 1"
    assert result_of(text, lambda _: shielded, NAMES).fetchall() == [(3,)]
    (pushed_with_list,) = (call[1] for call in shielded.calls)
    if int(duckdb.__version__.split(".")[0]) < 2:
        assert pushed_with_list == "(id > 1)"
    else:  # it pushes lists of such numbers as they are
        assert "is_in(u, " in pushed_with_list
        assert "id > 1" in pushed_with_list


@pytest.mark.parametrize(
    "condition", ["h IN (0.5::FLOAT, 2::FLOAT)", "h = 0.5::FLOAT", "h > 1::FLOAT", "s.h = 2::FLOAT"]
)
def test_no_filter_of_a_shielded_column_is_pushed(condition: str) -> None:
    halves = pa.array([0.5, 2.0, None], pa.float16())
    rows = pa.table({"h": halves, "s": pa.StructArray.from_arrays([halves], ["h"])})
    recorded = Recording(rows)
    assert len(result_of(f"SELECT h FROM t WHERE {condition}", lambda _: recorded, ["t"])) >= 1
    assert [call[1] for call in recorded.calls] == ["None"]


@pytest.mark.parametrize("condition", ["f IN (0.0, 7)", "f IN ('nan'::DOUBLE, 7)", "f >= 7"])
def test_a_filter_of_a_frame_ranks_floats_as_duckdb_does(
    native: duckdb.DuckDBPyConnection, condition: str
) -> None:
    frame = pa.table({"id": [1, 2, 3, 4], "f": [-0.0, 7.0, float("nan"), None]})
    text = f"SELECT id FROM frame WHERE {condition} ORDER BY id"
    found = result_of(text, lambda _: None, [], variables={"frame": frame}.get)
    native.register("rows", frame)
    native.execute("CREATE OR REPLACE TABLE frame AS FROM rows")
    assert found.fetchall() == [(id_,) for id_ in _ids(native, text)]


def test_the_rows_of_a_reader_and_of_a_store_are_found_too(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", ROWS.schema, primary_key="u")
        table.insert(ROWS)
        text = f"SELECT id FROM t WHERE ts IN ({FIRST}, {LAST}) ORDER BY id"
        assert db.sql_reader(text).read_all().column("id").to_pylist() == [1, 3]
        db.checkpoint()
        db.merge()
        with db.snapshot() as now:
            assert now.sql(text).fetchall() == [(1,), (3,)]
            keys = "SELECT id FROM t WHERE u IN (1, 18446744073709551615) ORDER BY id"
            assert now.sql(keys).fetchall() == [(1,), (3,)]


def test_tables_are_joined_by_uuids(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        for name in ("a", "b"):
            db.sql(f"create table {name} (k uuid primary key, v bigint)")
        db.sql("insert into a select uuid(), range from range(5)")
        db.sql("insert into b from a")
        found = db.sql("select a.v from a join b on a.k = b.k where b.v > 2 order by 1")
        assert found.fetchall() == [(3,), (4,)]
        found = db.sql("select v from a where k in (select k from b where v = 1)")
        assert found.fetchall() == [(1,)]
