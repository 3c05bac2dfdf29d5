"""The tour of the guide shows what a person sees: a test types it into a terminal."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.cli.terminal import PROMPT, Terminal
from tests.test_documents import FENCED, ROOT

TOUR = [
    block[2]
    for block in FENCED.finditer((ROOT / "docs" / "guide.md").read_text())
    if block[1] == "console"
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|…)")


def typed(line: str) -> str | None:
    """Return what a person types on a line of the tour; None: they see it."""
    found = PROMPT.match(line)
    return line[found.end() :] if found and found[0].rstrip()[-1] in "$>" else None


def test_the_tour_shows_what_is_shown(tmp_path: Path) -> None:
    (tour,) = TOUR
    home, bin_ = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    bin_.mkdir()
    command = bin_ / "siltstone"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m siltstone "$@"\n')
    command.chmod(0o755)
    bash = ("bash", "--norc", "--noprofile")
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    with Terminal(command=bash, cwd=home, width=200, PS1="$ ", PATH=path) as terminal:
        times: dict[str, str] = {}

        def real(found: re.Match[str]) -> str:
            return times[found[0]]

        for line in tour.splitlines():
            text = typed(line)
            if text is not None:
                terminal.ask(TIME.sub(real, text))
                shown = TIME.findall(terminal.text)
                times |= dict(zip(TIME.findall(tour), shown, strict=False))
        terminal.prompt()
        seen = terminal.text.replace(str(home), "/home/ada").removesuffix("\n$")
    assert TIME.sub("TIME", seen).splitlines() == TIME.sub("TIME", tour).splitlines()
