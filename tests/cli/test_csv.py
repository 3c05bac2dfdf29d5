"""`--csv` prints rows as CSV that `create --from` reads back."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from tests.cli.shell import Shell

NAMES = ["plain", "", None, 'a "b"', "x,y", "two\nlines", "back\\slash\t"]


@pytest.fixture
def people(shell: Shell) -> Shell:
    kinds = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ok", pa.bool_())])
    ids = list(range(len(NAMES)))
    rows = pa.table({"id": ids, "name": NAMES, "ok": [n != "" for n in NAMES]}, kinds)
    with st.connect(shell.db, background=False) as db:
        db.create_table("people", kinds, primary_key="id").upsert(rows)
    return shell


def cells(shell: Shell, *words: object) -> list[list[str]]:
    assert shell(*words, "--csv") == 0, shell.err
    return list(csv.reader(io.StringIO(shell.out, newline="")))


def test_a_cell_is_quoted_where_it_must_be_and_a_null_is_no_empty_text(people: Shell) -> None:
    found = cells(people, "query", "select * from people order by id")
    assert found[0] == ["id", "name", "ok"]
    assert [line[1] for line in found[1:]] == [name or "" for name in NAMES]
    lines = people.out.splitlines()
    assert lines[1:4] == ["0,plain,true", '1,"",false', "2,,true"]


def test_what_is_printed_as_csv_can_be_created_from(people: Shell, tmp_path: Path) -> None:
    assert people("scan", "people", "--csv") == 0
    (tmp_path / "out.csv").write_bytes(people.out.encode())
    assert people("create", "again", "--from", tmp_path / "out.csv", "--pk", "id") == 0, people.err
    by_id = "select * from {} order by id"
    again = people.json("query", by_id.format("again"))
    assert again == people.json("query", by_id.format("people"))
    assert [row["name"] for row in again] == NAMES  # type: ignore[index,union-attr]


def test_every_command_that_prints_json_prints_csv(people: Shell) -> None:
    assert cells(people, "tables") == [
        ["table", "primary_key", "columns", "rows"], ["people", "id", "3", str(len(NAMES))],
    ]  # fmt: skip
    assert cells(people, "get", "people", "4") == [["id", "name", "ok"], ["4", "x,y", "true"]]
    assert ["tables", "1"] in cells(people, "info")
    assert cells(people, "tag", "add", "x") == [["tag", "seq"], ["x", "2"]]
    assert cells(people, "log", "-n", "1")[0][0] == "seq"
    assert people("scan", "people", "--filter", "id > 99", "--csv") == 0
    assert people.out == "id,name,ok\n"


def test_what_csv_has_no_form_for_is_a_text(shell: Shell) -> None:
    kinds = pa.schema([("id", pa.int64()), ("blob", pa.binary()), ("at", pa.list_(pa.int64()))])
    with st.connect(shell.db, background=False) as db:
        db.create_table("t", kinds).append(
            pa.table({"id": [1], "blob": [b"\x00\xff"], "at": [[1, 2]]}, kinds)
        )
    assert cells(shell, "scan", "t")[1] == ["1", "AP8=", "[1,2]"]


@pytest.mark.parametrize("other", ["--json", "--ndjson"])
def test_one_form_is_given_at_most(people: Shell, other: str) -> None:
    assert people("scan", "people", "--csv", other) == 2
    assert not people.out
    (line,) = people.err.splitlines()
    assert f"--csv and {other}" in line


@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_an_export_to_stdout_is_ndjson_and_says_what_prints_other_forms(
    people: Shell, form: str
) -> None:
    assert people("export", "people", "-", form) == 2
    assert not people.out
    (line,) = people.err.splitlines()
    assert f"siltstone scan people {form}" in line
    assert people("export", "people", "-", "--ndjson") == 0
    assert len(people.out.splitlines()) == len(NAMES)
