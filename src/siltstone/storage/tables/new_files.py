"""New files: whether all that a record names for the first time is where it was written.

Lance writes by the path of the store, and records are published by a handle of its directory. If
the directory was replaced in between, or an older copy of it was put in its place, the files are
not below the handle, and the record must not be published.

Only the names are looked at: each file was synced by the same handle before it got into a pin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from siltstone.errors import CorruptionError
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.storage.files.files import Files
from siltstone.storage.tables.inventories import Inventories
from siltstone.storage.tables.kept_names import place
from siltstone.storage.tables.tables import PinPaths


class NewFiles:
    """See the module. Any thread."""

    def __init__(self, root: Path, files: Files, inventories: Inventories, paths: PinPaths) -> None:
        self._root, self._files, self._inventories = root, files, inventories
        self._paths = paths

    def first_missing(self, before: Record, after: Record) -> str | None:
        """Return a file that `after` needs, and `before` does not name, and that is not there."""
        if before is after:
            return None
        known = set(pins_of(before))
        inventories = {pin.inventory for pin in known}
        found = (self._missing(pin, inventories) for pin in set(pins_of(after)) - known)
        return next((path for path in found if path is not None), None)

    def _missing(self, pin: Pin, known: set[str]) -> str | None:
        """Return a file that a pin needs and that is not there.

        Its inventories also have what a version between needed, as of the truncate in a commit
        that truncates and appends: no record ever names that, so a vacuum takes it.
        """
        added = self._added(pin, known)
        absent = [path for path in added if not self._is_in_place(path)]
        if not absent:
            return None
        try:
            needed = self._paths.needed([pin])  # reads a manifest, so it is asked last
        except CorruptionError:  # what says what it needs is not there, either
            return absent[0]
        return next((path for path in absent if path in needed), None)

    def _is_in_place(self, path: str) -> bool:
        return self._files.exists(place(self._files, self._root, path))

    def _added(self, pin: Pin, known: set[str]) -> Iterator[str]:
        """Yield the files of a pin down to the first inventory that is known."""
        yield pin.path
        if pin.inventory in known or not self._is_there(pin.inventory):
            if pin.inventory and pin.inventory not in known:
                yield pin.inventory
            return
        for name, inventory in self._inventories.chain(pin.inventory).items():
            if name in known:
                return
            yield name
            yield from (file.path for file in inventory.files)

    def _is_there(self, name: str) -> bool:
        return bool(name) and self._files.exists(self._root / name)
