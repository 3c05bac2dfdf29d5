"""`siltstone query` reads the caller's own files by their names; a server reads none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.errors import RequestError
from tests.cli.shell import Shell
from tests.server.stores import opened

ROWS = [{"id": 1, "total": 2.5}, {"id": 2, "total": 3.0}]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the same two rows in a file of each format; commands run there."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "orders.csv").write_text("id,total\n1,2.5\n2,3\n")
    (folder / "orders.tsv").write_text("id\ttotal\n1\t2.5\n2\t3\n")
    (folder / "orders.ndjson").write_text('{"id": 1, "total": 2.5}\n{"id": 2, "total": 3.0}\n')
    (folder / "orders.json").write_text('[{"id": 1, "total": 2.5}, {"id": 2, "total": 3.0}]')
    pq.write_table(pa.table({"id": [1, 2], "total": [2.5, 3.0]}), folder / "orders.parquet")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("ending", ["csv", "tsv", "ndjson", "json", "parquet"])
def test_a_file_is_read_where_a_table_could_be(shell: Shell, files: Path, ending: str) -> None:
    for name in (f"orders.{ending}", f"./orders.{ending}", f"{files}/orders.{ending}"):
        assert shell.json("query", f"from '{name}' order by id") == ROWS
    assert shell.json("query", f'select count(*) n from "orders.{ending}"') == [{"n": 2}]


def test_a_file_is_joined_with_a_table_also_of_the_past(shell: Shell, files: Path) -> None:
    assert shell("create", "orders", "--from", files / "orders.csv", "--pk", "id") == 0
    assert shell("delete", "orders", "1", "--yes") == 0
    sql = "select count(*) n from orders join 'orders.csv' f using (id)"
    assert shell.json("query", sql) == [{"n": 1}]
    assert shell.json("query", sql, "--seq", "1") == [{"n": 2}]
    sql = "explain select * from 'orders.csv'"
    assert shell("query", sql) == 0, shell.err


def test_a_table_of_the_store_wins_over_a_file(shell: Shell, files: Path) -> None:
    assert shell("create", "orders.csv", "-c", "what:string") == 0, shell.err
    for sql in ("from 'orders.csv'", 'from "orders.csv"', "from orders.csv", "from 'ORDERS.csv'"):
        assert shell.json("query", sql) == [], sql
    with st.connect(shell.db, background=False) as db:
        db["orders.csv"].append({"what": "mine"})
    assert shell.json("query", "from 'orders.csv'") == [{"what": "mine"}]


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [
        ("from 'none.csv'", 3, "there is no table 'none.csv', and no such file is here"),
        ("from '*.csv'", 3, "no such file"),
        ("from 'http://127.0.0.1:1/x.csv'", 3, "no such file"),
        ("from 's3://x/y.parquet'", 3, "no such file"),
        ("from 'here.csv'", 3, "there is no table 'here.csv', and it is a directory"),
        ("from 'rows.xls'", 2, "the file's ending must be one of"),
        ("from 'bad.parquet'", 1, "bad.parquet"),
        ("from 'bad.json'", 1, "bad.json is not JSON"),
        ("from 'empty.csv'", 1, "empty.csv"),
        ("from 'empty.ndjson'", 1, "empty.ndjson has no columns"),
        ("from 'alike.csv'", 2, "'alike.csv'"),
        ("from nowhere", 3, "nowhere"),
        ("from sales.nowhere", 2, "sales.nowhere"),
        ("from '-'", 3, "'-'"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_read_is_told_in_one_sentence(
    shell: Shell, files: Path, sql: str, code: int, told: str
) -> None:
    (files / "here.csv").mkdir()
    (files / "rows.xls").write_text("id\n1\n")
    (files / "bad.parquet").write_text("PAR1 secret-row")
    (files / "bad.json").write_text('[{"id": "secret-row"')
    (files / "empty.csv").write_text("")
    (files / "empty.ndjson").write_text("")
    (files / "alike.csv").write_text("a,A\nsecret-row,1\n")
    assert shell("query", sql) == code, shell.err
    assert not shell.out
    (line,) = shell.err.splitlines()
    assert told in line
    assert "secret-row" not in line


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to 'out.csv'",
        "explain analyze copy (from 'orders.csv') to 'out.csv'",
        "attach 'orders.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma enable_profiling",
        "create table t as from 'orders.csv'",
        "from 'orders.csv'; from 'orders.csv'",
        "insert into 'orders.csv' values (1)",
        "from read_csv('orders.csv')",
        "from read_text('orders.csv')",
        "from glob('*')",
        "select * from 'orders.csv', read_parquet('orders.parquet')",
        "export database 'out'",
    ],
)
def test_the_statement_itself_still_reaches_no_file(shell: Shell, files: Path, sql: str) -> None:
    before = {path: path.read_bytes() for path in files.iterdir()}
    assert shell("query", sql) == 2, shell.out
    assert not shell.out
    (line,) = shell.err.splitlines()
    assert line.startswith("siltstone: ")
    assert {path: path.read_bytes() for path in files.iterdir()} == before


def test_a_query_without_a_table_of_a_file_reads_none(shell: Shell, files: Path) -> None:
    assert shell.json("query", "select 'orders.csv' x") == [{"x": "orders.csv"}]
    sql = 'with "orders.csv" as (select 7 n) from "orders.csv"'
    assert shell.json("query", sql) == [{"n": 7}]


def test_a_server_reads_no_file_for_the_command_line(
    shell: Shell, files: Path, tmp_path: Path
) -> None:
    sql = f"from '{files}/orders.csv'"
    with opened(tmp_path / "served") as db:
        url = db.serve(port=0).url
        for statement in (sql, "from 'orders.csv'", "from read_csv('orders.csv')"):
            assert shell("--db", url, "query", statement) == 2
            assert not shell.out
            (line,) = shell.err.splitlines()
            assert "orders.csv" in line
            assert "is a file" in line
        with st.connect(url) as remote, pytest.raises(RequestError, match="is a file"):
            remote.sql(sql)


def test_no_call_of_the_library_reads_a_file(shell: Shell, files: Path) -> None:
    with st.connect(shell.db, background=False) as db:
        db.serve_local()
        for sql in ("from 'orders.csv'", f"from '{files}/orders.parquet'"):
            with pytest.raises(RequestError, match="is a file"):
                db.sql(sql)
            with db.snapshot() as snapshot, pytest.raises(RequestError, match="is a file"):
                snapshot.sql(sql)
            with db.transaction() as tx, pytest.raises(RequestError, match="is a file"):
                tx.sql(sql)
        assert shell.json("query", "from 'orders.csv' order by id") == ROWS


def test_a_statement_writes_if_it_is_told_to_also_out_of_a_file(shell: Shell, files: Path) -> None:
    assert shell("query", "create table orders (id bigint primary key, total double)") == 2
    assert "this statement writes: say --write" in shell.err
    for text in (
        "create table orders (id bigint primary key, total double)",
        "insert into orders from 'orders.csv'",
    ):
        assert shell("query", "--write", text) == 0, shell.err
    assert shell.json("query", "from orders order by id") == ROWS
    done = shell.json("query", "update orders set total = 7 where id = 2 returning *", "--write")
    assert done == [{"id": 2, "total": 7.0}]
    assert shell.json("query", "--write", "delete from orders where id < 9") == [{"Count": 2}]
    assert shell("query", "--write", "delete from orders", "--seq", "1") == 2
    assert "the past is read, not written" in shell.err
    assert shell("query", "--write", "delete from nope") != 0
    assert "there is no table" in shell.err
