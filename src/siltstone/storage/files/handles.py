"""Handles: the directories that the path of a store led to when it was opened.

    <root>/manifest/<name>   by the handle of `manifest`: the chain goes nowhere else
    <root>/<name>            by the handle of the root
    elsewhere                by the path

Who goes by names alone, and sleeps, works on whatever store is at the path when it wakes up. By a
handle (openat(2) and the like) it works on the directory that it opened, wherever that is now; in
a deleted one nothing can be made. `manifest` has its own handle: if only what is in the root
is deleted, another store may be made in the same root, and its manifest is another directory.

A handle is closed when nothing refers to it any more: a call that is under way does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MANIFEST = "manifest"
_GONE = (FileNotFoundError, NotADirectoryError)
Identity = tuple[int, int]


class Handle(int):
    """A descriptor of a directory, open for as long as it is used."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self)


class Handles:
    """See the module. Immutable; any thread.

    Raises:
        OSError: There is no such directory, or the file system refuses.
    """

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self._below, self._of_manifest = f"{self.root}/", f"{_MANIFEST}/"
        self._root = Handle(os.open(self.root, _FLAGS))
        self._manifest = self._root
        try:
            self._manifest = Handle(os.open(_MANIFEST, _FLAGS, dir_fd=self._root))
        except _GONE:  # no store yet
            self._of_manifest = "/"  # no name begins so
        self._identities = tuple(map(_identity, map(os.fstat, (self._root, self._manifest))))

    def of(self, path: Path) -> tuple[str, Handle | None]:
        """Return a path as a name and the handle that it is relative to; None: it is absolute."""
        text = os.fspath(path)
        if not text.startswith(self._below):
            return (".", self._root) if text == self.root else (text, None)
        name = text[len(self._below) :]
        if name.startswith(self._of_manifest):
            return name[len(self._of_manifest) :], self._manifest
        if name == _MANIFEST and self._manifest != self._root:
            return ".", self._manifest
        return name, self._root

    def are_in_place(self) -> bool:
        """Return whether the path still leads to these directories."""
        try:
            found = [_identity(os.stat(self.root))]  # noqa: PTH116 - each refresh of a reader asks
            if self._manifest != self._root:
                found.append(_identity(os.stat(_MANIFEST, dir_fd=self._root)))
        except _GONE:
            return False
        return tuple(found) == self._identities[: len(found)]

    def left(self) -> Left:
        """Return what remains of them when they are closed."""
        return Left(self.root, self._identities[: 1 if self._manifest == self._root else 2])


class Left(msgspec.Struct, frozen=True):
    """Where handles were: names go by paths. A job that is under way still hears of a move.

    Without a handle a file system may give the number of a deleted directory to another one.
    """

    root: str
    identities: tuple[Identity, ...]

    def of(self, path: Path) -> tuple[str, None]:
        """Return a path as it is."""
        return os.fspath(path), None

    def are_in_place(self) -> bool:
        """Return whether the path still leads to the directories of the handles."""
        paths = (self.root, f"{self.root}/{_MANIFEST}")[: len(self.identities)]
        try:
            return tuple(_identity(os.stat(path)) for path in paths) == self.identities  # noqa: PTH116 - as above
        except _GONE:
            return False


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
