"""`siltstone search` prints the nearest rows, at any seq, over a path and over a server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.cli.shell import Shell

COLUMNS = {"id": "int64", "v": "vector(float32, 2)", "name": "string"}


@pytest.fixture
def notes(shell: Shell) -> Shell:
    with st.connect(shell.db, background=False) as db:
        table = db.create_table("notes", COLUMNS, primary_key="id")
        table.upsert([{"id": n, "v": [n, 0], "name": f"n{n}"} for n in range(6)])
        db.create_table("plain", {"id": "int64", "name": "string"})
        db.create_table("bytes", {"id": "int64", "v": "vector(uint8, 2)"}, primary_key="id")
        db["bytes"].upsert({"id": 1, "v": [255, 1]})
    return shell


def test_the_nearest_rows_come_first_in_every_form(notes: Shell) -> None:
    asked = ("search", "notes", "[2.2, 0]", "-k", 2, "--columns", "id")
    rows = notes.json(*asked)
    assert [row["id"] for row in rows] == [2, 3]  # type: ignore[union-attr]
    assert [row["_distance"] for row in rows] == pytest.approx([0.04, 0.64], abs=1e-6)  # type: ignore[union-attr]
    assert [line[0] for line in notes.lines(*asked)] == ["id", "2", "3"]
    assert notes(*asked, "--ndjson") == 0
    assert [json.loads(line) for line in notes.out.splitlines()] == rows
    whole = notes.json("search", "notes", "[2, 0]", "-k", 1)
    assert whole == [{"id": 2, "v": [2.0, 0.0], "name": "n2", "_distance": 0.0}]


def test_a_vector_comes_from_a_file_or_stdin_and_many_as_a_list(
    notes: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.json").write_text("[[0, 0], [5, 0]]\n")
    rows: Any = notes.json("search", "notes", f"@{tmp_path / 'q.json'}", "-k", 1)
    assert [(row["_query"], row["id"]) for row in rows] == [(0, 0), (1, 5)]
    monkeypatch.setattr("sys.stdin", io.StringIO("[4, 0]"))
    assert notes.json("search", "notes", "@-", "-k", 1)[0]["id"] == 4  # type: ignore[index]


def test_all_that_a_search_takes_has_an_option(notes: Shell) -> None:
    def ids(*options: object, vector: str = "[0, 0]") -> list[int]:
        rows: Any = notes.json("search", "notes", vector, *options)
        return [row["id"] for row in rows]

    assert ids() == [0, 1, 2, 3, 4, 5]
    assert ids("--filter", "id > 3", "--exact", "--column", "v") == [4, 5]
    assert ids("--lower-bound", 1, "--upper-bound", 9) == [1, 2]
    assert ids("--metric", "dot", "-k", 1, vector="[-1, 0]") == [0]
    assert ids("--nprobes", 3, "--refine", 2, "-k", 1) == [0]
    assert notes.json("search", "bytes", "[255, 0]", "--metric", "hamming") == [
        {"id": 1, "v": [255, 1], "_distance": 1.0}
    ]


def test_the_past_is_searched_as_it_was(notes: Shell) -> None:
    with st.connect(notes.db, background=False) as db:
        seq = db.seq
        db.tag("before")
        db["notes"].update(2, v=[50, 0])
        moment = db.log(1)[0].time
    for past in (("--seq", seq), ("--tag", "before")):
        assert notes.json("search", "notes", "[2, 0]", "-k", 1, *past)[0]["id"] == 2  # type: ignore[index]
    for now in ((), ("--at", moment.isoformat())):
        assert notes.json("search", "notes", "[50, 0]", "-k", 1, *now)[0]["id"] == 2  # type: ignore[index]


WRONG: list[tuple[tuple[object, ...], int, str]] = [
    (("notes", "[1]"), 2, "vectors of 2 numbers; the query has 1"),
    (("notes", "[NaN, 0]"), 2, "no NaN"),
    (("notes", '["a", "b"]'), 2, "a vector is a list of numbers"),
    (("notes", "[[[0, 0]]]"), 2, "vectors of 2 numbers; the query has 1x1x2"),
    (("notes", "7"), 2, "create_index('name', kind=\"fts\")"),
    (("notes", "rivers"), 2, "create_index('name', kind=\"fts\")"),
    (("notes", "[0, 0"), 2, "create_index('name', kind=\"fts\")"),
    (("notes", "@/nowhere.json"), 3, "cannot read /nowhere.json"),
    (("notes", "[0, 0]", "-k", "0"), 2, "k must be an integer from 1 to 10000; got 0"),
    (("notes", "[0, 0]", "--k", "10001"), 2, "k must be an integer from 1 to 10000"),
    (("notes", "[0, 0]", "--metric", "far"), 2, "metric must be one of"),
    (("notes", "[0, 0]", "--column", "w"), 1, "no column 'w'"),
    (("notes", "[0, 0]", "--column", "name"), 2, "needs fixed-size lists"),
    (("notes", "[0, 0]", "--columns", "nope"), 1, "nope"),
    (("notes", "[0, 0]", "--filter", "nope = 1"), 2, "nope"),
    (("notes", "[0, 0]", "--upper-bound", "nan"), 2, "distance_range"),
    (("plain", "[0, 0]"), 2, "no column holds vectors"),
    (("nothing", "[0, 0]"), 3, "no table 'nothing'"),
    (("notes", "[0, 0]", "--seq", "99"), 3, "seq 99"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG)
def test_a_wrong_search_is_one_line_and_its_exit_code(
    notes: Shell, words: tuple[object, ...], code: int, said: str
) -> None:
    assert notes("search", *words) == code, notes.err
    assert said in notes.err
    assert len(notes.err.splitlines()) == 1
    assert notes.out == ""


def test_a_search_works_over_a_server(notes: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("search", "notes", "[2.2, 0]", "-k", 3, "--filter", "id <> 2")
    here = notes.json(*asked)
    with st.connect(notes.db, background=False) as db:
        monkeypatch.setenv("SILTSTONE_URI", db.serve(port=0).url)
        assert notes.json(*asked) == here
        assert notes("search", "notes", "[1]") == 2
        assert "vectors of 2 numbers; the query has 1" in notes.err
