"""A statement sees nothing of another one, also in the DuckDB that the other one left."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import RequestError, SiltstoneError
from siltstone.options import SqlBounds
from siltstone.process import deadline
from siltstone.process.spares import Spares
from siltstone.query.sql import half_floats, sql
from siltstone.query.sql.duckdbs.instances import Instance
from siltstone.query.sql.duckdbs.watch import watched_count
from siltstone.query.sql.statement import Statement
from tests.query.scannable import Recording

BOUNDS = SqlBounds(memory_bytes_max=80 << 20, temp_bytes_max=64 << 20, threads_max=2)
ROWS = pa.table({"id": [1, 2, 3], "half": pa.array([1, 2, 3], pa.float16())})
NAMES = ["t", "sales.lines"]
IDS = pa.table({"id": [1, 2, 3]})

SEEN = """
SELECT 'setting' AS kind, name || '=' || coalesce(value, '') AS what FROM duckdb_settings()
UNION ALL SELECT 'variable', name FROM duckdb_variables()
UNION ALL SELECT 'prepared', name FROM duckdb_prepared_statements()
UNION ALL SELECT 'schema', schema_name FROM duckdb_schemas() WHERE NOT internal
UNION ALL SELECT 'table', table_name FROM duckdb_tables()
UNION ALL SELECT 'view', view_name FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT 'sequence', sequence_name FROM duckdb_sequences()
UNION ALL SELECT 'type', type_name FROM duckdb_types() WHERE NOT internal
UNION ALL SELECT 'function', function_name FROM duckdb_functions() WHERE NOT internal
UNION ALL SELECT 'database', database_name FROM duckdb_databases()
UNION ALL SELECT 'secret', name FROM duckdb_secrets()
UNION ALL SELECT 'log', message FROM duckdb_logs
UNION ALL SELECT 'file', path FROM duckdb_temporary_files()
UNION ALL SELECT 'path', current_setting('search_path') || current_schema() || current_database()
UNION ALL SELECT 'optimizer', current_setting('disabled_optimizers')
UNION ALL SELECT 'connections', count::VARCHAR FROM duckdb_connection_count()
ORDER BY ALL
"""
"""All that one statement could leave to another one."""

WAYS = [
    "SET threads = 1",
    "SET GLOBAL memory_limit = '1GB'",
    "SET SESSION search_path = 'temp'",
    "RESET threads",
    "SET VARIABLE mine = 7",
    "PRAGMA disable_optimizer",
    "PRAGMA enable_profiling",
    "USE temp",
    "CREATE TEMP TABLE mine AS SELECT * FROM t",
    "CREATE TEMP VIEW mine AS SELECT * FROM t",
    "CREATE OR REPLACE VIEW t AS SELECT 9 AS id",
    "CREATE TEMP MACRO mine() AS 1",
    "CREATE SEQUENCE mine",
    "CREATE TYPE mine AS ENUM ('a')",
    "CREATE SECRET mine (TYPE http)",
    "CREATE SCHEMA mine",
    "PREPARE mine AS SELECT 1",
    "ATTACH ':memory:' AS mine",
    "LOAD json",
    "BEGIN TRANSACTION",
    "INSERT INTO t VALUES (4)",
    "EXPLAIN ANALYZE CREATE VIEW mine AS SELECT 1",
    "EXPLAIN ANALYZE SET threads = 1",
    "SELECT * FROM enable_logging(level := 'trace')",
    "SELECT * FROM query('SELECT * FROM enable_logging()')",
    "SELECT write_log('mine', level := 'error')",
    "SELECT * FROM enable_profiling()",
    "SELECT setseed(0.25), random()",
    "SELECT * FROM t, sales.lines",
    "SELECT id FROM t WHERE half <= 'nan'::FLOAT",
    "SELECT CASE WHEN id = 3 THEN error('mine') ELSE id END FROM t",
    "SELECT * FROM nowhere",
    "SELECT list(range) FROM range(100_000_000)",
    "SELECT range FROM range(3_000_000) ORDER BY hash(range), range",
    "SELECT id::mine FROM t",
    "WITH mine AS (SELECT 1 AS id) SELECT * FROM mine",
    "WITH mine AS (INSERT INTO t VALUES (4) RETURNING id) SELECT * FROM mine",
    "WITH mine AS (UPDATE t SET id = 9 RETURNING id) SELECT * FROM mine",
]


@pytest.fixture
def spares() -> Iterator[Spares]:
    made = Spares(4)
    yield made
    made.close()


def run(spares: Spares, text: str, **more: Any) -> pa.Table:
    return sql.read(
        text, lambda _: Recording(ROWS), NAMES, bounds=BOUNDS, spares=spares, **more
    ).read_all()


def seen_alone() -> set[tuple[str, str]]:
    return as_set(run(Spares(0), SEEN))


def as_set(found: pa.Table) -> set[tuple[str, str]]:
    """Return what was seen, without the folder, which has another name each time."""
    rows = {(row["kind"], row["what"]) for row in found.to_pylist()}
    return {row for row in rows if "siltstone-sql-" not in row[1]}


@pytest.mark.parametrize("text", WAYS)
def test_a_statement_leaves_nothing_that_the_next_one_sees(spares: Spares, text: str) -> None:
    run(spares, "SELECT 1")
    with contextlib.suppress(SiltstoneError):
        run(spares, text)
    assert as_set(run(spares, SEEN)) == seen_alone()
    assert run(spares, "SELECT count(*) AS n, sum(id) AS s FROM t").to_pylist() == [
        {"n": 3, "s": 6}
    ]
    assert len(spares) == 1


@pytest.mark.parametrize("parameters", [[5], {"mine": 5}])
def test_parameters_are_of_one_statement(spares: Spares, parameters: Any) -> None:
    mark = "?" if isinstance(parameters, list) else "$mine"
    assert run(spares, f"SELECT {mark} AS x", parameters=parameters)["x"].to_pylist() == [5]
    with pytest.raises(RequestError):
        run(spares, f"SELECT {mark}")


def test_the_seed_of_random_numbers_is_of_one_statement(spares: Spares) -> None:
    found = set[float]()
    for _ in range(3):
        run(spares, "SELECT setseed(0.25)")
        found.add(run(spares, "SELECT random() AS r")["r"][0].as_py())
    assert len(found) == 3


def test_a_name_with_a_schema_means_the_table_of_its_own_statement(spares: Spares) -> None:
    for number in (1, 2, 3):
        rows = Recording(pa.table({"id": [number]}))
        for name in ("sales.lines", '"sales.lines"', "other.lines"):
            found = sql.read(
                f"SELECT id FROM {name}",
                lambda _, rows=rows: rows,
                ["sales.lines", "other.lines"],
                bounds=BOUNDS,
                spares=spares,
            )
            assert found.read_all()["id"].to_pylist() == [number]
    assert len(spares) == 1


def test_a_table_of_the_statement_before_is_unknown(spares: Spares) -> None:
    run(spares, "SELECT * FROM t, sales.lines")
    for name in ("t", "sales.lines", '"_shielded t"', "temp.main.t"):
        with pytest.raises(RequestError):
            sql.read(f"SELECT * FROM {name}", lambda _: None, [], bounds=BOUNDS, spares=spares)


# Statements that do not end as they began


def test_a_statement_whose_time_is_over_stops_no_later_one(spares: Spares) -> None:
    over = deadline.Deadline(0.1, lambda: True)
    with deadline.within(over), pytest.raises(RequestError, match=r"longer than 0\.1 s"):
        run(
            spares,
            "SELECT count(*) FROM range(90000) a, range(90000) b WHERE a.range + b.range < 0",
        )
    for _ in range(3):
        assert as_set(run(spares, SEEN)) == seen_alone()


def test_rows_that_nobody_reads_to_the_end_are_made_no_more(spares: Spares) -> None:
    text = "SELECT range AS i, repeat('x', 1000) AS x FROM range(1_000_000_000)"
    gc.collect()  # readers of other tests, which the process still has
    before = watched_count()
    reader = sql.read(text, lambda _: None, [], bounds=BOUNDS, spares=spares)
    reader.read_next_batch()
    assert watched_count() == before + 1
    del reader
    assert watched_count() == before
    assert as_set(run(spares, SEEN)) == seen_alone()


def test_a_statement_that_is_read_has_its_duckdb_to_itself(spares: Spares) -> None:
    reader = sql.read("SELECT range FROM range(50_000)", lambda _: None, [], spares=spares)
    first = reader.read_next_batch()
    for _ in range(2):
        assert as_set(run(spares, SEEN)) == seen_alone()
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 50_000
    assert len(spares) == 2


# What is not kept


def left_by(leave: Callable[[Statement], object]) -> int:
    """Return how many DuckDBs are kept after a statement that leaves something."""
    spares = Spares(4)
    statement = Statement(BOUNDS, lambda: None, [], spares)
    leave(statement)
    statement.close()
    count = len(spares)
    spares.close()
    return count


def test_an_empty_one_is_kept() -> None:
    assert left_by(lambda _: None) == 1


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE x (i INT)",
        "CREATE VIEW x AS SELECT 1",
        "CREATE SCHEMA x",
        "CREATE SEQUENCE x",
    ],
)
def test_one_with_something_in_its_catalog_is_not_kept(text: str) -> None:
    assert left_by(lambda statement: statement.connection.execute(text)) == 0


def test_one_that_holds_much_memory_is_not_kept() -> None:
    instance = Instance(BOUNDS)
    assert instance.is_empty()
    rows = "CREATE TEMP TABLE x AS SELECT hash(range) AS h FROM range(8_000_000)"
    other = instance.connection()
    other.execute(rows)
    assert not instance.is_empty()
    instance.end()


def test_one_with_a_file_in_its_folder_is_not_kept_and_the_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def leave(_: Statement) -> None:
        (folder,) = tmp_path.iterdir()
        (folder / "spilled").write_bytes(b"rows")

    assert left_by(leave) == 0
    assert list(tmp_path.iterdir()) == []


def test_one_whose_folder_cannot_be_made_again_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spares: Spares
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held = Statement(BOUNDS, lambda: None, [], spares)
    (folder,) = tmp_path.iterdir()
    held.close()
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()  # of another user
    (folder / "mine").touch()
    assert run(spares, "SELECT 1 AS x")["x"].to_pylist() == [1]
    assert (folder / "mine").exists()


def test_not_more_are_kept_than_the_bound_says() -> None:
    spares = Spares(2)
    many = [Statement(BOUNDS, lambda: None, [], spares) for _ in range(4)]
    for each in many:
        each.close()
    assert len(spares) == 2
    spares.close()
    assert len(spares) == 0


def test_those_kept_are_no_reason_to_refuse_a_fork() -> None:
    """DuckDB 1.5.0 maps four fifths of the memory for each; Linux forks no map above all of it."""
    before = mapped_bytes()
    spares = Spares(4)
    many = [Statement(BOUNDS, lambda: None, [], spares) for _ in range(4)]
    mapped = mapped_bytes() - before
    for each in many:
        each.close()
    spares.close()
    assert mapped < 2 << 30


def mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_one_that_comes_back_to_closed_spares_is_ended() -> None:
    spares = Spares(2)
    statement = Statement(BOUNDS, lambda: None, [], spares)
    spares.close()
    statement.close()
    assert len(spares) == 0


# A store


def test_a_store_keeps_few_and_ends_them_as_it_closes(tmp_path: Path) -> None:
    gc.collect()
    before = duckdbs()
    db = st.connect(tmp_path / "s", background=False)
    db.create_table("t", {"id": "int64"}, primary_key="id").upsert(IDS)
    readers = [db.sql_reader("SELECT id FROM t ORDER BY id") for _ in range(6)]
    assert duckdbs() == before + 6
    assert [reader.read_all()["id"].to_pylist() for reader in readers] == [[1, 2, 3]] * 6
    assert duckdbs() == before + 4
    with db.transaction() as tx:
        assert tx.sql("SELECT count(*) FROM t").fetchall() == [(3,)]
    with db.snapshot() as past:
        assert past.sql("SELECT count(*) FROM t").fetchall() == [(3,)]
    late = db.sql_reader("SELECT * FROM range(1_000_000)")
    db.close()
    del late
    assert duckdbs() == before


def duckdbs() -> int:
    return sum(isinstance(each, Instance) for each in gc.get_objects())


def test_threads_share_what_is_kept(tmp_path: Path) -> None:
    found = list[list[tuple[Any, ...]]]()
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert(IDS)

        def ask(number: int) -> None:
            for each in range(20):
                text = f"SELECT sum(id) + {number} + {each} FROM t"
                found.append([*db.sql(text).fetchall(), (number + each,)])

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 120
    assert all(total == 6 + added for (total,), (added,) in found)


def test_the_child_of_a_fork_begins_with_its_own(spares: Spares) -> None:
    run(spares, "SELECT * FROM t, sales.lines")
    assert len(spares) == 1
    child = os.fork()
    if not child:
        try:
            is_right = not len(spares) and run(spares, "SELECT sum(id) AS s FROM t")["s"][0].as_py()
            spares.close()
            os._exit(0 if is_right == 6 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(spares, "SELECT sum(id) AS s FROM t")["s"].to_pylist() == [6]


def test_the_child_of_a_fork_leaves_the_files_of_a_statement_alone(tmp_path: Path) -> None:
    bounds = {"sql_memory_bytes_max": 80 << 20, "sql_temp_bytes_max": 1 << 30}
    with st.connect(tmp_path / "s", background=False, **bounds) as db:
        rows = db.sql_reader(
            "SELECT range AS r, repeat(chr(65 + (range % 26)::INT), 60) AS s FROM range(3000000)"
            " ORDER BY hash(range)"
        )
        first = rows.read_next_batch().num_rows
        child = os.fork()
        if child == 0:
            rows = None  # type: ignore[assignment]
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert first + sum(batch.num_rows for batch in rows) == 3_000_000


def test_an_interrupt_in_a_scan_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB would take it for an error of the rows, and tell of it in its own words."""
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}).append([{"id": 1, "v": 2}])

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(half_floats, "widened_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.sql("SELECT sum(v) FROM t WHERE id > 0")
        monkeypatch.undo()
        assert db.sql("SELECT sum(v) FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_filter_that_duckdb_cannot_push_from_any_column_is_its_own(
    tmp_path: Path, key: str | None
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, key)
        rows = [{"id": n, "v": None if n == 4 else n % 3} for n in range(1, 6)]
        (table.upsert if key else table.append)(rows)
        text = (
            "SELECT id FROM t WHERE id IS DISTINCT FROM 2 OR v IS NOT DISTINCT FROM 1 ORDER BY id"
        )
        assert db.sql(text).fetchall() == [(1,), (3,), (4,), (5,)]
