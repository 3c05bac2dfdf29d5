"""Pinned store: which store was joined, so that no other one at its place is taken for it.

    joined ─▶ its id and its owner's epoch are known, its LOCK is held open
    a new connection ─▶ the same id, no lower epoch, the same LOCK at the path, or ReplacedError

A socket and a URL are names: once the owner ended, another store may have them, or an older copy
of this one, with the same ids and seqs. A copy has a LOCK of its own. To hold ours open keeps its
inode from a new file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from siltstone.errors import ReplacedError, UnavailableError


class PinnedStore:
    """See the module. Any thread; pinned once, before others know it."""

    def __init__(self) -> None:
        self._store: str | None = None
        self._epoch = 0
        self._lock_path: Path | None = None
        self._lock_identity: tuple[int, int] | None = None
        self.close = lambda: None
        """Let the file go. A second call does nothing."""

    def pin(self, root: Path) -> None:
        """Hold the LOCK of the store at `root`, a directory of this machine.

        Raises:
            UnavailableError: There is none that can be opened.
        """
        path = root / "LOCK"
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise UnavailableError(f"{path} cannot be opened: {error}") from error
        self.close = weakref.finalize(self, os.close, fd)
        self._lock_path, self._lock_identity = path, _identity(os.fstat(fd))

    def require_same(self, hello: Mapping[str, Any], name: Path | str) -> None:
        """Note the store that an owner has; refuse another one than before.

        Raises:
            ReplacedError: It is another store at `name`, or an older copy.
        """
        store, epoch = hello["store"], hello["epoch"]
        if self._store not in {None, store}:
            raise ReplacedError(name, "another store")
        if epoch < self._epoch or not self._is_in_place():
            raise ReplacedError(name, "a copy of the store")
        self._store, self._epoch = store, epoch

    def _is_in_place(self) -> bool:
        if self._lock_path is None:
            return True
        try:
            return _identity(self._lock_path.stat()) == self._lock_identity
        except OSError:
            return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
