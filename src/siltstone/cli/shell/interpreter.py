"""Interpreter: runs scripts: statements on the session, dot commands, their errors.

A script is what a person typed, a file, or standard input. It ends at its first error.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import cast

from siltstone.cli.exits import NotFoundError, UsageError, in_lines
from siltstone.cli.sessions import note
from siltstone.cli.shell.dots import dot_of
from siltstone.cli.shell.screen import Screen
from siltstone.cli.shell.session import ShellSession
from siltstone.cli.shell.stopping import Stoppable
from siltstone.errors import SiltstoneError
from siltstone.local.statements.script import Command, commands

_FILES_MAX = 16
_PIECE_BYTES = 64 << 10


class ScriptError(Exception):
    """A script ended at an error, which is told already."""


class Interpreter:
    """See the module. One thread."""

    def __init__(self, session: ShellSession, screen: Screen) -> None:
        self.session = session
        self._screen = screen
        self._stoppable = Stoppable(session.cut_off)
        self._files: list[Path] = []

    def run_stdin(self) -> None:
        """Run what comes from standard input, each command once it is whole; see `run`."""
        read = cast("BufferedReader", sys.stdin.buffer)
        self.run(_pieces(read, "standard input"), "siltstone: line ")

    def run(self, pieces: Iterable[str], where: str = "") -> None:
        """Run the commands of a script.

        Args:
            pieces: The text, in pieces.
            where: What is told before the line of an error; empty: no line is told.

        Raises:
            ScriptError: One failed; it is told.
            Interrupted: Ctrl-C stopped one.
            EOFError: One was `.quit`.
        """
        line = 1
        try:
            for command in commands(pieces):
                line = command.line
                self._do(command)
        except SiltstoneError as error:
            note(f"{f'{where}{line}: ' if where else ''}{in_lines(error)}")
            self.tell_left(error)
            raise ScriptError from error

    def _do(self, command: Command) -> None:
        if not command.is_dot:
            self._statement(command.text)
            return
        dot, given = dot_of(command.text)
        if dot.run is None:
            self._read(given)
        else:
            dot.run(self.session, self._screen, given)

    def _statement(self, statement: str) -> None:
        bound, begun = self._screen.bound, time.perf_counter()
        rows_max = None if bound is None else bound + 1
        answer = self._stoppable.run(lambda: self.session.run(statement, rows_max))
        seconds = time.perf_counter() - begun
        if answer.rows is not None:
            self._screen.show(answer.rows, answer.said)
        self._screen.say(answer.said)
        self._screen.say_time(seconds)

    def _read(self, name: str) -> None:
        """Run the commands of a file.

        Raises:
            NotFoundError: It cannot be read.
            UsageError: It is being read, or too many files read each other.
        """
        try:
            path = Path(name).expanduser().resolve()
            file = path.open("rb")
        except (OSError, RuntimeError, ValueError) as error:  # no such user; a null in the name
            why = getattr(error, "strerror", None) or error
            raise NotFoundError(f"cannot read {name}: {why}") from error
        with file:
            if path in self._files:
                raise UsageError(f"{name} reads itself")
            if len(self._files) >= _FILES_MAX:
                raise UsageError(f"{name} is one file too many: {_FILES_MAX} read each other")
            self._files.append(path)
            try:
                self.run(_pieces(file, name), f"{name}:")
            finally:
                self._files.pop()

    def tell_left(self, error: BaseException) -> None:
        """Say what an error, or an interrupt, ended with it."""
        left = self.session.after_error(error)
        if left:
            note(left)


def _pieces(file: BufferedReader, name: str) -> Iterator[str]:
    """Yield the text of a file as it comes.

    Raises:
        UsageError: It is no text in UTF-8.
        NotFoundError: It cannot be read.
    """
    try:
        yield from codecs.iterdecode(iter(partial(file.read1, _PIECE_BYTES), b""), "utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is no text in UTF-8: {error}") from None
    except OSError as error:
        raise NotFoundError(f"cannot read {name}: {error.strerror}") from error
