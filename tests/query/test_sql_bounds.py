"""A statement uses no more memory, disk and threads than it may; its rows come as it has them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import ClosedError, LimitError, RequestError
from siltstone.options import Options, SqlBounds
from siltstone.process import deadline
from siltstone.query.sql import sql
from siltstone.query.sql import statement as statements
from siltstone.query.sql.duckdbs.watch import watched_count
from tests.query.scannable import Recording

SMALL = SqlBounds(memory_bytes_max=16 << 20, temp_bytes_max=1 << 20, threads_max=1)
NUMBERS = pa.table({"id": range(100_000)})


def read(text: str, bounds: SqlBounds = SMALL, **more: Any) -> pa.RecordBatchReader:
    return sql.read(text, lambda _: Recording(NUMBERS), ["numbers"], bounds=bounds, **more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the temporary directories of statements are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_rows_of_a_large_result_come_a_batch_at_a_time(folder: Path) -> None:
    reader = read("SELECT range AS i, repeat('x', 1000) AS t FROM range(1_000_000_000)")
    batches = [reader.read_next_batch() for _ in range(3)]
    assert sum(batch.num_rows for batch in batches) == 3 * statements.BATCH_ROWS
    assert max(batch.nbytes for batch in batches) < 16 << 20
    del reader
    assert not watched_count()
    assert list(folder.iterdir()) == []


def test_a_statement_that_needs_more_than_its_bounds_is_one_error(folder: Path) -> None:
    with pytest.raises(LimitError, match=r"sql_memory_bytes_max .16777216. and") as caught:
        read("SELECT list(range) FROM range(20_000_000)")
    assert caught.value.bytes_max == 16 << 20
    assert "\n" not in str(caught.value)
    assert not watched_count()
    assert list(folder.iterdir()) == []


def test_what_does_not_fit_in_memory_goes_to_a_private_directory(folder: Path) -> None:
    bounds = SqlBounds(memory_bytes_max=32 << 20, temp_bytes_max=1 << 30, threads_max=1)
    text = "SELECT range AS i FROM range(8_000_000) ORDER BY hash(range), range"
    reader = read(text, bounds)
    (made,) = folder.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert list(made.iterdir())
    assert sum(batch.num_rows for batch in reader) == 8_000_000
    assert list(folder.iterdir()) == []
    with pytest.raises(LimitError):
        read(text, SMALL)


def test_without_room_for_temporary_files_there_is_the_memory(folder: Path) -> None:
    none = SqlBounds(memory_bytes_max=64 << 20, temp_bytes_max=0, threads_max=1)
    assert read("SELECT count(*) FROM numbers", none).read_all().to_pylist() == [
        {"count_star()": 100_000}
    ]
    assert list(folder.iterdir()) == []


def test_a_statement_runs_without_a_directory_for_temporary_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "none"))
    assert read("SELECT count(*) FROM numbers").read_all().num_rows == 1


def test_a_value_that_is_too_large_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "VALUE_BYTES_MAX", 1_000)
    with pytest.raises(LimitError, match="a value of the result has 2000 bytes; at most 1000"):
        read("SELECT repeat('x', 2000)").read_all()
    with pytest.raises(LimitError, match=r"a value of the result has 8[0-9]+ bytes"):
        read("SELECT range(1000) AS l").read_all()
    assert read("SELECT repeat('x', 900) FROM range(10)").read_all().num_rows == 10


def test_rows_that_are_large_together_are_refused_by_the_memory_of_a_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "VALUE_BYTES_MAX", 1 << 20)
    with pytest.raises(LimitError, match=r"100 rows of the result take .* sql_memory_bytes_max"):
        read("SELECT repeat('x', 1_000_000) FROM range(100)").read_all()


def test_its_threads_are_bounded() -> None:
    bounds = SqlBounds(memory_bytes_max=64 << 20, temp_bytes_max=0, threads_max=3)
    found = read("SELECT current_setting('threads') AS n", bounds).read_all()
    assert found.to_pylist() == [{"n": 3}]


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of Linux")
def test_duckdb_starts_no_threads_beside_those_that_are_bounded() -> None:
    def running() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = running()
    reader = read("SELECT * FROM range(10_000_000)")
    reader.read_next_batch()
    assert running() <= before + 1  # the one that watches; the reader's own is the one of SMALL
    del reader


def test_one_thread_watches_all_statements() -> None:
    readers = [read("SELECT * FROM range(10_000_000)") for _ in range(5)]
    assert watched_count() == 5
    assert [each.name for each in threading.enumerate()].count("siltstone-sql") == 1
    over = deadline.Deadline(0.1, lambda: True)
    with deadline.within(over), pytest.raises(RequestError, match=r"longer than 0\.1 s"):
        read("SELECT count(*) FROM range(90000) a, range(90000) b WHERE a.range + b.range < 0")
    assert [len(reader.read_next_batch()) for reader in readers] == [statements.BATCH_ROWS] * 5
    del readers
    assert not watched_count()


def test_what_a_statement_may_use_cannot_be_changed_by_it() -> None:
    for text in ("SET memory_limit = '8GB'", "SET threads = 64", "SET temp_directory = '/tmp'"):
        with pytest.raises(RequestError, match="which is not offered"):
            read(text)


# the end


def test_rows_that_nobody_reads_any_more_end_the_statement(folder: Path) -> None:
    ended: list[bool] = []
    reader = read("SELECT * FROM range(10_000_000)", at_end=lambda: ended.append(True))
    reader.read_next_batch()
    assert not ended
    assert watched_count()
    del reader
    assert ended == [True]
    assert not watched_count()
    assert list(folder.iterdir()) == []


def test_rows_that_nobody_begins_to_read_end_the_statement(folder: Path) -> None:
    ended = list[str]()
    reader = read("SELECT id FROM numbers", at_end=lambda: ended.append("ended"))
    assert watched_count()
    del reader
    assert ended == ["ended"]
    assert not watched_count()
    assert list(folder.iterdir()) == []


def test_each_batch_has_the_time_of_who_reads_it() -> None:
    reader = read("SELECT * FROM range(10_000_000)")
    reader.read_next_batch()
    slow = "SELECT count(*) FROM range(100_000) a, range(100_000) b WHERE a.range * b.range = 7"
    over = deadline.Deadline(1.0, lambda: True)
    with deadline.within(over), pytest.raises(RequestError, match="longer than 1 s"):
        read(slow)
    reader.read_next_batch()  # it has no deadline


def test_an_error_in_the_middle_of_the_rows_is_raised_there() -> None:
    text = "SELECT CASE WHEN range > 200_000 THEN error('boom') ELSE range END FROM range(400_000)"
    reader = read(text)
    reader.read_next_batch()
    with pytest.raises(RequestError, match=r"DuckDB refuses the statement: .*boom"):
        reader.read_all()


# a store


def test_a_store_gives_the_rows_of_a_query_as_they_are_read(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", background=False, sql_threads_max=1) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert(NUMBERS)
        reader = db.sql_reader("SELECT id FROM t WHERE id >= $low ORDER BY id", {"low": 10})
        first = reader.read_next_batch()
        db["t"].delete_where("id > 50")  # the query has its snapshot
        assert first.column(0)[0].as_py() == 10
        assert first.num_rows + sum(batch.num_rows for batch in reader) == 99_990
        assert db.sql("SELECT current_setting('threads')").fetchall() == [(1,)]
        with db.snapshot() as past:
            assert past.sql_reader("SELECT sum(id) AS s FROM t").read_all().to_pylist()[0]["s"] == (
                sum(range(51))
            )
            assert past.sql("SELECT sum(id) AS s FROM t").schema.field("s").type == pa.int64()


def test_the_rows_of_a_query_end_with_its_snapshot(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert(NUMBERS)
        past = db.snapshot()
        reader = past.sql_reader("SELECT a.id FROM t a, t b")
        reader.read_next_batch()
        past.close()
        with pytest.raises(ClosedError):
            for _ in reader:
                pass


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sql_memory_bytes_max", 1 << 20),
        ("sql_memory_bytes_max", 1 << 60),
        ("sql_temp_bytes_max", -1),
        ("sql_threads_max", 0),
        ("sql_threads_max", 10_000),
        ("sql_threads_max", "many"),
        ("sql_memory_bytes_max", True),
    ],
)
def test_the_bounds_of_statements_are_checked(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(RequestError, match=option):
        st.connect(tmp_path / "shop", **{option: value})
    assert not (tmp_path / "shop").exists()


def test_a_statement_uses_what_the_options_say() -> None:
    given = Options(sql_memory_bytes_max=1 << 30, sql_temp_bytes_max=5, sql_threads_max=2)
    assert given.sql == SqlBounds(1 << 30, 5, 2)
