"""Help lists the commands in groups, and each line of it whole."""

from __future__ import annotations

import re

import pytest
import typer.main

from siltstone.cli import main
from siltstone.cli.app import app

GROUPS = ("Look", "Write", "Past", "Maintain", "Run")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_the_commands_come_in_five_groups_each_of_them_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = re.split(r"^(\w+):$", help_of(capsys), flags=re.MULTILINE)
    titles, bodies = parts[1::2], parts[2::2]
    assert titles == ["Options", *GROUPS]
    shown = [line.split()[0] for body in bodies[1:] for line in body.splitlines() if line.strip()]
    tree = typer.main.get_command(app)
    assert sorted(shown) == sorted(tree.commands)  # type: ignore[attr-defined]
    assert len(shown) == 35 + len(app.registered_groups)


@pytest.mark.parametrize("words", [[], ["tag"], ["index"], ["apps"]], ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    lines = help_of(capsys, *words).splitlines()
    assert [line for line in lines if line.endswith("...") and "[ARGS]" not in line] == []
