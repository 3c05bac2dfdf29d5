"""Script: what a person types and what a file says, cut into statements and dot commands.

A statement ends at its semicolon, the last one also at the end of the script. A dot command, like
`.tables`, begins where a statement could begin and is the rest of its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from siltstone.errors import RequestError
from siltstone.query.sql.allowed import TEXT_BYTES_MAX
from siltstone.query.sql.writes.words import end_of_first, first_of


@dataclass(frozen=True, slots=True)
class Command:
    """A statement without its semicolon, or a dot command; `line` is where it begins, from 1."""

    text: str
    line: int

    @property
    def is_dot(self) -> bool:
        """Whether it is a dot command."""
        return self.text.startswith(".")


def commands(pieces: Iterable[str]) -> Iterator[Command]:
    """Yield the commands of a script that comes in pieces, each as soon as it is whole.

    Raises:
        RequestError: One has more characters than a statement may have.
    """
    left, line = "", 1
    for piece in pieces:
        left += piece
        while (end := _end_of_command(left)) is not None:
            yield from _command(left[:end], line)
            line, left = line + left.count("\n", 0, end), left[end:]
        if len(left) > TEXT_BYTES_MAX:
            raise RequestError(f"line {line}: a statement has at most {TEXT_BYTES_MAX} characters")
    yield from _command(left, line)


def is_whole(text: str) -> bool:
    """Say whether a text ends where a command ends."""
    while (end := _end_of_command(text)) is not None:
        text = text[end:]
    return not text or _begin_of(text) == len(text)


def _end_of_command(text: str) -> int | None:
    """Return where the first command ends; None: it is not whole."""
    begin = _begin_of(text)
    if begin is None or begin == len(text):
        return None
    if text[begin] == ".":
        end = text.find("\n", begin)
        return None if end < 0 else end + 1
    end = end_of_first(text[begin:])
    return None if end is None else begin + end


def _begin_of(text: str) -> int | None:
    """Return where the first command begins; None: in a comment that does not end."""
    try:
        return first_of(text)
    except RequestError:
        return None


def _command(text: str, line: int) -> Iterator[Command]:
    begin = _begin_of(text) or 0
    found = text[begin:].rstrip().rstrip(";").rstrip()
    if found:
        yield Command(found, line + text.count("\n", 0, begin))
