"""Shell: runs commands in this process, as `siltstone ...` does, and keeps what they print."""

import json
from pathlib import Path

import pytest

from siltstone.cli import main


class Shell:
    """Commands on the store of SILTSTONE_URI; `out` and `err` are those of the last command."""

    def __init__(self, db: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.db, self._capsys = db, capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: object) -> object:
        assert self(*arguments, "--json") == 0, self.err
        return json.loads(self.out)

    def lines(self, *arguments: object) -> list[list[str]]:
        assert self(*arguments) == 0, self.err
        return [line.split("\t") for line in self.out.splitlines()]
