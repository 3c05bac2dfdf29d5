"""Stores that are behind with their maintenance, and children of which a test hears."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import siltstone as st

SMALL = 1 << 20
"""Of memory: the indexes of 512 unmerged rows are the share of it at which a merge is due."""
ROWS = 600


def fill(db: st.Store, rows: int = ROWS, value: int = 1) -> None:
    """Flush some rows of a table."""
    if "t" not in db.tables():
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    db["t"].upsert(pa.table({"id": range(rows), "v": [value] * rows}))
    db.checkpoint()


def behind(root: Path, rows: int = ROWS) -> Path:
    """Make a store that is behind with a merge; return its path."""
    with st.connect(root, background=False) as db:
        fill(db, rows)
    return root


def age(root: Path, seconds: float = 7200) -> None:
    """Have the files of the records written some hours ago: a vacuum is due."""
    for file in (root / "manifest").iterdir():
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


def status_of(root: Path) -> st.Status:
    with st.connect(root, read_only=True, memory_bytes_max=SMALL) as db:
        return db.status()


def unmerged(root: Path) -> int:
    return status_of(root).tables[0].unmerged_rows


def is_sound(root: Path, value: int) -> bool:
    """Say whether a store opens, has the last value in all rows, and is sound."""
    with st.connect(root, background=False) as db:
        found = set(db["t"].to_arrow()["v"].to_pylist())
        return found == {value} and db.verify(deep=True).is_sound


@dataclass(frozen=True)
class Hanging:
    """A Python of children that do nothing for ever.

    Each notes that it was started, but for those of a living owner, which have a low priority.
    """

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "python"

    @property
    def pids(self) -> list[int]:
        """Those of all children that were started."""
        noted = self.folder / "started"
        return [int(line) for line in noted.read_text().split()] if noted.exists() else []

    def hear(self) -> int:
        """Wait until a child was started; return its pid."""
        return int((self.folder / "news").read_text())

    def make(self, *, tells: bool = False) -> Hanging:
        """Make it; one that `tells` waits until somebody hears."""
        told = f"echo $$ > {self.folder}/news\n" if tells else ""
        self.python.write_text(
            "#!/bin/sh\n[ $(nice) -ge 19 ] && exec sleep 3600\n"
            f"echo $$ >> {self.folder}/started\n{told}exec sleep 3600\n"
        )
        self.python.chmod(0o755)
        if tells:
            os.mkfifo(self.folder / "news")
        return self


PROGRAM = """
import sys
if {python!r}: sys.executable = {python!r}
import siltstone as st
OPTIONS = dict(memory_bytes_max=1 << 20, retention="0s")
"""


def program(text: str, *arguments: object, python: Path | str = "") -> subprocess.Popen[str]:
    """Start a program whose stores have children of a Python."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(python=str(python)) + text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(text: str, *arguments: object, python: Path | str = "") -> str:
    """Run such a program to its end; return what it printed; it says nothing else."""
    started = program(text, *arguments, python=python)
    out, errors = started.communicate(timeout=300)
    assert (started.returncode, errors) == (0, "")
    return out


def owner(root: Path, **options: Any) -> st.Store:
    """Own a store as one that is behind."""
    return st.connect(root, **{"memory_bytes_max": SMALL, "close_upkeep_s": 120, **options})
