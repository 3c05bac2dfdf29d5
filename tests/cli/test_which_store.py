"""The option --db says which store, before the command or after it, and then the variable does."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.cli import main
from tests.cli.shell import Shell


@pytest.fixture
def other(shell: Shell, tmp_path: Path) -> Path:
    """A second store, with a table; SILTSTONE_URI names the first, which has none."""
    path = tmp_path / "other"
    assert shell("init", "--db", path) == 0
    assert shell("create", "t", "-c", "id:int64", "--db", path) == 0
    return path


def test_the_option_comes_before_the_command_or_after_it(shell: Shell, other: Path) -> None:
    assert len(shell.lines("tables")) == 1
    for words in (["--db", other, "tables"], [f"--db={other}", "tables"], ["-d", other, "tables"]):
        assert [line[0] for line in shell.lines(*words)] == ["table", "t"]
    assert shell.lines("tables", "--db", other) == shell.lines("--db", other, "tables")
    assert shell("--db", other, "tag", "add", "x") == 0, shell.err
    assert shell.lines("--db", other, "tag", "ls")[1][0] == "x"
    assert shell.lines("tag", "ls") == [["tag", "seq"]]


def test_the_option_before_a_command_may_make_a_store(shell: Shell, tmp_path: Path) -> None:
    assert shell("--db", tmp_path / "new", "init") == 0, shell.err
    assert (tmp_path / "new" / "manifest").is_dir()


def test_two_stores_are_refused_and_the_same_one_twice_is_not(shell: Shell, other: Path) -> None:
    assert shell("--db", other, "drop", "t", "--yes", "--db", shell.db) == 2
    (line,) = shell.err.splitlines()
    assert str(other) in line
    assert str(shell.db) in line
    assert len(shell.lines("--db", other, "tables", "--db", other)) == 2


@pytest.mark.parametrize("words", [["token", "read"], ["restore", "x"], ["bench"], ["demo"]])
def test_a_command_without_a_store_takes_none(shell: Shell, words: list[str]) -> None:
    assert shell("--db", shell.db, *words) == 2
    assert not shell.out
    (line,) = shell.err.splitlines()
    assert f"{words[0]} takes no --db" in line


def test_the_variable_is_no_option_that_a_command_could_refuse(shell: Shell) -> None:
    assert shell("token", "read") == 0, shell.err


def test_without_a_store_the_message_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SILTSTONE_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    for words in (["tables"], ["init"], ["tag", "ls"]):
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert not out
        (line,) = err.splitlines()
        assert "--db" in line
        assert "SILTSTONE_URI" in line
    assert list(tmp_path.iterdir()) == []
