"""`create --from` and `append` take rows from files, patterns, directories and databases."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.cli.arguments import CsvForm
from siltstone.cli.files import csv_schema
from siltstone.cli.imports.sources import one_source
from tests.cli.shell import Shell

ROWS = pa.table({"id": [1, 2, 3], "who": ["ada", None, "cy"]})
CSV = b"id,who\n1,ada\n2,\n3,cy\n"
NDJSON = b'{"id": 1, "who": "ada"}\n{"id": 2, "who": null}\n{"id": 3, "who": "cy"}\n'


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(data)
    return sink.getvalue().to_pybytes()


def _arrow() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, ROWS.schema) as file:
        file.write_table(ROWS)
    return sink.getvalue().to_pybytes()


FILES = {
    "a.csv": CSV,
    "a.csv.gz": gzip.compress(CSV),
    "a.csv.zst": _zstd(CSV),
    "a.tsv": CSV.replace(b",", b"\t"),
    "a.ndjson": NDJSON,
    "a.jsonl.gz": gzip.compress(NDJSON),
    "a.ndjson.zst": _zstd(NDJSON),
    "a.json": json.dumps(ROWS.to_pylist()).encode(),
    "a.arrow": _arrow(),
    "a.arrow.zst": _zstd(_arrow()),
}


def _rows(shell: Shell, table: str) -> list[dict[str, Any]]:
    found = shell.json("scan", table)
    assert isinstance(found, list)
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_and_compression_is_created_and_appended(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert shell("create", "t", "--from", tmp_path / name) == 0, shell.err
    assert shell("append", "t", tmp_path / name) == 0, shell.err
    assert _rows(shell, "t") == [row for row in ROWS.to_pylist() for _ in range(2)]
    assert shell.json("apps", "ls") == []


def _without_rows(path: Path) -> None:
    empty = ROWS.schema.empty_table()
    if path.suffix == ".parquet":
        pq.write_table(empty, path)
        return
    kind = pa.ipc.new_stream if path.name == "stream.arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, kind(sink, empty.schema):
        pass


@pytest.mark.parametrize("name", ["empty.parquet", "file.arrow", "stream.arrow"])
def test_a_file_with_columns_and_no_rows_makes_an_empty_table(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    _without_rows(tmp_path / name)
    assert shell("create", "t", "--from", tmp_path / name) == 0, shell.err
    assert _rows(shell, "t") == []
    assert shell("append", "t", tmp_path / name) == 0, shell.err
    with st.connect(shell.db, read_only=True) as db:
        assert db["t"].schema.names == ROWS.schema.names


def test_an_export_with_zst_comes_back(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    assert shell("create", "t", "--from", tmp_path / "a.csv") == 0
    assert shell("export", "t", tmp_path / "out.ndjson.zst") == 0, shell.err
    assert shell("create", "u", "--from", tmp_path / "out.ndjson.zst") == 0, shell.err
    assert _rows(shell, "u") == ROWS.to_pylist()


def test_the_types_of_csv_are_guessed_from_whole_rows_wherever_its_begin_is_cut() -> None:
    data = b"id,t\n" + b"".join(b'%d,"a\nb%d"\n' % (n, n) for n in range(40))
    for cut in range(20, len(data)):
        found = csv_schema(data[:cut], CsvForm(), "csv", is_cut=True)
        assert found == pa.schema({"id": pa.int64(), "t": pa.string()}), cut


def test_a_row_of_csv_may_be_long(shell: Shell, tmp_path: Path) -> None:
    text = "x" * (3 << 20)
    (tmp_path / "a.csv").write_text(f"id,t\n1,{text}\n2,{text}\n")
    assert shell("create", "t", "--from", tmp_path / "a.csv") == 0, shell.err
    assert [len(row["t"]) for row in _rows(shell, "t")] == [3 << 20] * 2


# several files


@pytest.mark.parametrize(
    ("pattern", "count"), [("*.csv", 2), ("**/*.csv", 3), ("[ab].csv*", 2), ("?.csv", 2)]
)
def test_the_files_of_a_pattern_come_in_the_order_of_their_names(
    shell: Shell, tmp_path: Path, pattern: str, count: int
) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for place, name in enumerate(("a.csv", "b.csv", "deep/c.csv")):
        (tmp_path / "in" / name).write_text(f"id,n\n{place},{place}\n")
    found = shell.json("create", "t", "--pk", "id", "--from", tmp_path / "in" / pattern)
    assert found["rows"] == count  # type: ignore[index]
    assert [row["id"] for row in _rows(shell, "t")] == list(range(count))


def test_a_directory_of_parquet_is_one_table(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    (folder / "_temporary").mkdir(parents=True)
    for place in range(3):
        pq.write_table(ROWS.slice(place, 1), folder / f"part-{place}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "_temporary" / "x.parquet").write_bytes(b"torn")
    assert shell("create", "t", "--from", folder) == 0, shell.err
    assert _rows(shell, "t") == ROWS.to_pylist()


# databases and tables of others


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.executescript("""
            create table orders (
                id integer primary key, who varchar(20) not null, total double, placed date,
                at datetime, paid boolean, price decimal(10, 2), raw blob, "odd ""name" text
            );
            insert into orders values
                (1, 'ada', 1.5, '2026-01-02', '2026-01-02 03:04:05', 1, 2.25, x'00ff', 'x'),
                (2, 'bo', 3, null, null, 0, 7, null, null);
            create table lines (order_id int, n int, primary key (order_id, n)) without rowid;
            insert into lines values (1, 2), (1, 1);
            create view big as select * from orders;
        """)
    made.close()
    return path


def test_a_table_of_sqlite_has_the_types_and_the_key_that_it_declares(
    shell: Shell, shop: Path
) -> None:
    found = shell.json("create", "o", "--from", f"{shop}#orders")
    assert (found["primary_key"], found["rows"]) == ("id", 2)  # type: ignore[index]
    assert [line[:3] for line in shell.lines("schema", "o")[1:]] == [
        ["id", "int64", "false"],
        ["who", "string", "false"],
        ["total", "double", "true"],
        ["placed", "date32[day]", "true"],
        ["at", "timestamp[us]", "true"],
        ["paid", "bool", "true"],
        ["price", "decimal128(10, 2)", "true"],
        ["raw", "binary", "true"],
        ['odd "name', "string", "true"],
    ]
    first, second = _rows(shell, "o")
    assert (first["total"], first["placed"], first["paid"]) == (1.5, "2026-01-02", True)
    assert (second["total"], second["price"], second["raw"]) == (3.0, "7.00", None)


def test_all_tables_of_a_sqlite_file_are_created_where_none_is_named(
    shell: Shell, shop: Path
) -> None:
    assert shell.json("create", "--from", shop) == [
        {"table": "lines", "primary_key": "order_id,n", "seq": 2, "rows": 2},
        {"table": "orders", "primary_key": "id", "seq": 5, "rows": 2},
    ]
    assert shell.json("apps", "ls") == []


def test_of_all_tables_those_that_are_done_stay_and_the_same_command_makes_the_others(
    shell: Shell, shop: Path
) -> None:
    with closing(sqlite3.connect(shop)) as made:
        made.executescript("update orders set total = 'much' where id = 2")
    assert shell("create", "--from", shop) == 1
    assert "#orders row 2: column 'total' is double, not str 'much'" in shell.err
    assert [line[0] for line in shell.lines("tables")[1:]] == ["lines"]
    with closing(sqlite3.connect(shop)) as made:
        made.executescript("update orders set total = 4 where id = 2")
    found = shell.json("create", "--from", shop)
    assert [(row["table"], row["rows"]) for row in found] == [("lines", 0), ("orders", 2)]  # type: ignore[union-attr]
    assert shell.json("apps", "ls") == []
    assert shell("create", "--from", shop) == 1
    assert "exists already" in shell.err


def test_columns_that_are_given_win_over_those_of_sqlite(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as made:
        made.executescript("create table t (id, v); insert into t values (1, '2026-01-02')")
    made.close()
    assert shell("create", "t", "-c", "id:int32", "-c", "v:date32", "--from", path) == 0, shell.err
    assert _rows(shell, "t") == [{"id": 1, "v": "2026-01-02"}]


def test_a_table_of_lance_and_those_of_lancedb_are_read(shell: Shell, tmp_path: Path) -> None:
    import lancedb

    made = lancedb.connect(tmp_path / "ldb")
    made.create_table("events", ROWS)
    made.create_table("more", ROWS.slice(1))
    assert shell("create", "e", "--from", tmp_path / "ldb" / "events.lance") == 0, shell.err
    assert shell("create", "m", "--from", f"{tmp_path / 'ldb'}#more") == 0, shell.err
    assert (_rows(shell, "e"), len(_rows(shell, "m"))) == (ROWS.to_pylist(), 2)
    found = shell.json("create", "--from", tmp_path / "ldb")
    assert [row["table"] for row in found] == ["events", "more"]  # type: ignore[union-attr]


def test_a_table_of_delta_is_read_with_its_partitions(shell: Shell, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, ROWS.slice(0, 2), partition_by=["who"])
    deltalake.write_deltalake(path, ROWS.slice(2), mode="append")
    assert shell("create", "t", "--from", path) == 0, shell.err
    assert _rows(shell, "t") == ROWS.to_pylist()


# what is refused: one line, and nothing is written


def _parquet(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("files", "source", "code", "text"),
    [
        ({}, "no*.csv", 3, "no file matches"),
        ({}, "none.csv", 3, "cannot read"),
        ({"a.csv": CSV, "b.parquet": {"id": [1]}}, "*", 2, "files of several formats"),
        (
            {"a.parquet": {"id": [1], "n": [1]}, "b.parquet": {"id": [1], "n": ["x"]}},
            "*.parquet",
            1,
            "b.parquet: column 'n' is string, and int64 in",
        ),
        ({"a.parquet": {"id": [1]}, "b.parquet": {"n": [1]}}, ".", 1, "has no column 'id'"),
        ({"a.csv": b"id\n1\n", "b.csv": b"id,n\n1,2\n"}, "*.csv", 1, "has a column 'n'"),
        ({"a.csv": b"id\n1\n", "b.csv": b"id\nx\n"}, "*.csv", 1, "b.csv: column 'id'"),
        ({"a.csv.gz": gzip.compress(CSV * 99)[:40]}, "a.csv.gz", 1, "a.csv.gz is not whole, or no"),
        ({"a.csv.gz": CSV}, "a.csv.gz", 1, "a.csv.gz is not whole, or no gzip"),
        ({"a.csv.zst": CSV}, "a.csv.zst", 1, "a.csv.zst is not whole, or no zstd"),
        ({"a.csv": b""}, "a.csv", 1, "Empty CSV"),
        ({"a.parquet": b"torn"}, "a.parquet", 1, "a.parquet"),
        ({"a.parquet.gz": b""}, "a.parquet.gz", 2, "compress themselves"),
        ({"a.txt": b""}, "a.txt", 2, "the file's ending must be one of"),
        ({"year=2026/a.parquet": {"id": [1]}}, ".", 2, r"names of its directories \(year=2026\)"),
        ({"a.md": b""}, ".", 3, "is a directory without Parquet files"),
        ({"a.csv": CSV}, "a.csv#t", 2, "is one table, and no database"),
    ],
)
def test_a_wrong_source_is_told_in_one_line_and_makes_no_table(
    shell: Shell, tmp_path: Path, files: dict[str, Any], source: str, code: int, text: str
) -> None:
    folder = tmp_path / "in"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            _parquet(path, **content)
    assert shell("create", "t", "--from", folder / source) == code, shell.err
    assert len(shell.err.splitlines()) == 1
    assert re.search(text, shell.err), shell.err
    assert shell.lines("tables")[1:] == []
    assert shell.json("apps", "ls") == []


@pytest.mark.parametrize(
    ("statements", "source", "code", "text"),
    [
        ("create table t (id, n int)", "#t", 1, "#t: column 'id' declares no type"),
        ("create table t (id int); insert into t values (1), ('x')", "#t", 1,
         "#t row 2: column 'id' is int64, not str 'x'"),
        ("create table t (v text); insert into t values (x'00')", "#t", 1,
         "#t row 1: column 'v' is string, not bytes"),
        ("create table t (d date); insert into t values ('2026-01-01'), ('soon')", "#t", 1,
         "#t row 2: column 'd' is date32.day., not str 'soon'"),
        ("create table t (b boolean); insert into t values (2)", "#t", 1,
         "#t row 1: column 'b' is bool, not int 2"),
        ("create table t (f real); insert into t values (9007199254740993)", "#t", 0, ""),
        ("create table t (p decimal(4, 2)); insert into t values (123.456)", "#t", 1,
         "#t row 1: column 'p' is decimal128.4, 2., not float 123.456"),
        ("create table t (id int)", "#u", 3, "has no table 'u'; "),
        ("create table t (id int); create table u (id int)", "", 2, "has several tables: name one"),
        ("create view v as select 1", "", 3, "has no tables"),
    ],
)  # fmt: skip
def test_what_no_column_takes_of_sqlite_is_told_with_its_row(
    shell: Shell, tmp_path: Path, statements: str, source: str, code: int, text: str
) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as made:
        made.executescript(statements)
    made.close()
    assert shell("create", "t", "--from", f"{path}{source}") == code, shell.err
    assert re.search(text, shell.err), shell.err
    assert (len(shell.lines("tables")) == 1) is (code != 0)


def test_a_file_that_only_begins_as_sqlite_is_told(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0" + bytes(600))
    assert shell("create", "t", "--from", tmp_path / "a.db") == 1
    assert "a.db cannot be read" in shell.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "--from", "a.csv"), "has no names of tables: say which TABLE"),
        (("create", "--from", "a.csv", "--pk", "id"), "are for one table: say which TABLE"),
        (("create", "-c", "id:int64"), "say which TABLE"),
        (("create", "t"), "give the columns either by"),
    ],
)
def test_a_command_that_names_no_table_says_so(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_bytes(CSV)
    assert shell(*arguments) == 2
    assert text in shell.err


def test_a_source_that_is_wrong_makes_no_store(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILTSTONE_URI", str(tmp_path / "other"))
    (tmp_path / "a.csv").write_bytes(b"id\n1\n")
    (tmp_path / "b.csv").write_bytes(b"n\n1\n")
    assert shell("create", "t", "--from", tmp_path / "*.csv") == 1
    assert not (tmp_path / "other").exists()
    (tmp_path / "b.csv").unlink()
    assert shell("create", "t", "--from", tmp_path / "*.csv") == 0, shell.err
    assert (tmp_path / "other").exists()


def test_what_comes_from_stdin_is_never_taken_for_what_came_before() -> None:
    first, second = (one_source(Path("-"), CsvForm()).parts[0] for _ in range(2))
    assert first.fingerprint != second.fingerprint
