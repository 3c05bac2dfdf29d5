"""Soundness: checks that the files of a pin are unchanged; checks each file once.

quick   every manifest and inventory by its checksum, every other file by its size
deep    every file by its checksum, both copies of hidden rows; key runs are compared with the
        keys of their parts

A run says the same of a part in all bases that name it, and none of them shows a row again that
was hidden in an earlier one. So each run is compared once, in the oldest base that names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pyarrow as pa
import xxhash

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of, whole_table_schema
from siltstone.errors import SiltstoneError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import Pin, Record
from siltstone.storage.files.copying import hash_of, require_same
from siltstone.storage.site import Site
from siltstone.storage.tables import promotion
from siltstone.storage.tables.inventories import check
from siltstone.storage.tables.kept_names import is_copied, place
from siltstone.storage.tables.keys.key_places import PinnedKeys

UNREADABLE = (SiltstoneError, OSError, ValueError, pa.ArrowException)
Damage = dict[str, str]
"""Path below the store's root -> its damage."""


def relative(root: Path, path: object) -> str:
    """Return a path relative to the store's root."""
    found = Path(str(path))
    return str(found.relative_to(root)) if found.is_relative_to(root) else str(found)


class Integrity:
    """Remembers the checked files. One thread."""

    def __init__(
        self, site: Site, *, deep: bool, on_file: Callable[[], object] = lambda: None
    ) -> None:
        self._files, self._root, self._tables = site.files, site.root, site.tables.reader
        self._keys, self._compared = site.tables.keys, set[str]()
        self._is_deep, self._on_file = deep, on_file
        self.pins: dict[Pin, Damage] = {}
        self.files: dict[str, str | None] = {}
        self._copies: dict[str, str | None] = {}

    def damage(self, pin: Pin) -> Damage:
        """Return the damage of the files that a pin needs."""
        if pin not in self.pins:
            self.pins[pin] = self._damage(pin)
        return self.pins[pin]

    def wrong_runs(self, record: Record) -> Damage:
        """Return which intact key runs of a record say what is not so; from now on it is damage.

        Nothing unless deep. Call it for older records first.

        Raises:
            CorruptionError, UnavailableError: A file cannot be read; it was whole before.
        """
        found: Damage = {}
        for pin, codec in _bases(record) if self._is_deep else ():
            if not self._compared.issuperset(run.path for run in pin.runs) and not self.damage(pin):
                found |= self._wrong_runs(self._keys.open(pin), codec)
        self.files |= found
        for pin, damage in self.pins.items():
            damage |= {run.path: found[run.path] for run in pin.runs if run.path in found}
        return found

    def _wrong_runs(self, keys: PinnedKeys, codec: KeyCodec) -> Damage:
        found: Damage = {}
        for serving in [*keys.newest_first, *keys.in_order.newest_first]:
            path = serving.run.run.path
            if path not in self._compared:
                self._compared.add(path)
                lacking, wrong = keys.wrong_entries(serving, codec)
                if lacking or wrong:
                    reason = f"lacks {lacking} rows of its parts, {wrong} are wrong"
                    found[path] = f"the key run {reason}"
        return found

    def spare(self, pin: Pin) -> Damage:
        """Return which of the damaged files are whole at their public name, another file.

        A store that was copied without its hard links has two files for the two names.
        """
        damage = self.damage(pin)
        try:
            files = self._tables.files(pin) if damage else ()
        except UNREADABLE:
            return {}
        return {f.path: damage[f.path] for f in files if f.path in damage and self._is_spare(f)}

    def twins(self, pin: Pin) -> Damage:
        """Return which files, whole where the store reads them, are damaged as others read them.

        Those are the deletion files, by their public names: each has two copies.
        """
        damage, found = self.damage(pin), Damage()
        try:
            files = [file for file in self._tables.files(pin) if is_copied(file.path)]
        except UNREADABLE:
            return found
        for file in files:
            if file.path not in self._copies:
                self._copies[file.path] = self._wrong_copy(file)
            wrong = self._copies[file.path]
            if wrong is not None and file.path not in damage:
                found[file.path] = wrong
        return found

    def derived(self, pin: Pin) -> dict[str, bytes]:
        """Return those of the damaged files whose bytes follow from the pin's manifest, by path."""
        damage = self.damage(pin)
        try:
            made = self._tables.derived(pin) if damage else {}
            known = {file.path: file for file in (self._tables.files(pin) if made else ())}
        except UNREADABLE:
            return {}
        return {p: data for p, data in made.items() if p in damage and _is_of(known[p], data)}

    def heal(self, paths: Collection[str]) -> None:
        """Take files for whole from now on."""
        self.files.update(dict.fromkeys(paths))
        self._copies.update(dict.fromkeys(paths))
        self.pins.clear()

    def _is_spare(self, file: InventoryFile) -> bool:
        public = self._root / file.path
        with contextlib.suppress(*UNREADABLE):
            if place(self._files, self._root, file.path) != public:
                require_same(public, hash_of(self._files, public), file)
                return True
        return False

    def _damage(self, pin: Pin) -> Damage:
        try:
            files = self._tables.files(pin)
        except UNREADABLE as error:
            return {relative(self._root, getattr(error, "path", pin.path)): str(error)}
        looked = {file.path: self._look(file) for file in files}
        return {path: wrong for path, wrong in looked.items() if wrong is not None}

    def _look(self, file: InventoryFile) -> str | None:
        if file.path not in self.files:
            self._on_file()
            self.files[file.path] = self._wrong(file)
        return self.files[file.path]

    def _wrong_copy(self, file: InventoryFile) -> str | None:
        """Say what is wrong with the copy that other programs read; one that is gone is made."""
        public, ours = self._root / file.path, place(self._files, self._root, file.path)
        if public == ours or not self._files.exists(public):
            return None
        try:
            if self._is_deep and self._files.identity(public) != self._files.identity(ours):
                require_same(public, hash_of(self._files, public), file)
            return _wrong_size(self._files.size(public), file)
        except UNREADABLE as error:
            return str(error)

    def _wrong(self, file: InventoryFile) -> str | None:
        try:
            if self._is_deep or file.path.endswith(promotion.SUFFIX):
                check(self._files, self._root, file)
                return None
            return _wrong_size(self._files.size(place(self._files, self._root, file.path)), file)
        except UNREADABLE as error:
            return str(error)


def _wrong_size(found: int, file: InventoryFile) -> str | None:
    if found == file.size:
        return None
    return f"the file has {found} bytes, but {file.size} were written; restore it"


def _bases(record: Record) -> Iterator[tuple[Pin, KeyCodec]]:
    """Yield the bases and the loads of a record, first bulk loads: other bases are made of them.

    A load may be older than all schemas that are kept: then nothing is read from it by key.
    """
    for table in record.catalog.tables:
        if catalogs.schema_of(table).key:
            for step in table.incarnations:
                for version in step.versions:
                    if table.schemas[0].seq <= version.seq:
                        schema = catalogs.schema_of(table, version.seq)
                        yield version.pin, table_schema_of(schema).codec
    for storage in record.keyed:
        table = catalogs.owner_of(record.catalog, storage.incarnation)
        if storage.base is not None:
            schema = catalogs.schema_by_id(table, storage.base_schema)
            yield storage.base, table_schema_of(schema).codec
        codec = whole_table_schema(table).history_codec
        yield from ((load.pin, codec) for load in storage.loads)


def _is_of(file: InventoryFile, data: bytes) -> bool:
    return (len(data), xxhash.xxh3_64(data).hexdigest()) == (file.size, file.xxh3)
