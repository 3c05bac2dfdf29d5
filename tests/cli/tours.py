"""Tours: what pages show of a terminal, typed into one, and compared with what a person sees.

A `console` block of a page has lines with a prompt, which are typed, and all that is shown below.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.cli.terminal import PROMPT, Terminal
from tests.test_documents import FENCED, ROOT

WIDTH = 200
"""Of the terminal, in columns: no line of a page is wrapped."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|…)")
SCORE = re.compile(r" +\d\.\d{9,}(?!\d)")
"""Of a search by words: what it makes of counts depends on how rows lie in parts of the index."""
_HOME = "/home/ada"


def consoles(page: str) -> list[str]:
    """Return what a page shows of terminals, block by block."""
    found = FENCED.finditer((ROOT / page).read_text())
    return [block[2] for block in found if block[1] == "console"]


@contextmanager
def bash(folder: Path, width: int = WIDTH, programs: Path | None = None) -> Iterator[Terminal]:
    """Yield a shell in a new home.

    Args:
        programs: Where its `siltstone` and its `python` are, alone; by default those of the tests.
    """
    home = folder / "home"
    home.mkdir(exist_ok=True)
    variables = {"PS1": "$ "} if programs is None else {"PS1": "$ ", "PYTHONPATH": ""}
    path = os.pathsep.join([str(programs or _wrappers(folder / "bin")), os.environ["PATH"]])
    command = ("bash", "--norc", "--noprofile")
    with Terminal(command=command, cwd=home, width=width, PATH=path, **variables) as terminal:
        yield terminal


def _wrappers(bin_: Path) -> Path:
    """Write programs that are those of the tests into a folder, and return it."""
    bin_.mkdir(exist_ok=True)
    for name, module in {"siltstone": "-m siltstone ", "python": ""}.items():
        (bin_ / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module}"$@"\n')
        (bin_ / name).chmod(0o755)
    return bin_


def typed(line: str) -> str | None:
    """Return what a person types on a line of a page; None: they see it."""
    found = PROMPT.match(line)
    return line[found.end() :] if found and found[0].rstrip()[-1] in "$>" else None


def shown(terminal: Terminal, block: str, told: Callable[[str], str] = str) -> list[str]:
    """Type a block, and return what a person sees from its first line on, without times.

    Args:
        told: What is typed for a text of the page: an address may be another one.
    """
    times: dict[str, str] = {}
    terminal.prompt()
    first = len(terminal.screen.drawn()) - 1
    for line in block.splitlines():
        text = typed(line)
        if text is not None:
            terminal.ask(told(TIME.sub(partial(_real, times), text)))
            seen = TIME.findall("\n".join(terminal.screen.drawn()[first:]))
            times |= dict(zip(TIME.findall(block), seen, strict=False))
    terminal.prompt()
    lines = "\n".join(terminal.screen.drawn()[first:-1])
    return without_times(lines.replace(terminal.cwd, _HOME))


def _real(times: dict[str, str], found: re.Match[str]) -> str:
    """Return the time that was seen where the page has this one."""
    return times[found[0]]


def without_times(text: str) -> list[str]:
    """Return a text's lines with one word for times and for scores, to the last that has a word."""
    return SCORE.sub(" SCORE", TIME.sub("TIME", text.rstrip())).splitlines()
