"""A statement finds the same rows in memory as on disk, and as DuckDB in a table of its own."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.engine.read import read_union
from siltstone.errors import SiltstoneError
from siltstone.local.readable import LocalReadable
from tests.nightly import by_day
from tests.query.filter_cases import VALUES, texts
from tests.query.filter_tables import opened

NAMES = [name for name in VALUES if name != "t_us"]  # two tables alone have it
TABLES = ("base", "mixed", "altered", "indexed", "flushed", "active")


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows of small tables be read as those of large ones are."""
    monkeypatch.setattr(read_union, "_MANY_ROWS", 1)


@contextmanager
def on_disk() -> Generator[None]:
    """Have statements read tables as streams, with filters, in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalReadable, "found_by", lambda _: None)
        patch.setattr("siltstone.local.snapshot._StatementTable._is_of_statement", False)
        patch.setattr("siltstone.local.transaction._ReadWholeTable._is_of_statement", False)
        yield


def answer(db: Any, text: str) -> object:
    """Return the rows of a statement; None: a value in a comparison is beyond what DuckDB has.

    Which values it compares depends on what the other condition leaves.
    """
    try:
        return db.sql(text).fetchall()
    except SiltstoneError:
        return None


# Every type


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with opened(tmp_path_factory.mktemp("memory") / "s") as store:
        for name in 3 * TABLES:
            store.sql(f'SELECT sum(id) FROM "{name}"')
        yield store


CONDITIONS = some.sampled_from(list(itertools.chain.from_iterable(map(texts, NAMES))))


@settings(max_examples=by_day(120, 3_000))
@given(
    table=some.sampled_from(TABLES),
    one=CONDITIONS,
    other=CONDITIONS,
    word=some.sampled_from(["AND", "OR"]),
)
def test_filters_of_every_type_find_the_same_rows(
    db: st.Store, table: str, one: str, other: str, word: str
) -> None:
    text = f"SELECT id FROM {table} WHERE ({one}) {word} ({other}) ORDER BY id"
    found = answer(db, text)
    with on_disk():
        assert found is None or answer(db, text) in (found, None)
    read: Any = db[table]
    assert read.found_by() is not None


@pytest.mark.parametrize("table", TABLES)
def test_all_values_are_the_same(db: st.Store, table: str) -> None:
    beyond = [name for name in NAMES if name.startswith(("ts_s_", "ts_ms_"))]  # what DuckDB has
    text = f"SELECT * EXCLUDE ({', '.join(beyond)}) FROM {table} ORDER BY id"
    found = pa.table(db.sql(text)).drop_columns(["f32", "f64"])  # NaN is not equal to itself
    with on_disk():
        assert pa.table(db.sql(text)).drop_columns(["f32", "f64"]).equals(found)


def test_rows_that_newer_ones_hide_are_neither_counted_nor_read(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"k": "int64", "g": "int64"}, primary_key="k")
        table.upsert([{"k": key, "g": 0} for key in range(10)])
        db.checkpoint()
        db.merge()
        for _ in range(3):
            assert db.sql("SELECT sum(k), count(*) FROM t").fetchall() == [(45, 10)]
        before = db.snapshot()
        table.upsert([{"k": 1, "g": 7}, {"k": 99, "g": 7}])
        table.delete([2, 3])
        for _ in range(2):
            assert db.sql("SELECT count(*) FROM t").fetchall() == [(9,)]
            assert db.sql("SELECT sum(k), sum(g) FROM t").fetchall() == [(139, 14)]
            assert db.sql("SELECT k FROM t WHERE g > 1 ORDER BY k").fetchall() == [(1,), (99,)]
            with db.transaction() as tx:
                tx["t"].delete([4])
                assert tx.sql("SELECT count(*) FROM t").fetchall() == [(8,)]
                assert tx.sql("SELECT sum(k) FROM t").fetchall() == [(135,)]
                tx.rollback()
            assert before.sql("SELECT count(*) FROM t").fetchall() == [(10,)]
            assert before.sql("SELECT sum(k), sum(g) FROM t").fetchall() == [(45, 0)]
            db.checkpoint()
            db.merge()


# A random life

STATEMENTS = [
    "SELECT count(*) AS n FROM t",
    "SELECT count(*) AS n, count() AS m FROM main.t AS x",
    "SELECT (SELECT count(*) FROM t) AS n, (SELECT max(k) FROM t) AS m",
    "SELECT (SELECT count(*) FROM t) AS n, (SELECT max(k) FROM query_table('t')) AS m",
    "WITH c AS (SELECT count(*) AS n FROM t) SELECT n FROM c WHERE n > 2",
    "SELECT count(*) AS n FROM t WHERE k >= 0 GROUP BY ALL",
    "SELECT min(k) AS a, max(k) AS z FROM t",
    "SELECT min(k) AS a, count(*) AS n FROM t",
    "SELECT g, count(*) AS n, sum(k) AS s FROM t GROUP BY g ORDER BY g NULLS FIRST",
    "SELECT k FROM t WHERE f > 0.5 ORDER BY k",
    "SELECT k FROM t WHERE f <= 'nan'::DOUBLE AND k > 3 ORDER BY k",
    "SELECT k, f FROM t ORDER BY f DESC NULLS LAST, k LIMIT 5",
    "SELECT k, g FROM t WHERE k = 7",
    "SELECT k FROM t WHERE k IN (2, 7, 11, 99) ORDER BY k",
    "SELECT k FROM t WHERE k BETWEEN 4 AND 9 AND g = 1 ORDER BY k DESC LIMIT 3",
    "SELECT x.k FROM t x JOIN t y ON x.k = y.k + 1 WHERE y.g IS NOT NULL ORDER BY x.k",
]
SCHEMA = pa.schema({"k": pa.int64(), "g": pa.int8(), "f": pa.float64()})
KEYS = some.integers(0, 15)
ROWS = some.tuples(
    some.sampled_from([None, 0, 1, 2]),
    some.sampled_from([None, float("nan"), -0.0, 0.5, 1.5, float("inf")]),
)
STEPS = some.one_of(
    some.tuples(some.just("upsert"), some.dictionaries(KEYS, ROWS, min_size=1, max_size=6)),
    some.tuples(some.just("delete"), some.sets(KEYS, min_size=1, max_size=4)),
    some.tuples(some.sampled_from(["checkpoint", "merge", "snapshot"]), some.none()),
)
Model = dict[int, tuple[Any, Any]]


def expected(native: duckdb.DuckDBPyConnection, model: Model, text: str) -> object:
    rows = [{"k": key, "g": g, "f": f} for key, (g, f) in model.items()]
    native.register("given", pa.Table.from_pylist(rows, schema=SCHEMA))
    native.execute("CREATE OR REPLACE TABLE t AS FROM given")
    return native.sql(text).fetchall()


def take(step: tuple[str, Any], table: Any, model: Model) -> None:
    kind, given_ = step
    if kind == "upsert":
        rows = [{"k": key, "g": g, "f": f} for key, (g, f) in given_.items()]
        table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
        model.update(given_)
    elif kind == "delete":
        table.delete([key for key in given_ if key in model])
        for key in given_:
            model.pop(key, None)


def check(db: Any, native: duckdb.DuckDBPyConnection, model: Model, statements: list[str]) -> None:
    for text in statements:
        assert repr(db.sql(text).fetchall()) == repr(expected(native, model, text))


@settings(max_examples=by_day(12, 300))
@given(
    steps=some.lists(STEPS, min_size=1, max_size=8),
    own=some.lists(STEPS, max_size=3),
    picked=some.lists(some.sampled_from(STATEMENTS), min_size=4, max_size=6, unique=True),
)
def test_a_statement_over_rows_wherever_they_lie_answers_as_duckdb(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, Any]],
    own: list[tuple[str, Any]],
    picked: list[str],
) -> None:
    model: Model = {}
    held = list[tuple[st.Snapshot, Model]]()
    with (
        duckdb.connect() as native,
        st.connect(Path(tmp_path_factory.mktemp("life")) / "s", background=False) as db,
    ):
        table = db.create_table("t", SCHEMA, primary_key="k")
        for step in steps:
            take(step, table, model)
            if step[0] in ("checkpoint", "merge"):
                getattr(db, step[0])()
                for _ in range(3):
                    db.sql("SELECT sum(k) FROM t")
            if step[0] == "snapshot":
                held.append((db.snapshot(), dict(model)))
        with db.transaction() as tx:
            pending = dict(model)
            for step in own:
                take(step, tx["t"], pending)
            check(tx, native, pending, picked)
            tx.rollback()
        for reader, known in [(db, model), *held]:
            check(reader, native, known, picked)
            with on_disk():
                check(reader, native, known, picked)
