"""Tables are created from files, changed, exported and dropped whole, or not at all."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from tests.cli.page import table as page
from tests.cli.shell import Shell

ROOT = Path(__file__).parents[2]
ROWS = [
    {"id": 1, "name": "Ada", "total": 2.5},
    {"id": 2, "name": "", "total": None},
    {"id": -3, "name": 'a "b"\tc,\nd', "total": -1.0},
]


@pytest.fixture
def people(shell: Shell, tmp_path: Path) -> Shell:
    file = tmp_path / "people.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert shell("create", "people", "--from", file, "--pk", "id") == 0, shell.err
    return shell


def rows_of(shell: Shell, table: str) -> list[dict[str, object]]:
    found = shell.json("scan", table)
    assert isinstance(found, list)
    return sorted(found, key=lambda row: -abs(row["id"]))[::-1]


def test_a_table_is_created_with_the_rows_of_a_file_in_one_commit(people: Shell) -> None:
    assert rows_of(people, "people") == ROWS
    log = people.json("log")
    assert isinstance(log, list)
    assert [(each["rows"], each["changes"]) for each in log] == [(3, "create people")]
    assert people.lines("schema", "people")[1:] == [
        ["id", "int64", "false", "1"],
        ["name", "string", "true", ""],
        ["total", "double", "true", ""],
    ]


@pytest.mark.parametrize(
    "ending", ["csv", "tsv", "ndjson", "parquet", "arrow", "csv.gz", "jsonl.gz"]
)
def test_what_is_exported_can_be_created_from(people: Shell, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"out.{ending}"
    assert people.json("export", "people", file) == {
        "table": "people", "file": str(file), "rows": 3, "seq": 1,
    }  # fmt: skip
    assert (file.read_bytes()[:2] == b"\x1f\x8b") is ending.endswith(".gz")
    assert people("create", "again", "--from", file, "--pk", "id") == 0, people.err
    assert rows_of(people, "again") == ROWS
    assert sorted(path.name for path in tmp_path.glob("*.part")) == []


def test_an_export_takes_columns_a_filter_a_limit_a_past_and_a_delimiter(
    people: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    assert people("delete", "people", "1", "--yes") == 0
    narrow = ["--columns", "total,id", "--filter", "id > 0", "--delimiter", ";"]
    assert people("export", "people", file, *narrow, "--seq", "1", "--quiet") == 0
    assert sorted(file.read_text().splitlines()) == ['"total";"id"', "2.5;1", ";2"]
    assert people("export", "people", "-", "--filter", "id = 2") == 0
    assert json.loads(people.out) == ROWS[1]
    assert people("create", "semi", "--from", file, "--delimiter", ";") == 0
    assert people.lines("schema", "semi")[1][0] == "total"
    assert people("export", "people", tmp_path / "x.csv", "--delimiter", ";;") == 2


def test_an_export_leaves_a_file_that_is_there_and_what_it_began(
    people: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "out.parquet"
    file.write_text("mine")
    assert people("export", "people", file) == 2
    assert "--overwrite" in people.err
    assert people("export", "people", file, "--overwrite", "--filter", "nope > 1") == 2
    assert file.read_text() == "mine"
    assert people("export", "people", file, "--overwrite") == 0
    assert pq.read_table(file).num_rows == 3
    assert people("export", "people", tmp_path / "none" / "out.csv") == 3
    assert people("export", "people", tmp_path / "out.xls") == 2
    assert people("export", "people", tmp_path / "out.parquet.gz") == 2
    assert [path for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_binary_lists_and_structs_are_texts_in_csv(shell: Shell, tmp_path: Path) -> None:
    kinds = pa.schema(
        [("id", pa.int64()), ("blob", pa.binary()), ("at", pa.list_(pa.timestamp("ns")))]
    )
    rows = pa.table({"id": [1], "blob": [b"\x00\xff"], "at": [[1]]}, kinds)
    with st.connect(shell.db, background=False) as db:
        db.create_table("t", kinds, primary_key="id").upsert(rows)
    assert shell("export", "t", tmp_path / "t.csv") == 0, shell.err
    *_, line = (tmp_path / "t.csv").read_text().splitlines()
    assert line == '1,"AP8=","[""1970-01-01 00:00:00.000000001""]"'


BAD = {
    "twice.ndjson": '{"id": 1}\n{"id": 1}\n',
    "half.ndjson": '{"id": 1}\n{"id": ',
    "bad.csv.gz": "no gzip",
    "bad.parquet": "PAR1 not at all",
    "empty.ndjson": "",
    "nothing.csv": "",
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_leaves_no_table(shell: Shell, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BAD[name])
    assert shell("create", "t", "--from", tmp_path / name, "--pk", "id") in {1, 2}
    assert shell.err.startswith("siltstone: ")
    assert shell.lines("tables") == [["table", "primary_key", "columns", "rows"]]
    assert shell.json("log") == []


def test_given_columns_type_the_rows_of_a_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,price\n7,1.5\n")
    words = ["-c", "id:string", "-c", "price:decimal(8,2)", "--pk", "id"]
    assert shell("create", "t", "--from", tmp_path / "t.csv", *words) == 0, shell.err
    assert shell.json("get", "t", "7") == {"id": "7", "price": "1.50"}
    assert shell("create", "u", "--from", tmp_path / "t.csv", "-c", "id:int64") == 1
    assert len(shell.lines("tables")) == 2


def test_a_plain_table_takes_rows_by_append(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("what\nhello\n")
    assert shell("create", "t", "--from", tmp_path / "t.csv") == 0
    assert shell("append", "t", tmp_path / "t.csv") == 0
    assert shell.lines("head", "t") == [["what"], ["hello"], ["hello"]]
    assert len(shell.lines("head", "t", "-n", "1")) == 2
    assert shell("delete", "t", "hello", "--yes") == 2
    assert shell.lines("delete", "t", "--filter", "what = 'hello'", "--yes")[1][1] == "2"


def test_rows_are_deleted_by_key_or_filter_on_request(people: Shell) -> None:
    assert people("delete", "people") == 2
    assert people("delete", "people", "1", "--filter", "id = 1") == 2
    assert people("delete", "people", "99", "--yes") == 3
    assert people.lines("delete", "people", "-f", "id > 0", "--dry-run") == [
        ["table", "rows"], ["people", "2"],
    ]  # fmt: skip
    assert len(rows_of(people, "people")) == 3
    assert people.lines("delete", "people", "-3", "--yes")[1][:2] == ["2", "1"]
    assert people.lines("delete", "people", "-f", "id > 0", "--yes")[1][:2] == ["3", "2"]
    assert rows_of(people, "people") == []


def test_a_table_is_renamed_truncated_and_dropped_and_the_log_says_so(
    people: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert people("drop", "people") == 2  # nobody is there to be asked
        assert people("truncate", "people") == 2
    assert people.json("drop", "people", "--dry-run") == {"table": "people", "rows": 3}
    assert people("rename", "people", "crew") == 0
    with st.connect(people.db, background=False) as db:
        db["crew"].add_column("note", "string")
        db["crew"].rename_column("note", "memo")
        db["crew"].drop_column("memo")
    assert people("truncate", "crew", "--yes") == 0
    assert people("drop", "crew", "--yes") == 0
    assert people("drop", "crew", "--yes") == 3
    assert people("rename", "crew", "other") == 3
    log = people.json("log")
    assert isinstance(log, list)
    assert [each["changes"] for each in log] == [
        "drop crew", "truncate crew", "drop column crew.memo",
        "rename column crew.note to memo", "add column crew.note",
        "rename people to crew", "create people",
    ]  # fmt: skip
    assert people.json("scan", "people", "--seq", "1", "--columns", "id") != []


def test_the_log_says_all_that_one_commit_changed(shell: Shell) -> None:
    with st.connect(shell.db, background=False) as db, db.transaction() as tx:
        tx.create_table("a", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        tx.create_table("b", {"id": "int64"})
        tx["a"].add_column("x", "int64")
        tx.drop_table("b")
    with st.connect(shell.db, read_only=True) as db:
        (entry,) = db.log()
    assert set(entry.changes) >= {"create a", "drop b"}
    assert entry.rows == 1


def test_the_log_names_the_tags_that_a_commit_set_and_nobody_moved_since(people: Shell) -> None:
    with st.connect(people.db, background=False) as db:
        db.tag("first", 1)
        db.tag("moved", 1)
        db.tag("moved", 2)
        db.tag("gone", 1)
        db.untag("gone")
    log = people.json("log", "--limit", "5")
    assert isinstance(log, list)
    assert [each["changes"] for each in log] == [
        "", "", "tag moved at seq 2", "", "tag first at seq 1",
    ]  # fmt: skip


def terminal_of(columns: int, command: list[str]) -> str:
    """Return what a command shows on a terminal of a width."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-m", "siltstone", *command], stdin=theirs, stdout=theirs, env=env
    ) as process:
        os.close(theirs)
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_a_table_wider_than_the_terminal_is_shown_sideways_and_whole(people: Shell) -> None:
    long = "word " * 40 + "end"
    with st.connect(people.db, background=False) as db:
        db["people"].update(1, name=long)
    wide = terminal_of(60, ["scan", "people", "--filter", "id > 0"])
    assert f"name   {long}\n" in wide
    assert "-- row 2\n" in wide
    assert "…" not in wide
    narrow = terminal_of(60, ["scan", "people", "--filter", "id = 2"])
    assert "row" not in narrow
    assert ["2"] in [line.split() for line in narrow.splitlines()]


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    """`python -m tests.cli.page` prints what belongs there."""
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [line for line in page().splitlines() if line not in text.splitlines()] == []
    told = [line for line in text.splitlines() if line.startswith("| `siltstone ")]
    assert [line for line in told if line not in page().splitlines()] == []


def test_a_compressed_file_is_input(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b'[{"id": 4}]'))
    assert shell("create", "t", "--from", tmp_path / "t.json.gz", "--pk", "id") == 0, shell.err
    assert shell("upsert", "t", tmp_path / "t.json.gz") == 0
    assert shell.lines("scan", "t") == [["id"], ["4"]]
