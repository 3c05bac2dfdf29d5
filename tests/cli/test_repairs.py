"""`siltstone verify` and `siltstone repair` on a store that does not open, and on drift."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa

import siltstone
from siltstone.cli.exits import Exit


def filled(shell) -> None:
    shell("create", "t", "-c", "id:int64", "-c", "v:string", "--pk", "id")
    shell("create", "p", "-c", "id:int64", "-c", "v:string")
    with siltstone.connect(shell.db, background=False) as db:
        db["t"].upsert({"id": 1, "v": "x"})
        db["p"].append([{"id": 1, "v": "x"}])
        db.checkpoint()
        db.merge()


def test_a_store_that_does_not_open_is_verified_and_repaired(shell):
    filled(shell)
    with siltstone.connect(shell.db, background=False):
        pass
    newest = max((shell.db / "manifest").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert shell("scan", "t") == Exit.CORRUPTED
    assert shell("verify") == Exit.CORRUPTED
    assert newest.name in shell.out
    assert shell("repair", "--dry-run") == 0
    assert "would repair 1 things" in shell.err
    assert shell("repair") == Exit.USAGE
    assert "--yes" in shell.err
    done = shell.json("repair", "--yes")
    assert (len(done["steps"]), done["is_whole"]) == (1, True)
    assert shell.lines("scan", "t")[1:] == [["1", "x"]]
    assert shell.json("repair", "--yes", "--deep")["steps"] == []
    assert shell.json("verify", "--deep")["findings"] == []


def test_what_cannot_be_repaired_has_an_exit_code_of_its_own(shell):
    filled(shell)
    for file in (shell.db / "commits/data").iterdir():
        file.write_bytes(b"")
    assert shell("repair", "--yes") == Exit.CORRUPTED
    assert "restore it from a backup" in shell.out
    assert shell("verify", "--quiet") == Exit.CORRUPTED


def test_rows_that_a_stranger_appended_are_previewed_and_adopted(shell):
    filled(shell)
    folder: Path = next((shell.db / "tables").glob("p-*"))
    rows = pa.table({"id": [7, 8], "v": ["s", "s"]})
    lance.write_dataset(rows, str(folder), mode="append")
    assert shell.lines("verify")[1][0] == "drift"
    assert shell.lines("repair", "--import-external", "p", "--dry-run")[1:] == [
        ["7", "s"],
        ["8", "s"],
    ]
    assert shell("repair", "--import-external", "p") == Exit.USAGE
    assert shell.json("repair", "--import-external", "p", "--yes")["rows"] == 2
    assert len(shell.lines("scan", "p")) == 4
    assert shell.lines("verify") == [["severity", "path", "message"]]
    assert shell("repair", "--import-external", "none", "--yes") == Exit.NOT_FOUND
