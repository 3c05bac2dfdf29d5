"""Inventories: the files that a pin needs, and the check that their bytes are unchanged.

Lance has no checksums: a flipped byte gives wrong rows without an error. So every file is hashed
once when it is written and, unless this process wrote it, once before its first use.

Lock: `_lock` guards the two memos; it is never held over I/O.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats import inventory
from siltstone.formats.inventory import Inventory, InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.files.copying import hash_of, require_same
from siltstone.storage.files.files import Files, reading
from siltstone.storage.tables.kept_names import place

DIRECTORY = "inventory"
_DECODED_MAX = 1024
_VERIFIED_MAX = 1_000_000


class Inventories:
    """The inventories of one store, and the memo of verified files. Threads may share it."""

    def __init__(self, root: Path, files: Files, token: Callable[[], str]) -> None:
        self._root, self._files, self._token = root, files, token
        self._lock = threading.Lock()
        self._decoded: OrderedDict[str, Inventory] = OrderedDict()
        self._verified: set[str] = set()
        self._has_directory = False

    def chain(self, name: str) -> dict[str, Inventory]:
        """Return name -> inventory of the whole chain, newest first; empty for the name ""."""
        if not name:
            return {}
        top = self._read(name)
        return {name: top} | {below: self._read(below) for below in top.below}

    def live(self, name: str, paths: Iterable[str]) -> dict[str, InventoryFile]:
        """Return the entries of the chain for `paths`.

        Raises:
            CorruptionError: The chain does not have one of them.
        """
        wanted = list(paths)
        found = inventory.lookup(list(self.chain(name).values()), wanted)
        for path in wanted:
            if path not in found:
                reason = f"the inventory does not know {path}"
                raise CorruptionError(self._root / name, None, reason)
        return found

    def add(
        self,
        below: str,
        added: Iterable[InventoryFile],
        live: Iterable[str],
        *,
        durable: bool = True,
    ) -> str:
        """Write the inventory of a new pin and return its name; not `durable`: the caller syncs."""
        name = f"{DIRECTORY}/{self._token()}.arrow"
        path = self._root / name
        value = inventory.extend(self.chain(below), added, live)
        if not self._has_directory:
            self._files.mkdir(path.parent)
            self._has_directory = True  # it is never removed
        if durable:
            self._files.write(path, inventory.encode(value))
            self._files.sync_dir(path.parent)
        else:
            self._files.replace(path, inventory.encode(value), durable=False)
        self._remember(name, value)
        return name

    def pin(self, version: int, path: str, rows: int, inventory: str) -> Pin:
        """Return the pin over a manifest that was written; `path` is relative to the root."""
        manifest = describe(self._files, self._root, path)
        return Pin(version, path, manifest.size, manifest.xxh3, rows, inventory)

    def own_files(self, name: str) -> list[InventoryFile]:
        """Return the inventories of the chain as files, with their present hashes."""
        return [describe(self._files, self._root, each) for each in self.chain(name)]

    def seal(self, paths: Iterable[str], seqs: tuple[int, int] | None) -> list[InventoryFile]:
        """Sync new files, hash them, and record them as verified."""
        names = list(paths)
        for path in names:
            self._files.sync_file(self._root / path)
        return self.hashed(names, seqs)

    def hashed(self, paths: Iterable[str], seqs: tuple[int, int] | None) -> list[InventoryFile]:
        """Hash new files and record them as verified; the caller waits for their syncs."""
        found = [describe(self._files, self._root, path, seqs) for path in paths]
        with self._lock:
            self._verified.update(file.path for file in found)
        return found

    def verify(self, expected: Iterable[InventoryFile]) -> None:
        """Check the files that this process has neither written nor checked yet."""
        for file in expected:
            if file.path not in self._verified:  # a set is read without the lock: it only grows
                check(self._files, self._root, file)
                with self._lock:
                    if len(self._verified) >= _VERIFIED_MAX:
                        self._verified = set()
                    self._verified.add(file.path)

    def _read(self, name: str) -> Inventory:
        with self._lock:
            if name in self._decoded:
                self._decoded.move_to_end(name)
                return self._decoded[name]
        path = self._root / name
        with reading(path, "inventory"):
            data = self._files.read(path)
        value = inventory.decode(data, str(path))
        self._remember(name, value)
        return value

    def _remember(self, name: str, value: Inventory) -> None:
        with self._lock:
            self._decoded[name] = value
            if len(self._decoded) > _DECODED_MAX:
                self._decoded.popitem(last=False)


def describe(
    files: Files, root: Path, path: str, seqs: tuple[int, int] | None = None
) -> InventoryFile:
    """Return the present size and checksum of a file; `path` is relative to `root`."""
    size, xxh3 = hash_of(files, root / path)
    low, high = seqs if seqs is not None else (None, None)
    return InventoryFile(path, size, xxh3, low, high)


def read_checked(files: Files, root: Path, expected: InventoryFile) -> bytes:
    """Return the bytes of a small file, checked against its inventory.

    Raises:
        CorruptionError, UnavailableError: As `check`.
    """
    path = root / expected.path
    with reading(path):
        data = files.read(place(files, root, expected.path))
    require_same(path, (len(data), xxhash.xxh3_64_hexdigest(data)), expected)
    return data


def check(files: Files, root: Path, expected: InventoryFile) -> None:
    """Check the bytes of a file against its inventory.

    Raises:
        CorruptionError: The bytes differ, or the file is missing.
        UnavailableError: The file system refuses to read it; its bytes are not known.
    """
    path = root / expected.path
    with reading(path):
        found = hash_of(files, place(files, root, expected.path))
    require_same(path, found, expected)
