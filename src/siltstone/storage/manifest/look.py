"""Look: whether the store is still the one that some work was planned on.

The directory may be moved or replaced, or an older copy put in its place, file by file. So the path
must lead to the directories that the files are bound to, the record of the plan must be there, by
the same writer, and what was written since must be there, too.

A record that is gone proves nothing if FLOOR does not keep it: a vacuum took it. Nor does a damaged
one: the next record is whole again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from siltstone.errors import CorruptionError, ReplacedError
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.files.place import require_in_place
from siltstone.storage.manifest.floor import Floor


@dataclass(frozen=True, slots=True)
class Look:
    """See the module. No state; any thread.

    Args:
        files: Bound to the store's directory.
        root: The directory.
        read: Reads a record by its number.
        kept: Reads FLOOR.
        first_missing: Names a file that is missing, and that only the second of two records names.
    """

    files: Files
    root: Path
    read: Callable[[int], Record]
    kept: Callable[[], Floor]
    first_missing: Callable[[Record, Record], str | None]

    def require_ours(self, known: Record, following: Record | None = None) -> None:
        """Check that the store is still the one of a record; before a batch of deletes, say.

        `following`: a record that is planned on it, whose new files must be there, too.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were.
            CorruptionError, UnavailableError: FLOOR is damaged; the file system refuses.
        """
        require_in_place(self.files, self.root)
        with refusals(f"cannot look at {self.root}"):
            why = self._other(known)
            if why is None and following is not None:
                why = self._missing(known, following)
        if why is not None:
            raise ReplacedError(self.root, why)

    def require_follows(self, known: Record, newest: Record) -> None:
        """Check that a newest record followed from one that was known.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were.
            CorruptionError, UnavailableError: FLOOR is damaged; the file system refuses.
        """
        self.require_ours(known)
        ours, theirs = (known.store_id, known.number), (newest.store_id, newest.number)
        if ours[0] != theirs[0] or theirs[1] < ours[1]:
            why = (
                f"its newest record is {theirs[1]} of store {theirs[0]}, not {ours[1]} of {ours[0]}"
            )
            raise ReplacedError(self.root, why)

    def _missing(self, known: Record, following: Record) -> str | None:
        """Return a new file that is not there; None: none, or another process won the race."""
        missing = self.first_missing(known, following)
        if missing is None or not self.kept().keeps(following.number):
            return None  # a vacuum that took the winner's record may have taken the files before
        with contextlib.suppress(FileNotFoundError, CorruptionError):
            winner = self.read(following.number)
            if winner.store_id == known.store_id and winner.writer != following.writer:
                return None
        return f"{missing} is not there, which was just written"

    def _other(self, known: Record) -> str | None:
        """Return what is wrong with a record that was known; None: nothing."""
        try:
            found = self.read(known.number)
        except FileNotFoundError:
            return f"record {known.number} is gone" if self.kept().keeps(known.number) else None
        except CorruptionError:
            return None
        if (found.store_id, found.writer) == (known.store_id, known.writer):
            return None
        return (
            f"record {known.number} there is of store {found.store_id}, by writer {found.writer},"
            f" not of {known.store_id}, by {known.writer}"
        )
