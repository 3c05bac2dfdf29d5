"""Patching: unified diffs, applied strictly.

The lines that a hunk replaces, context included, must be in the file exactly once; its line numbers
are for people. So a patch survives a change elsewhere in its file, and nothing is ever guessed.
Of our own, because a machine that runs the tests may have neither git nor patch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*")


class PatchError(Exception):
    """A patch that is none, or that does not fit the source any more: write it anew."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Adjacent lines before and after, each with its line end."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """The hunks of one file, whose path is relative to the root."""

    path: str
    hunks: tuple[Hunk, ...]

    def applied(self, text: str) -> str:
        """Return `text` with the hunks in it.

        Raises:
            PatchError: The lines before are not there, or more than once.
        """
        for hunk in self.hunks:
            places = [*_places(text, hunk.before)]
            if len(places) != 1:
                first = hunk.before.splitlines()[0].strip()
                raise PatchError(
                    f"{self.path}: the lines from {first!r} on are there {len(places)} times, not"
                    " once"
                )
            text = text[: places[0]] + hunk.after + text[places[0] + len(hunk.before) :]
        return text


def _places(text: str, lines: str) -> Iterator[int]:
    """Yield where whole `lines` begin in `text`."""
    at = text.find(lines)
    while at != -1:
        if at == 0 or text[at - 1] == "\n":
            yield at
        at = text.find(lines, at + 1)


def parse(diff: str) -> tuple[FileChange, ...]:
    """Return the changes of a unified diff.

    Raises:
        PatchError: It is none, makes or deletes a file, or its line counts are wrong.
    """
    lines = diff.splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.startswith("--- ")]
    if not starts or starts[0] != 0:
        raise PatchError("a diff begins with '--- path'")
    ends = [*starts[1:], len(lines)]
    return tuple(_file(lines[at:end]) for at, end in zip(starts, ends, strict=True))


def _file(lines: Sequence[str]) -> FileChange:
    old = lines[0].removeprefix("--- ").split("\t")[0].strip()
    new = lines[1] if len(lines) > 1 else ""
    path = new.removeprefix("+++ ").split("\t")[0].strip()
    if not new.startswith("+++ ") or path != old:
        raise PatchError(f"{old}: the next line names the same file, with '+++ '")
    starts = [index for index, line in enumerate(lines) if line.startswith("@@")]
    if not starts or starts[0] != 2:
        raise PatchError(f"{path}: no hunk follows")
    ends = [*starts[1:], len(lines)]
    found = (_hunk(path, lines[at:end]) for at, end in zip(starts, ends, strict=True))
    return FileChange(path, tuple(found))


def _hunk(path: str, lines: Sequence[str]) -> Hunk:
    head = _HUNK.fullmatch(lines[0].rstrip("\n"))
    if head is None or any(line[0] not in " +-" for line in lines[1:]):
        raise PatchError(f"{path}: {lines[0].strip()!r} begins no hunk of ' ', '+' and '-' lines")
    before = [line[1:] for line in lines[1:] if line[0] in " -"]
    after = [line[1:] for line in lines[1:] if line[0] in " +"]
    told = tuple(int(count or 1) for count in head.groups())
    if told != (len(before), len(after)) or not before or before == after:
        raise PatchError(f"{path}: {lines[0].strip()!r} says other counts of lines than it has")
    return Hunk("".join(before), "".join(after))
