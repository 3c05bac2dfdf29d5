"""Planted: the defects, as the `.patch` files beside this module describe them.

Title: what the defect makes of the store, in one line
Breaks: numbers of guarantees (docs/guarantees.md), comma separated
Guarded-by: the tests that claim to notice, as arguments of pytest

Why somebody might write it.

--- src/siltstone/...            the diff
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path

from proof.defects.patching import FileChange, PatchError, parse

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Planted:
    """One defect; `suite` are arguments of pytest, paths relative to the root.

    `digest` is that of the patch without its context and its paths: what was found out about
    another defect says nothing of this one, but the lines around it may change, and files may move.
    """

    name: str
    digest: str
    title: str
    breaks: tuple[int, ...]
    suite: tuple[str, ...]
    changes: tuple[FileChange, ...]

    def plant(self, root: Path) -> None:
        """Change the sources under `root`, which has the `src` of the project.

        Raises:
            PatchError: The source is not what the patch was made for.
        """
        for change in self.changes:
            path = root / change.path
            if not path.is_file():
                raise PatchError(f"{self.name}: there is no {change.path}")
            path.write_text(change.applied(path.read_text()))


def read(path: Path) -> Planted:
    """Return the defect that a patch describes.

    Raises:
        PatchError: It is not written as the module says.
    """
    head, mark, diff = path.read_text().partition("\n--- ")
    fields = dict(line.split(": ", 1) for line in head.partition("\n\n")[0].splitlines())
    if not mark or [*fields] != ["Title", "Breaks", "Guarded-by"]:
        raise PatchError(f"{path.name}: Title, Breaks and Guarded-by come first, then a diff")
    try:
        changes = parse(f"--- {diff}")
    except PatchError as error:
        raise PatchError(f"{path.name}: {error}") from error
    return Planted(
        name=path.stem,
        digest=_digest(head, diff),
        title=fields["Title"],
        breaks=tuple(int(number) for number in fields["Breaks"].split(",")),
        suite=tuple(shlex.split(fields["Guarded-by"])),
        changes=changes,
    )


def _digest(head: str, diff: str) -> str:
    lines = [line for line in diff.splitlines() if not line.startswith(("+++ ", "--- "))]
    changed = [line for line in lines if line.startswith(("+", "-"))]
    told = head.partition("\n\n")[0].splitlines()
    return hashlib.sha256("\n".join([*told, *changed]).encode()).hexdigest()[:16]


def every() -> tuple[Planted, ...]:
    """Return all defects, by name."""
    return tuple(read(path) for path in sorted(FOLDER.glob("*.patch")))
