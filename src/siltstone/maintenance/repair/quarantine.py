"""Quarantine: moves files aside, with a note of their path and the reason; never deletes them.

    quarantine/<time>-<token>/MANIFEST.json    the files to move, written before the first move
                             /<n>-<name>       the files

To undo it, move each file back to its old path. After a crash, files in the note may still be at
their old path: the next repair moves them with its own note.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from siltstone.storage.site import Site
from siltstone.storage.tables.kept_names import kept_of

FOLDER, MANIFEST = "quarantine", "MANIFEST.json"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Item:
    """A file to move aside: its path below the store's root, and the reason.

    `instead` replaces it in the same step, so that the name is never free.
    """

    path: str
    why: str
    instead: bytes | None = None


class Quarantine:
    """The quarantine of one store. Stateless; any process."""

    def __init__(self, site: Site) -> None:
        self._files, self._root = site.files, site.root
        self._now_us, self._new_token = site.now_us, site.new_token

    def take(self, items: Sequence[Item]) -> str:
        """Move files aside, durably; return the folder, "" for none. Missing files are skipped.

        Raises:
            OSError: Some files may be moved; the note names them.
        """
        items = [each for item in items for each in self._both(item)]
        if not items:
            return ""
        time = _EPOCH + dt.timedelta(microseconds=self._now_us())
        folder = f"{FOLDER}/{time:%Y%m%dT%H%M%S}-{self._new_token()}"
        moves = [(item, f"{n}-{Path(item.path).name}") for n, item in enumerate(items)]
        note = {
            "time": time.isoformat(),
            "files": [{"from": item.path, "to": name, "why": item.why} for item, name in moves],
        }
        self._files.mkdir(self._root / folder)
        text = msgspec.json.format(msgspec.json.encode(note)) + b"\n"
        self._files.create_if_absent(self._root / folder / MANIFEST, text)
        for item, name in moves:
            with contextlib.suppress(FileNotFoundError):
                self._move(item, self._root / folder / name)
        for parent in sorted({(self._root / item.path).parent for item in items}):
            with contextlib.suppress(FileNotFoundError):
                self._files.sync_dir(parent)
        self._files.sync_dir(self._root / folder)
        return folder

    def _both(self, item: Item) -> Iterator[Item]:
        """Yield a file, and the one at its second name if that is another: a copied store has two.

        Nothing is deleted here, and it is not known which one is wanted back.
        """
        kept = None if item.instead is not None else kept_of(item.path)
        if kept is not None and not self._is_one(item.path, kept):
            yield Item(kept, item.why)
        yield item

    def _is_one(self, path: str, kept: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            identity = self._files.identity(self._root / kept)
            return identity == self._files.identity(self._root / path)
        return True

    def _move(self, item: Item, target: Path) -> None:
        source = self._root / item.path
        if item.instead is None:
            kept = kept_of(item.path)
            if kept is not None and not self._files.exists(source):
                source = self._root / kept  # a clean-up by another program left no other name
            elif kept is not None:
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(self._root / kept)
            self._files.rename(source, target)
            return
        self._files.link(source, target)
        self._files.sync_dir(target.parent)
        self._files.replace(source, item.instead)
