"""Lines: files that processes append lines to, each in one write, whoever is killed."""

from __future__ import annotations

from pathlib import Path


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file; none if it is not there.

    Who reads while another one writes, or after that was killed, may find half of the last line.
    """
    return path.read_text().split("\n")[:-1] if path.exists() else []
