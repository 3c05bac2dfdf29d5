"""`siltstone maintain` does what is due; a command that wrote does the same at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import siltstone as st
from tests.cli.shell import Shell
from tests.maintenance.ends import SMALL, behind, status_of, unmerged


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILTSTONE_MEMORY_BYTES_MAX", str(SMALL))
    monkeypatch.setenv("SILTSTONE_CLOSE_UPKEEP_S", "120")


def test_maintain_says_what_it_did(shell: Shell, tmp_path: Path) -> None:
    root = behind(tmp_path / "s")
    assert shell.json("maintain", "--db", root) == {"done": "merge", "left": ""}
    assert unmerged(root) == 0
    assert shell.json("maintain", "--db", root) == {"done": "", "left": ""}
    assert shell("maintain", "--db", tmp_path / "nowhere") == 3


def test_maintain_asks_an_owner_that_serves_and_is_refused_by_one_that_does_not(
    shell: Shell, tmp_path: Path
) -> None:
    root = behind(tmp_path / "s")
    with st.connect(root, background=False) as db:
        assert shell("maintain", "--db", root) == 6
        db.serve_local()
        assert shell.json("maintain", "--db", root) == {"done": "merge", "left": ""}
        assert db.status().tables[0].unmerged_rows == 0


def test_a_command_that_wrote_merges_what_is_due(shell: Shell, tmp_path: Path) -> None:
    root, rows = behind(tmp_path / "s"), tmp_path / "rows.ndjson"
    rows.write_text("".join(json.dumps({"id": n, "v": 2}) + "\n" for n in range(10)))
    assert shell("upsert", "t", rows, "--db", root) == 0, shell.err
    found = status_of(root)
    assert (found.tables[0].base_rows, found.owed) == (600, ())


def test_an_optimize_of_histories_finds_its_tables_itself(shell: Shell, tmp_path: Path) -> None:
    root = behind(tmp_path / "s")
    assert shell("optimize", "t", "--histories", "--db", root) == 2
    assert shell.lines("optimize", "--histories", "--db", root)[1:] == [
        ["", "0", "0", "0", "0", "0"]
    ]
