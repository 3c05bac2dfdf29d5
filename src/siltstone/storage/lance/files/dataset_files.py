"""Dataset files: the names, the inventories and the syncs of what Lance writes below a folder.

    <folder>/data/*.lance                          data files; no name is ever used twice
    <folder>/_deletions/                           which rows of a part are hidden (`deletions`)
    <folder>/_transactions/<n>-<uuid>.txn          Lance's account of a commit
    <folder>/_siltstone/<transaction>/<n>.manifest what a pin names
    <folder>/_siltstone/<transaction>/physical.manifest  without deletion files
    <folder>/_siltstone/_kept/                     our own names of the files above it (`kept`)
    <folder>/_versions/                            links to the promoted ones, nothing else

`_lock` guards the memo of files that have both names; it is never held over I/O.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from siltstone.failpoints import Failpoint, cross
from siltstone.formats.inventory import InventoryFile
from siltstone.storage.files.files import Files
from siltstone.storage.files.place import named
from siltstone.storage.files.syncs import Syncing, Syncs
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.index_files import index_files, index_folders
from siltstone.storage.lance.files.point_reads import PartSessions
from siltstone.storage.lance.files.reach import LanceReach
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables.inventories import Inventories

DATA, TRANSACTIONS = "data", "_transactions"
_NAMED_MAX = 1_000_000


class DatasetFiles:
    """The files of the datasets of one open store; threads may share it.

    Args:
        token: Gives names that were never used before.
        reach: How Lance reaches the files in a bucket; None: they are on this machine.
    """

    def __init__(
        self, root: Path, files: Files, token: Callable[[], str], reach: LanceReach | None = None
    ) -> None:
        self.root, self.files, self.token = root.absolute(), files, token
        self.reach = reach
        self.inventories = Inventories(self.root, files, token)
        self.syncs = Syncs(self.root, files)
        self.sessions = PartSessions()
        self._lock = threading.Lock()
        self._named: set[str] = set()

    @contextmanager
    def reading(self, folder: str) -> Generator[None]:
        """Read a dataset with Lance; its errors become ours.

        Raises:
            ReplacedError: It failed, and the store is not at its path any more: that is why.
        """
        where = self.root / folder
        if self.reach is not None:
            with self.reach.reading(where):
                yield
            return
        with named(self.files, self.root), translated(where, is_reading=True):
            yield

    def opened_file(self, path: str) -> Any:
        """Return Lance's reader of one file, by its absolute path."""
        options = None if self.reach is None else dict(self.reach.storage_options)
        return importlib.import_module("lance.file").LanceFileReader(path, storage_options=options)

    def home_of(self, folder: str) -> str | None:
        """Return the folder of a dataset's kept names; None: it has none, as in a bucket."""
        return kept.home_of(folder) if self.reach is None else None

    def name(self, paths: Iterable[str]) -> None:
        """Give new files both names, before anything names them."""
        for path in paths:
            if path not in self._named and kept.kept_of(path) is not None:
                kept.both(self.files, self.root, path)
                self._known_by_both(path)
                cross(Failpoint.NAME_AFTER_LINK)

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file, by its kept name if it has one."""
        return self.files.read(kept.place(self.files, self.root, path))

    def seal(
        self, folder: str, directory: str, paths: Sequence[str], seqs: tuple[int, int] | None
    ) -> list[InventoryFile]:
        """Give new files both names, and make them durable: bytes, public names, then our own."""
        self.name(paths)
        found = self.inventories.seal(paths, seqs)
        self.files.sync_dir(self.root / folder / directory)
        kept.sync(self.files, self.root, folder, directory)
        return found

    def link(self, folder: str, directory: str, named: Mapping[str, str]) -> None:
        """Give files of other datasets names here, too, by their paths: durable, both names."""
        for old, new in named.items():
            kept.give(self.files, self.root / old, self.root / new)
            cross(Failpoint.NAME_AFTER_ADOPTION)
        self.name(named.values())
        self.files.sync_dir(self.root / folder / directory)
        kept.sync(self.files, self.root, folder, directory)

    def write(self, folder: str, directory: str, new: Mapping[str, bytes]) -> list[InventoryFile]:
        """Make small files, by their paths: durable, under both names."""
        if not new:
            return []
        self.files.mkdir(self.root / folder / directory)
        for path, data in new.items():
            self.files.write(self.root / path, data)
        self.name(new)
        self.files.sync_dir(self.root / folder / directory)
        kept.sync(self.files, self.root, folder, directory)
        return self.inventories.hashed(new, None)

    def begin(self, syncing: Syncing, paths: Sequence[str], *, is_known: bool) -> None:
        """Begin to sync files with both names."""
        names = [name for path in paths if (name := kept.kept_of(path)) is not None]
        public = [self.root / path for path in paths]
        syncing.begin(*public, names=[self.root / name for name in names], is_known=is_known)

    def have_kept(self, paths: Iterable[str]) -> bool:
        """Say whether all these files have their kept names.

        Those of a copy of a store, or after a crash, have none until an owner makes them.
        """
        with suppress(FileNotFoundError):
            for path in paths:
                if path not in self._named:
                    self.files.size(self.root / (kept.kept_of(path) or path))
                    self._known_by_both(path)
            return True
        return False

    def known(self, inventory: str) -> set[str]:
        chain = self.inventories.chain(inventory).values()
        return {file.path for each in chain for file in each.files}

    def notes(self, inventory: str) -> list[InventoryFile]:
        """Return Lance's account of the commit: of the newest inventory that has one.

        The key runs of a version are put into an inventory above that of its commit.
        """
        for each in self.inventories.chain(inventory).values():
            found = [file for file in each.files if f"/{TRANSACTIONS}/" in file.path]
            if found:
                return found
        return []

    def index_files(self, folder: str, dataset: Any, inventory: str) -> list[str]:
        """Return the files of the indexes of a version: what is known of them, else what is there.

        An index never changes: all files of its folder were there when it was committed.
        """
        return self.files_of_indexes(index_folders(folder, dataset), inventory)

    def files_of_indexes(self, folders: Mapping[str, int], inventory: str) -> list[str]:
        """Return the files in the folders of indexes; with the least size of each."""
        found: list[str] = []
        known = self.known(inventory) if folders else ()
        for index, nbytes in folders.items():
            mine = [path for path in known if path.startswith(f"{index}/")]
            found += mine or index_files(self.files, self.root, index, nbytes)
        return found

    def _known_by_both(self, path: str) -> None:
        with self._lock:
            if len(self._named) >= _NAMED_MAX:
                self._named = set()
            self._named.add(path)
