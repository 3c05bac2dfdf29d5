"""Sweep: finds and deletes unused files under a store's directory.

    reachable   files that the pins of all records, and of the owner's live catalog, need
    doomed      files that only deleted records named: published once, so deleted immediately
    by path     files of external versions: kept until the versions are imported
    the rest    never published (a crash, a lost race, another program): kept for the grace period

The directory is listed before the names are gathered, so a file that is published in between is
safe. `_versions` and `_refs` of an existing dataset belong to the promotion, except manifests that
clients staged, or half wrote, there: those are kept for the grace period, too. A file with two
names (`storage.tables.kept_names`) counts by its public name, and loses both. A file of a load may
have names in base, too; each dataset's names go by themselves.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.view import storage_folder
from siltstone.errors import CorruptionError
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Catalog, Pin, TableDefinition
from siltstone.storage.files.arrow_file import DIRECTORY as FALLBACK
from siltstone.storage.files.files import Files, is_temporary, names_in
from siltstone.storage.lance.external import version_import
from siltstone.storage.tables import kept_names
from siltstone.storage.tables.inventories import DIRECTORY, Inventories
from siltstone.storage.tables.jobs import DIRECTORY as JOBS
from siltstone.storage.tables.kept_names import is_shared, kept_of, public_of
from siltstone.storage.tables.promotion import EXTERNAL_DIRECTORY, version_of, withdraw
from siltstone.storage.tables.tables import ExternalTables
from siltstone.storage.tables.values import INDEX_DIRECTORY

BATCH = 256
"""So many files are deleted between two looks at whose they are."""
DEAD = "only records below FLOOR named it"
UNPUBLISHED = "nothing names it, and the grace period is over"
TEMPORARY = "a temporary file that a crash left"
_PUBLIC = ("_versions", "_refs")
_ATTACHED = "/.attached/"
_INVENTORIES = f"{DIRECTORY}/"
_SHARED = ("tables", "commits", DIRECTORY, f"/{PRIVATE_DIRECTORY}", f"/{INDEX_DIRECTORY}")


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that vacuum deletes: its path below the store's root, its bytes, and the reason."""

    path: str
    nbytes: int
    why: str

    @property
    def is_orphan(self) -> bool:
        """Whether it was never published."""
        return self.why in {UNPUBLISHED, TEMPORARY}


class Ages(msgspec.Struct, frozen=True):
    """The times (seconds since 1970) before which vacuum may delete unused files.

    `attached`: only a frame names the rows of a bulk commit, and their inventories, so views older
    than their checkpoint read them; a job is as old as its last file.
    """

    unpublished: float
    attached: float


def home_of(table: TableDefinition) -> str:
    """Return the folder of a plain table's newest incarnation, which may have no version."""
    step = catalogs.incarnation_of(table)
    newest = catalogs.version_of(step)
    if newest is not None:
        return newest.pin.folder
    return storage_folder(catalogs.name_of(table, step.seq), step.id)


def homes(catalog: Catalog) -> set[str]:
    """Return the folders of the existing plain tables."""
    living = (table for table in catalog.tables if catalogs.is_alive(table))
    return {home_of(table) for table in living if not catalogs.schema_of(table).key}


def storages(catalog: Catalog) -> set[str]:
    """Return the folders of the storages of the existing tables, also of those without a file."""
    living = (table for table in catalog.tables if catalogs.is_alive(table))
    steps = ((table, catalogs.incarnation_of(table)) for table in living)
    return {storage_folder(catalogs.name_of(table, step.seq), step.id) for table, step in steps}


def distinct(pins: Iterable[Pin]) -> dict[tuple[str, str], Pin]:
    """Return the distinct pins, in the order of their first occurrence.

    By manifest and inventory: a repair leaves the manifest, and names other key runs.
    """
    return {(pin.path, pin.inventory): pin for pin in pins}


def named_by_path(tables: ExternalTables, folders: Iterable[str]) -> set[str]:
    """Return the files of external versions, which may still be imported.

    If a version cannot be read, its files are not known: the dataset's folder is returned.
    """
    found: set[str] = set()
    for folder in folders:
        for external in tables.versions(folder):
            found.add(external.path)
            found.update((folder,) if external.named is None else external.named)
    return found


def published(inventories: Inventories, pins: Mapping[tuple[str, str], Pin]) -> set[str]:
    """Return the paths in the inventories of the pins of deleted records."""
    found: set[str] = set()
    for pin in pins.values():
        found.add(pin.path)
        with contextlib.suppress(CorruptionError):  # then the grace period decides
            for name, inventory in inventories.chain(pin.inventory).items():
                found.add(name)
                found.update(file.path for file in inventory.files)
    return found


class StoppedError(Exception):
    """A vacuum was stopped between two steps; what it did is complete in itself."""


def go_on() -> None:
    """Let a vacuum go on: a step of one that is never stopped."""


class Sweep:
    """One pass over the directory of a store; `listed` has the files at its start.

    `step` is called between any two of its steps, and may raise StoppedError.
    """

    def __init__(self, files: Files, root: Path, step: Callable[[], object] = go_on) -> None:
        self._files, self._root, self._step = files, root, step
        self._youngest_of: dict[str, float] = {}
        self.listed = [
            *(name for folder in (DIRECTORY, "tables", "commits") for name in self._walk(folder)),
            *(
                f"{folder}/{name}"
                for folder in ("manifest", JOBS)
                for name in self._names(folder)
                if is_temporary(name)
            ),
        ]

    def _names(self, folder: str) -> list[str]:
        return names_in(self._files, self._root / folder)

    def _walk(self, folder: str) -> Iterator[str]:
        self._step()
        for name in self._names(folder):
            path = f"{folder}/{name}"
            if self._files.is_dir(self._root / path):
                yield from self._walk(path)
            else:
                yield path

    def garbage(
        self, reachable: set[str], doomed: set[str], ages: Ages, spared: Collection[str] = ()
    ) -> list[Removed]:
        """Return the listed files to delete, with reasons.

        `spared` are files, and folders of datasets, whose unpublished files stay.
        """
        living = {_dataset(path) for path in reachable}
        dying = {_dataset(path) for path in doomed} - living
        found: list[Removed] = []
        listed = set(self.listed)
        loaded = self._loaded(reachable)
        for path in self.listed:
            public = public_of(path)
            if public in reachable or (public != path and public in listed):
                continue  # it goes with its public name
            why = self._why(path, doomed, living, dying, ages)
            if why == UNPUBLISHED and (_is_spared(public, spared) or self._is_in(loaded, path)):
                continue
            if why is not None:
                with contextlib.suppress(FileNotFoundError):
                    found.append(Removed(path, self._files.size(self._root / path), why))
        return found

    def _why(
        self, path: str, doomed: set[str], living: set[str], dying: set[str], ages: Ages
    ) -> str | None:
        dataset = _dataset(path)
        if public_of(path) in doomed or dataset in dying:
            return DEAD
        if is_temporary(path.rpartition("/")[2]):
            return TEMPORARY if self._mtime(path) < ages.unpublished else None
        if dataset in living and _is_managed(path, dataset):
            return None
        if _ATTACHED in path:  # the last file is the version that a frame names
            return UNPUBLISHED if self._youngest(dataset) < ages.attached else None
        limit = ages.attached if path.startswith(_INVENTORIES) else ages.unpublished
        return UNPUBLISHED if self._mtime(path) < limit else None

    def _loaded(self, reachable: set[str]) -> set[tuple[int, int]]:
        """Return the identities of the data files of loads that are needed.

        A merge gives them names in base, which are as old as the load before anything names them.
        """
        inside = (path for path in reachable if _ATTACHED in path and "/data/" in path)
        return {found for path in inside for found in self._identity(path)}

    def _is_in(self, loaded: set[tuple[int, int]], path: str) -> bool:
        return bool(loaded) and "/base/" in path and not loaded.isdisjoint(self._identity(path))

    def _identity(self, path: str) -> Iterator[tuple[int, int]]:
        with contextlib.suppress(FileNotFoundError):
            yield self._files.identity(self._root / path)

    def _youngest(self, dataset: str) -> float:
        """Return when the last of the listed files of an attached dataset was written."""
        if not self._youngest_of:
            for path in self.listed:
                if _ATTACHED in path:
                    found = self._youngest_of.get(_dataset(path), 0.0)
                    self._youngest_of[_dataset(path)] = max(found, self._mtime(path))
        return self._youngest_of[dataset]

    def _mtime(self, path: str) -> float:
        try:
            return self._files.mtime(self._root / path)
        except FileNotFoundError:
            return math.inf  # another process has deleted it

    def delete(
        self,
        garbage: Iterable[Removed],
        living: Collection[str] = (),
        require_ours: Callable[[], object] = lambda: None,
    ) -> None:
        """Unlink files, and directories that become empty.

        `require_ours` is asked before each `BATCH` of files, and raises if the store is another.
        But the directories of datasets of the storages `living` stay: a process that makes the
        first version of one has made them, and there is no file yet that would say so.
        """
        emptied: set[str] = set()
        paths = self._withdrawn([file.path for file in garbage])
        for number, path in enumerate(paths):
            self._step()
            if number % BATCH == 0:
                require_ours()
            # Also where one was listed: a promotion may have made the other one since.
            public = public_of(path)
            for name in (public, kept_of(public)):
                if name is not None:
                    with contextlib.suppress(FileNotFoundError):
                        self._files.unlink(self._root / name)
                    emptied.add(name.rpartition("/")[0])
        require_ours()
        left = {_dataset(path) for folder in ("tables", "commits") for path in self._walk(folder)}
        for folder in sorted(emptied):
            dataset = _dataset(f"{folder}/")
            if dataset and dataset not in left and not _is_of(dataset, living):
                self._remove_tree(dataset)
                self._remove_empty(dataset.rpartition("/")[0])
            elif f"/{PRIVATE_DIRECTORY}/" in folder or f"/{INDEX_DIRECTORY}/" in folder:
                self._remove_empty(folder)

    def _withdrawn(self, paths: Sequence[str]) -> list[str]:
        """Take the public names of our manifests away; return where all the files are now.

        A promotion of what an older record names may have given them again a moment ago.
        """
        found: list[str] = []
        shown: set[str] = set()
        for path in paths:
            now, dataset = path, _dataset(path)
            if _is_promoted(path, dataset):
                shown.add(dataset)
                with contextlib.suppress(FileNotFoundError):
                    hidden = withdraw(self._files, self._root / dataset, self._root / path)
                    now = str(hidden.relative_to(self._root))
            found.append(now)
        for dataset in sorted(shown):
            public = self._root / dataset / "_versions"
            if self._files.is_dir(public):
                self._files.sync_dir(public)
        return found

    def _remove_tree(self, folder: str) -> None:
        for name in self._names(folder):
            self._remove_tree(f"{folder}/{name}")
        self._remove(folder)

    def _remove_empty(self, folder: str) -> None:
        """Remove a directory and its parents, up to the first that is not empty, or is shared."""
        while folder and not folder.endswith(_SHARED) and not is_shared(folder):
            if not self._remove(folder):
                return
            folder = folder.rpartition("/")[0]

    def _remove(self, folder: str) -> bool:
        """Remove a directory; False if it is not empty, or another process was faster."""
        if not self._files.is_dir(self._root / folder) or self._names(folder):
            return False
        try:
            self._files.rmdir(self._root / folder)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise
            return False
        return True


def _dataset(path: str) -> str:
    """Return the dataset's folder that a file lies in; "" if it lies in none."""
    parts = path.split("/")
    if parts[0] == "commits":
        return "commits"
    if parts[0] != "tables" or len(parts) < 3:
        return ""
    if parts[2] in {".attached", FALLBACK}:  # one for each job, or file
        return "/".join(parts[:4])
    return "/".join(parts[: 3 if parts[2] in {"base", ".history"} else 2])


def _is_of(dataset: str, living: Collection[str]) -> bool:
    """Say whether a version may be made there; a dead load is never attached again."""
    is_load = _ATTACHED in f"{dataset}/"
    return dataset == "commits" or (not is_load and "/".join(dataset.split("/")[:2]) in living)


def _is_promoted(path: str, dataset: str) -> bool:
    """Say whether a file is a manifest of ours in a dataset that other programs can open."""
    inside = path.removeprefix(f"{dataset}/").split("/")
    is_private = len(inside) == 3 and inside[0] == PRIVATE_DIRECTORY
    if not is_private or inside[1] == EXTERNAL_DIRECTORY or kept_names.home_of(dataset) is None:
        return False
    return version_of(inside[2]) is not None


def _is_spared(path: str, spared: Collection[str]) -> bool:
    """Say whether a version by path may need a file; none needs what clients staged."""
    is_left = version_import.is_left(path.rpartition("/")[2])
    return path in spared or (_dataset(path) in spared and not is_left)


def _is_managed(path: str, dataset: str) -> bool:
    inside = path.removeprefix(f"{dataset}/")
    if version_import.is_left(inside.rpartition("/")[2]):
        return False  # its client lost a race, or died
    return inside.split("/")[0] in _PUBLIC or inside.startswith(f"{PRIVATE_DIRECTORY}/strangers/")
