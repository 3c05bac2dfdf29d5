"""History: what a user typed into shells, in a file that only the user may read.

    $XDG_STATE_HOME/siltstone/shell_history, else ~/.local/state/siltstone/shell_history

It has prompt_toolkit's form. Above `BYTES_MAX` the older half is dropped. Where there is no place
for it, a shell remembers its own statements.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

BYTES_MAX = 1 << 20
_ENTRY_CHARACTERS_MAX = 64 << 10


class BoundedHistory(FileHistory):
    """A history whose file has a bound, and whose failures end no shell."""

    def __init__(self, path: Path) -> None:
        """Make the file, if there is none.

        Raises:
            OSError: It cannot be made, or not be kept from others.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        super().__init__(str(path))
        self._path = path

    def store_string(self, string: str) -> None:
        if len(string) > _ENTRY_CHARACTERS_MAX:
            return
        with suppress(OSError):
            if self._path.stat().st_size > BYTES_MAX:
                self._halve()
            super().store_string(string)

    def _halve(self) -> None:
        kept = list(self._newest(BYTES_MAX // 2))
        part = self._path.with_suffix(".part")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shorter = FileHistory(str(part))
        for each in reversed(kept):
            shorter.store_string(each)
        part.replace(self._path)

    def _newest(self, nbytes: int) -> Iterator[str]:
        for each in self.load_history_strings():
            nbytes -= len(each.encode(errors="replace"))
            if nbytes < 0:
                return
            yield each


def history_of(environment: Mapping[str, str]) -> History:
    """Return the history of the user."""
    base = environment.get("XDG_STATE_HOME", "")
    try:
        state = Path(base)
        if not state.is_absolute():
            state = Path("~/.local/state").expanduser()
        return BoundedHistory(state / "siltstone" / "shell_history")
    except (OSError, RuntimeError):  # a full disk, no right, no home
        return InMemoryHistory()
