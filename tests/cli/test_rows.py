"""Rows go in from files and come out again, value for value, in every form."""

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.cli.shell import Shell

KINDS = {
    "id": "int64", "name": "string", "day": "date", "at": "timestamp[us, tz=UTC]",
    "local": "timestamp[us]", "price": "decimal(12,3)", "blob": "binary", "flag": "bool",
    "ratio": "float64", "place": "vector(float32, 2)", "clock": "time",
}  # fmt: skip
ROW = {
    "id": 1, "name": 'Zürich\t"x"\nline',
    "day": "2020-02-29", "at": "2020-01-02T03:04:05.000006Z",
    "local": "2020-01-02T03:04:05", "price": "1.250", "blob": "AAH/", "flag": True,
    "ratio": 0.1, "place": [1.5, -2.0], "clock": "03:04:05",
}  # fmt: skip


@pytest.fixture
def kinds(shell: Shell, tmp_path: Path) -> Shell:
    (tmp_path / "schema.json").write_text(json.dumps(KINDS))
    assert shell("create", "kinds", "--schema", tmp_path / "schema.json", "--pk", "id") == 0
    return shell


@pytest.mark.parametrize("ending", ["ndjson", "json", "jsonl"])
def test_json_goes_in_and_comes_out_the_same(kinds: Shell, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    empty = dict.fromkeys(KINDS) | {"id": 2}
    rows = [ROW, empty]
    as_lines = "\n".join(map(json.dumps, rows))
    file.write_text(json.dumps(rows, indent=2) if ending == "json" else as_lines)
    assert kinds("upsert", "kinds", file) == 0, kinds.err
    assert kinds.json("get", "kinds", 1) == ROW
    assert kinds.json("scan", "kinds", "--filter", "id = 2") == [empty]


def test_ndjson_output_is_input(
    kinds: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "row.ndjson").write_text(json.dumps(ROW))
    kinds("insert", "kinds", tmp_path / "row.ndjson")
    assert kinds("scan", "kinds", "--ndjson") == 0
    again = kinds.out.replace('"id":1', '"id":7').encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(again)))
    assert kinds("insert", "kinds", "-") == 0, kinds.err
    assert kinds.json("get", "kinds", 7) == ROW | {"id": 7}


def test_csv_values_take_the_types_of_the_table(orders: Shell, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text('id,region,total\n007,eu,1.5\n8,"",NA\n9,"a\nb",\n')
    assert orders("upsert", "orders", file, "--null", "NA") == 0, orders.err
    rows = sorted(orders.json("scan", "orders"), key=lambda row: row["id"])  # type: ignore[call-overload]
    assert rows == [
        {"region": "eu", "id": 7, "total": "1.50"},
        {"region": "", "id": 8, "total": None},
        {"region": "a\nb", "id": 9, "total": None},
    ]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
def test_arrow_and_parquet_files_go_in(orders: Shell, tmp_path: Path, ending: str) -> None:
    rows = pa.table({"id": [1, 2], "region": ["eu", "us"]})
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(rows, file)
    else:
        new = pyarrow.ipc.new_file if ending == "arrow" else pyarrow.ipc.new_stream
        with new(file, rows.schema) as writer:
            writer.write_table(rows)
    assert orders.lines("upsert", "orders", file, "--missing", "null")[1][:2] == ["2", "2"]
    assert orders.json("get", "orders", "us", 2) == {"region": "us", "id": 2, "total": None}


def test_a_file_of_rows_is_a_schema_too(shell: Shell, tmp_path: Path) -> None:
    rows = pa.table({"day": [dt.date(2020, 1, 1)], "price": [Decimal("1.5")]})
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet")
    assert shell("create", "days", "--schema", tmp_path / "rows.parquet") == 0, shell.err
    assert shell("insert", "days", tmp_path / "rows.parquet") == 0, shell.err
    assert shell.json("scan", "days") == [{"day": "2020-01-01", "price": "1.5"}]


def test_tsv_escapes_what_would_break_a_line(kinds: Shell, tmp_path: Path) -> None:
    (tmp_path / "row.ndjson").write_text(json.dumps(ROW))
    kinds("upsert", "kinds", tmp_path / "row.ndjson")
    header, line = kinds.lines("scan", "kinds", "--columns", "name,flag,place,blob")
    assert header == ["name", "flag", "place", "blob"]
    assert line == ['Zürich\\t"x"\\nline', "true", "[1.5,-2.0]", "AAH/"]


BAD_FILES = {
    "value.csv": "id,region\nx,eu\n",
    "extra.csv": "id,region,nope\n1,eu,1\n",
    "null_key.csv": "id,region\n,eu\n",
    "bad.json": '[{"id": 1,',
    "deep.json": "[" * 3_000,
    "deep.ndjson": '{"id": ' + "[" * 3_000,
    "bad.ndjson": '{"id": 1, "region": 5}\n',
    "extra.ndjson": '{"id": 1, "region": "eu", "nope": 1}\n',
    "bad.parquet": "PAR1 not at all",
    "bad.arrow": "ARROW1 not at all",
    "twice.csv": "id,region\n1,eu\n1,eu\n",
}


@pytest.mark.parametrize("name", sorted(BAD_FILES))
def test_a_bad_file_is_refused_whole(orders: Shell, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BAD_FILES[name])
    assert orders("insert", "orders", tmp_path / name) == 1
    assert orders.err.startswith("siltstone: ")
    assert len(orders.err.splitlines()) == 1
    assert orders.lines("scan", "orders") == [["region", "id", "total"]]


def test_a_file_of_unknown_ending_is_wrong_usage(orders: Shell, tmp_path: Path) -> None:
    (tmp_path / "rows.xls").write_text("")
    assert orders("insert", "orders", tmp_path / "rows.xls") == 2
    assert orders("insert", "orders", tmp_path / "missing.csv") == 3


def test_a_key_is_read_in_the_types_of_the_table(orders: Shell, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("id,region,total\n-1,eu,2\n")
    orders("insert", "orders", tmp_path / "o.csv")
    found = orders.json("get", "orders", "eu", "-1")
    assert found == {"region": "eu", "id": -1, "total": "2.00"}
    assert orders("get", "orders", "eu", "2") == 3
    assert orders("get", "orders", "eu", "two") == 2
    assert orders("get", "orders", "eu") == 2


LACKING = {
    "csv": "region,id\neu,1\n",
    "ndjson": '{"region": "eu", "id": 1}\n',
    "json": '[{"region": "eu", "id": 1}]',
}


@pytest.mark.parametrize("ending", LACKING)
def test_rows_that_lack_columns_are_refused_kept_or_null(
    orders: Shell, tmp_path: Path, ending: str
) -> None:
    whole, lacking = tmp_path / "whole.csv", tmp_path / f"lacking.{ending}"
    whole.write_text("region,id,total\neu,1,2.50\n")
    lacking.write_text(LACKING[ending])
    assert orders("upsert", "orders", lacking) == 1
    assert "--missing keep" in orders.err
    assert "--missing null" in orders.err
    assert "'total'" in orders.err
    assert orders.lines("scan", "orders") == [["region", "id", "total"]]
    assert orders("upsert", "orders", whole) == 0, orders.err
    assert orders("upsert", "orders", lacking, "--missing", "keep") == 0, orders.err
    assert orders.json("get", "orders", "eu", 1) == {"region": "eu", "id": 1, "total": "2.50"}
    assert orders("upsert", "orders", lacking, "--missing", "null") == 0, orders.err
    assert orders.json("get", "orders", "eu", 1) == {"region": "eu", "id": 1, "total": None}
    assert orders("upsert", "orders", lacking, "--missing", "leave") == 2


def test_each_object_of_json_names_its_own_columns(kinds: Shell, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text("\n".join(map(json.dumps, (ROW, ROW | {"id": 2}))))
    assert kinds("upsert", "kinds", file) == 0, kinds.err
    some = [{"id": 1, "name": "one", "day": None}, {"id": 2, "at": "2021-01-02T03:04:05Z"}]
    file.write_text("\n".join(map(json.dumps, some)))
    assert kinds("upsert", "kinds", file) == 1
    assert kinds("upsert", "kinds", file, "--missing", "keep") == 0, kinds.err
    assert kinds.json("get", "kinds", 1) == ROW | some[0]
    at = "2021-01-02T03:04:05Z"
    assert kinds.json("get", "kinds", 2) == ROW | {"id": 2, "at": at}


def test_delete_refuses_a_filter_in_the_place_of_a_key(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "named.json").write_text(json.dumps({"id": "string", "n": "int64"}))
    shell("create", "named", "--schema", tmp_path / "named.json", "--pk", "id")
    (tmp_path / "rows.ndjson").write_text('{"id": "a", "n": 1}\n{"id": "n = 1", "n": 2}\n')
    assert shell("insert", "named", tmp_path / "rows.ndjson") == 0
    for key in (["id = 'a'"], ["n > 0"], ["id", "=", "a"]):
        assert shell("delete", "named", *key, "--yes") == 2
        assert "--filter" in shell.err
    assert shell("delete", "named", "nobody", "--yes") == 3
    assert shell.json("delete", "named", "n = 1", "--yes")["rows"] == 1
    assert shell.json("delete", "named", "--filter", "id = 'a'", "--yes")["rows"] == 1
