"""The folder of a bulk commit: one of three marks says who may delete what was staged.

    <home>/.attached/<job>/OPEN        its files may be discarded; then one of
                          /ATTACHED    a transaction tried to name them: only vacuum may delete
                          /DISCARDED   they will be deleted, no transaction may name them

A transaction and a discard rename the same file, so only one of them can win. Next to the mark lie
keys that tasks have sorted, and, of rows that do not go to base, their dataset. A folder that is
gone was discarded or vacuumed: no transaction names what was in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from siltstone.formats.manifest import PRIVATE_DIRECTORY
from siltstone.storage.files.files import Files

_OPEN, _ATTACHED, _DISCARDED = "OPEN", "ATTACHED", "DISCARDED"
_WITHOUT_ROWS = {_OPEN, _ATTACHED, _DISCARDED, PRIVATE_DIRECTORY, "_versions", "_transactions"}
"""What is in a folder before the first row: the mark, and the first version of the dataset."""


class JobFolder(msgspec.Struct, frozen=True):
    """A folder at a path; any process that sees it may hold one."""

    files: Files
    path: Path

    def open(self) -> None:
        """Make the folder, durable, with the mark that its files may be discarded."""
        self.files.mkdir(self.path)
        self.files.write(self.path / _OPEN, b"")
        self.files.sync_dir(self.path)

    def attach(self) -> None:
        """Mark, durable, that a transaction tries to name the files.

        Raises:
            FileNotFoundError: They were discarded or vacuumed.
        """
        if not self.files.exists(self.path / _ATTACHED):
            try:
                self.files.rename(self.path / _OPEN, self.path / _ATTACHED)
            except FileNotFoundError:
                if not self.files.exists(self.path / _ATTACHED):  # else another one was first
                    raise
        self.files.sync_dir(self.path)  # the process that marked it may have died before that

    def discard(self) -> bool:
        """Mark that no transaction may name the files; False if one has tried, or they are gone."""
        with suppress(FileNotFoundError):
            self.files.rename(self.path / _OPEN, self.path / _DISCARDED)
            self.files.sync_dir(self.path)
            return True
        return False

    def remove_without_rows(self) -> bool:
        """Remove the folder if no file of rows is in it: then no transaction can have named one.

        What a crash, a full disk or a late task leaves of it is a vacuum's. Returns whether it is
        gone.
        """
        with suppress(OSError):
            if not _WITHOUT_ROWS.issuperset(self._tops()):
                return False
            for path in self._below(self.path):
                if self.files.is_dir(path):
                    self.files.rmdir(path)
                else:
                    self.files.unlink(path)
            self.files.rmdir(self.path)
            return True
        return False

    def _tops(self) -> set[str]:
        """Return what is in the folder, empty directories left out."""
        paths = [self.path / name for name in self.files.list(self.path)]
        return {path.name for path in paths if not self.files.is_dir(path) or self.files.list(path)}

    def _below(self, folder: Path) -> Iterator[Path]:
        """Yield all that is below a folder, the innermost first."""
        for name in self.files.list(folder):
            path = folder / name
            if self.files.is_dir(path):
                yield from self._below(path)
            yield path
