"""Terminal: a program in a real pseudo-terminal, and what a person would see of it.

pexpect starts it and types, pyte draws what it writes, and answers where the cursor is.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pexpect
import pyte
from pyte.screens import Char

PROMPT = re.compile(r"(\$|[\w.:…-]+( \[[^]]*\])?>) ?")
LONG = "select count(*) from range(10000000000) a, range(10000000000) b;"
"""A statement that takes years."""
_BOUND_S = 200
_READ_S = 0.2

_NOT_KEPT = ("SILTSTONE", "COLUMNS", "LINES")


class Screen(pyte.HistoryScreen):
    """A screen that remembers all lines, and answers where its cursor is."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height, history=100_000, ratio=0.5)
        self.answer: Callable[[str], object] = lambda _: None

    def write_process_input(self, data: str) -> None:
        self.answer(data)

    def cells(self) -> list[list[Char]]:
        """Return all lines up to the cursor, each with the look of its characters."""
        below = [self.buffer[y] for y in range(self.cursor.y + 1)]
        lines = (*self.history.top, *below)
        return [[line[x] for x in range(self.columns)] for line in lines]

    def drawn(self) -> list[str]:
        """Return the text of all lines up to the cursor."""
        return ["".join(cell.data for cell in line).rstrip() for line in self.cells()]


class Terminal:
    """See the module. A context manager, which ends the program."""

    def __init__(
        self,
        *words: object,
        command: Sequence[str] = (sys.executable, "-m", "siltstone"),
        cwd: Path,
        width: int = 80,
        height: int = 60,
        into: Path | None = None,
        **variables: str,
    ) -> None:
        """Start a command, `siltstone`, in a directory; its stdout may go into a file."""
        self.screen = Screen(width, height)
        self.cwd = str(cwd)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        # Processes of pytest-xdist have a width of theirs in COLUMNS.
        kept = {name: each for name, each in os.environ.items() if not name.startswith(_NOT_KEPT)}
        environment = {
            **kept,
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(cwd / "state"),
            **variables,
        }
        started = [*command, *map(str, words)]
        if into is not None:
            started = ["/bin/sh", "-c", f'exec "$@" >{shlex.quote(str(into))}', "sh", *started]
        self.child = pexpect.spawn(
            started[0],
            started[1:],
            dimensions=(height, width),
            cwd=str(cwd),
            env=environment,  # pyright: ignore[reportArgumentType]
            echo=True,
        )
        self.child.delaybeforesend = None
        self.screen.answer = self.child.send

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.isalive():  # `close` gives it a tenth of a second
            self.child.kill(signal.SIGKILL)
            self.child.wait()
        self.child.close()

    @property
    def text(self) -> str:
        """All that was shown up to the cursor."""
        return "\n".join(self.screen.drawn())

    def cpu_s(self) -> float:
        """Return how long the program has worked: the seconds of a core."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def read(self) -> None:
        """Take what the program has written, if it has."""
        try:
            data: Any = self.child.read_nonblocking(1 << 16, timeout=_READ_S)
        except pexpect.TIMEOUT:
            return
        self.raw += data
        self._stream.feed(data)

    def until(self, claim: Callable[[], object], what: str) -> None:
        """Read until something is to be seen."""
        end = time.monotonic() + _BOUND_S
        while not claim():
            assert time.monotonic() < end, f"waited for {what}; there is:\n{self.text}"
            self.read()

    def sees(self, text: str) -> None:
        """Wait until a text is to be seen."""
        self.until(lambda: text in self.text, repr(text))

    def prompt(self, below: int = -1) -> None:
        """Wait for an empty prompt, on a line below one."""

        def is_there() -> bool:
            lines = self.screen.drawn()
            return len(lines) - 1 > below and PROMPT.fullmatch(lines[-1]) is not None

        self.until(is_there, "a prompt")

    def type(self, text: str) -> None:
        """Type a text, each line of it with Enter."""
        self.child.send(text.replace("\n", "\r"))

    def ask(self, text: str) -> str:
        """Type commands, and Enter; return what is shown below, up to the next prompt."""
        self.prompt()
        line = len(self.screen.drawn()) - 1
        self.type(f"{text}\n")
        self.prompt(below=line + text.count("\n"))
        shown = self.screen.drawn()[line + 1 + text.count("\n") : -1]
        return "\n".join(shown).strip("\n")

    def end(self) -> int | None:
        """Wait for the end of the program; return its exit code, None if a signal ended it."""
        while True:
            try:
                data: Any = self.child.read_nonblocking(1 << 16, timeout=_BOUND_S)
            except pexpect.EOF:
                break
            self.raw += data
            self._stream.feed(data)
        self.child.wait()
        return self.child.exitstatus
