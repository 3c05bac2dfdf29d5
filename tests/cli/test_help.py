"""Help lists the commands in groups, and of each command what it takes and nothing else."""

from __future__ import annotations

import re

import pytest
import typer.main

from siltstone.cli import main
from siltstone.cli.app import app

GROUPS = ("Look", "Write", "Past", "Maintain", "Run")

REMOTE = {"--token-file", "--cafile"}
LOCAL = ("init", "serve", "backup", "repair")
"""Commands that need the store's files."""


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", text.partition("Options:")[2]))


def test_the_commands_come_in_five_groups_each_of_them_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = re.split(r"^(\w+):$", help_of(capsys), flags=re.MULTILINE)
    titles, bodies = parts[1::2], parts[2::2]
    assert titles == ["Options", *GROUPS]
    shown = [line.split()[0] for body in bodies[1:] for line in body.splitlines() if line.strip()]
    tree = typer.main.get_command(app)
    assert sorted(shown) == sorted(tree.commands)  # type: ignore[attr-defined]
    assert len(shown) == 39 + len(app.registered_groups)


@pytest.mark.parametrize("words", [[], ["tag"], ["index"], ["apps"]], ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    lines = help_of(capsys, *words).splitlines()
    assert [line for line in lines if line.endswith("...") and "[ARGS]" not in line] == []


@pytest.mark.parametrize("command", LOCAL)
def test_a_command_that_needs_the_files_takes_no_option_of_a_server(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    text = help_of(capsys, command)
    assert not REMOTE & options_in(text)
    assert "http" not in text.partition("--db")[2].partition("--")[0]


def test_init_takes_the_store_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert options_in(help_of(capsys, "init")) == {"--db", "--help"}


def test_a_command_for_any_store_takes_the_options_of_a_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("tables", "create", "query", "checkpoint"):
        assert options_in(help_of(capsys, command)) >= REMOTE
