"""`siltstone backup` and `siltstone restore`: a second store with the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import siltstone
from siltstone.cli.exits import Exit


def one_row(shell) -> None:
    shell("create", "t", "-c", "id:int64", "-c", "v:string", "--pk", "id")
    with siltstone.connect(shell.db, background=False) as db:
        db["t"].upsert({"id": 1, "v": "x"})


def test_a_store_is_backed_up_listed_and_restored(shell, tmp_path: Path):
    one_row(shell)
    made = shell.json("backup", tmp_path / "b")
    assert (made["seq"], made["lost_tags"]) == (2, [])
    assert shell("backup", tmp_path / "b") == Exit.USAGE
    assert "incremental" in shell.err
    assert shell.json("backup", tmp_path / "b", "--incremental")["copied"] <= 1  # a record
    listed = shell.lines("restore", tmp_path / "b")
    assert listed[0] == ["seq", "time", "made", "bytes", "damaged"]
    assert {line[0] for line in listed[1:]} == {"2"}
    assert shell.json("restore", tmp_path / "b", tmp_path / "r")["seq"] == 2
    assert shell("scan", "t", "--db", tmp_path / "r", "--ndjson") == 0
    assert json.loads(shell.out) == {"id": 1, "v": "x"}


def test_a_store_with_an_owner_is_backed_up_beside_it(shell, tmp_path: Path):
    one_row(shell)
    with siltstone.connect(shell.db, background=False) as db:
        db["t"].upsert({"id": 2, "v": "y"})
        assert shell.json("backup", tmp_path / "b", "--link")["seq"] == 3
    assert shell("restore", tmp_path / "b", tmp_path / "r", "--quiet") == 0
    assert shell.out == ""
    assert shell.lines("get", "t", "2", "--db", tmp_path / "r")[1] == ["2", "y"]


def test_exit_codes_say_what_is_wrong_with_a_backup(shell, tmp_path: Path):
    one_row(shell)
    assert shell("restore", tmp_path / "none") == Exit.USAGE
    assert shell("backup", tmp_path / "b", "--quiet") == 0
    assert shell("restore", tmp_path / "b", tmp_path / "r", "--seq", "1") == Exit.USAGE
    next((tmp_path / "b/log").iterdir()).write_bytes(b"")
    assert shell("restore", tmp_path / "b", tmp_path / "r") == Exit.CORRUPTED
    assert shell("scan", "t", "--db", tmp_path / "r") != 0
