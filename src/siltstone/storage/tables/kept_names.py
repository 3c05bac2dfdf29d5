"""Kept names: a second name, invisible to clean-ups, for every file that a version needs.

    <folder>/data/x.lance   ═link═   <folder>/_siltstone/_kept/data/x.lance
    _indices/<uuid>/ and _transactions/ likewise
    <folder>/_deletions/x.bin  ═copy═   <folder>/_siltstone/_kept/_deletions/x.bin

Other programs open a plain table, or a base, by its path, and may clean it up. Lance then deletes
every file in those directories that no remaining version needs, and with `delete_unverified` also
files that are just being written. It never lists `_siltstone`. So readers of the store open a
version at `_siltstone/_kept`, and only vacuum removes both names. Histories and staged bulk commits
have no public version that a program could open: they have one name.

Linux refuses to link a file that another user wrote, and some file systems do between directories;
then the name is of a copy. That of a deletion file always is: it is small, and the only file that
says which rows of a part are hidden (ADR 43).

A kept name is created when its file is staged or imported, and is durable before a pin names the
file. A crash anywhere leaves files with one name: `unite` creates missing names on either side when
the store is opened, when versions are promoted, and when other programs request a version.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from siltstone.formats.manifest import PRIVATE_DIRECTORY
from siltstone.storage.files.copying import copy_new
from siltstone.storage.files.files import Files, names_in
from siltstone.storage.tables.values import INDEX_DIRECTORY

KEPT = "_kept"  # no transaction is called so: their names begin with a letter or a digit
COPIED = "_deletions"
DIRECTORIES = ("data", COPIED, INDEX_DIRECTORY, "_transactions")
TICK_S = 0.1
"""Of a directory that changed so long ago every later change shows in its time."""
_ATTEMPTS = 8
_UNLINKABLE = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP}
"""Of a file of another user; of a directory with its own quota; of one with too many names."""


def home_of(folder: str) -> str | None:
    """Return the folder of a dataset's kept names; None: other programs cannot open it."""
    if not folder.startswith("tables/") or "/." in folder:
        return None
    return f"{folder}/{PRIVATE_DIRECTORY}/{KEPT}"


def kept_of(path: str) -> str | None:
    """Return the kept name of a file by its public one, both below the root; None: it has none."""
    parts = path.split("/")
    depth = 3 if parts[2:3] == ["base"] else 2
    folder, inside = "/".join(parts[:depth]), parts[depth:]
    home = home_of(folder)
    if home is None or len(inside) < 2 or inside[0] not in DIRECTORIES:
        return None
    return "/".join((home, *inside))


def public_of(path: str) -> str:
    """Return the public name of a file by its kept one; of any other the path itself."""
    return path.replace(f"/{PRIVATE_DIRECTORY}/{KEPT}/", "/", 1)


def place(files: Files, root: Path, path: str) -> Path:
    """Return the path at which the store reads a file: its kept name, if it has one."""
    kept = kept_of(path)
    return root / (kept if kept is not None and files.exists(root / kept) else path)


def both(files: Files, root: Path, path: str) -> None:
    """Give a file its missing name; idempotent, by any number of processes.

    Raises:
        FileNotFoundError: It has neither name.
    """
    kept = kept_of(path)
    if kept is None:
        return
    if not files.exists(root / kept):
        give(files, root / path, root / kept)
    elif not files.exists(root / path):
        give(files, root / kept, root / path)


def unite(files: Files, root: Path, folder: str) -> None:
    """Give all files of a dataset both names, where one of the two directories lacks it.

    Unused files get their second name, too; vacuum removes both.
    """
    home = home_of(folder)
    if home is None or not files.is_dir(root / folder):
        return
    for directory in DIRECTORIES:
        public = set(_below(files, root / folder / directory))
        kept = set(_below(files, root / home / directory))
        for name in sorted(public ^ kept):
            # Vacuumed since the listing; or no file at all, which nothing of ours is.
            with contextlib.suppress(FileNotFoundError, PermissionError, IsADirectoryError):
                both(files, root, f"{folder}/{directory}/{name}")
        fresh = {(root / home / directory / name).parent for name in public - kept}
        for where in sorted(fresh):
            with contextlib.suppress(FileNotFoundError):
                files.sync_dir(where)


def make(files: Files, root: Path, folder: str) -> None:
    """Create the directories that every version of a dataset needs; Lance would not sync them."""
    home = home_of(folder)
    if home is not None:
        for directory in ("data", "_transactions"):
            files.mkdir(root / home / directory)


def sync(files: Files, root: Path, folder: str, directory: str) -> None:
    """Make the kept names in a directory of a dataset durable."""
    home = home_of(folder)
    if home is not None:
        files.sync_dir(root / home / directory)


def changed(files: Files, root: Path, folder: str) -> tuple[float, ...] | None:
    """Return the time of the last change of each directory; None: its files have one name.

    0 for a missing directory. The directory above those of indexes does not change when one of
    their files is deleted.
    """
    home = home_of(folder)
    if home is None:
        return None
    places = [f"{top}/{name}" for top in (folder, home) for name in DIRECTORIES]
    for top in (folder, home):
        above = f"{top}/{INDEX_DIRECTORY}"
        places += [f"{above}/{name}" for name in names_in(files, root / above)]
    return tuple(_mtime(files, root / place) for place in places)


def is_copied(path: str) -> bool:
    """Return whether the two names of a file are of two files, whatever the file system can."""
    return path.rpartition("/")[0].endswith(f"/{COPIED}")


def is_shared(path: str) -> bool:
    """Return whether files of every version go into a directory below the root."""
    above, _, name = path.rpartition("/")
    return name in DIRECTORIES and above.endswith(f"/{PRIVATE_DIRECTORY}/{KEPT}")


def _mtime(files: Files, path: Path) -> float:
    try:
        return files.mtime(path)
    except FileNotFoundError:
        return 0.0


def folders(files: Files, root: Path) -> list[str]:
    """Return the datasets of a store that other programs can open."""
    bases = {name: f"tables/{name}/base" for name in names_in(files, root / "tables")}
    return [base if files.is_dir(root / base) else f"tables/{n}" for n, base in bases.items()]


def lacking(files: Files, root: Path, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files without a kept name, and those without a public name or with another file.

    Two files of one size count as a copy, as in a store that was copied without its hard links. The
    copies of a deletion file are compared by their bytes (`Integrity.twins`).
    """
    exposed: list[str] = []
    hidden: list[str] = []
    for path in paths:
        kept = kept_of(path)
        if kept is None:
            continue
        if not files.exists(root / kept):
            exposed.append(path)
        elif not (is_copied(path) and files.exists(root / path)) and not _is_same(
            files, root / path, root / kept
        ):
            hidden.append(path)
    return exposed, hidden


def _is_same(files: Files, public: Path, kept: Path) -> bool:
    try:
        is_one = files.identity(public) == files.identity(kept)
        return is_one or files.size(public) == files.size(kept)
    except FileNotFoundError:
        return False


def _below(files: Files, directory: Path) -> Iterator[str]:
    """Yield the files in a directory, and in those directly in it, as an index has them."""
    for name in names_in(files, directory):
        if directory.name == INDEX_DIRECTORY:
            yield from (f"{name}/{inner}" for inner in _below(files, directory / name))
        elif not name.startswith("."):  # half written
            yield name


def give(files: Files, old: Path, new: Path) -> None:
    """Give a file one more name, unless something has it.

    Vacuum may take the directory away, once it is empty, between two calls. A file that cannot be
    linked to where the name is to be is copied, and so is each deletion file.
    """
    is_apart = new.parent.name == COPIED
    copy = partial(copy_new, files, apart=is_apart)
    put = copy if is_apart else files.link
    for attempt in range(_ATTEMPTS):
        try:
            return put(old, new)
        except FileExistsError:
            return None
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1 or files.is_dir(new.parent):
                raise
            files.mkdir(new.parent)
        except OSError as error:
            if error.errno not in _UNLINKABLE or put is copy or files.is_dir(old):
                raise
            put = copy
    return None
