"""Promotion: hard links that show pins to readers of the plain path (`lance.dataset(folder)`).

    _siltstone/<txn>/<n>.manifest   ═link═   _versions/<n>.manifest

Late, idempotent, never a commit point: no reader of ours looks here. A crash between two steps
leaves too little or too much, and the next promotion completes it. Promotions of several processes
may meet: what another one made or took away meanwhile is done. What a clean-up by another program
takes away here, the next promotion makes again: the files themselves have names of ours (`kept`).

A stranger that writes through the plain path takes a version number that a pin of ours has or will
have. Its manifest is set aside under `_siltstone/strangers/`, with a warning, when ours needs the
name; it is not deleted. Versions of strangers above our newest stay where they are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from siltstone.storage.files import Files
from siltstone.storage.tables import PRIVATE_DIRECTORY

STRANGERS = "strangers"
SUFFIX = ".manifest"
_TAGS = "_refs/tags"
_PROTECTIVE_TAG = re.compile(r"siltstone-[0-9]+\.json")
_HINT = "latest_version_hint.json"
_VERSION_MAX = (1 << 64) - 1
_log = logging.getLogger(__name__)


def link(
    files: Files, folder: Path, wanted: Mapping[int, Path], newest: int, *, durable: bool = True
) -> None:
    """Give each manifest (version -> private path) its public name; the newest comes last.

    Names that are not `durable` may be gone after a loss of power, and have to be given again.
    """
    public = folder / "_versions"
    if durable or not files.is_dir(public):
        files.mkdir(public)
    for version in sorted(wanted, key=lambda number: (number == newest, number)):
        private = wanted[version]
        target = public / private.name
        if files.exists(target):
            if files.identity(target) == files.identity(private):
                continue
            if is_ours(files, folder, target):
                files.unlink(target)  # of an older line: a base was folded again
            else:
                _set_aside(files, folder, target)
        _link(files, private, target)
    if durable:
        files.sync_dir(public)


def hint(files: Files, folder: Path, newest: int) -> None:
    """Tell Lance the newest version: from its own hint on it would stop at a number we skipped.

    Not synced: a hint that is behind, or gone, costs a listing.
    """
    path = folder / "_versions" / _HINT
    files.replace(path, json.dumps({"version": newest}).encode(), durable=False)


def _link(files: Files, private: Path, target: Path) -> None:
    try:
        files.link(private, target)
    except FileExistsError:
        if files.identity(target) != files.identity(private):
            raise


def unlink_stale(files: Files, folder: Path, kept: Collection[int], newest: int) -> None:
    """Take away the public names of our versions below `newest` that are not `kept`."""
    public = folder / "_versions"
    stale = [
        name
        for name in files.list(public)
        if (version := _version(name)) is not None and version < newest and version not in kept
    ]
    ours = identities(files, folder) if stale else frozenset()
    for name in stale:
        with contextlib.suppress(FileNotFoundError):
            if files.identity(public / name) in ours:
                files.unlink(public / name)
    if stale:
        files.sync_dir(public)


def forget_tags(files: Files, folder: Path) -> None:
    """Take away the tags by which an older siltstone kept versions from a clean-up.

    `kept` does that now, and with a tag on every version LanceDB's optimize would always fail.
    """
    tags = folder / _TAGS
    for name in files.list(tags) if files.is_dir(tags) else ():
        if _PROTECTIVE_TAG.fullmatch(name):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                files.unlink(tags / name)


def _set_aside(files: Files, folder: Path, stranger: Path) -> None:
    aside = folder / PRIVATE_DIRECTORY / STRANGERS
    files.mkdir(aside)
    target = files.temporary(aside / stranger.name).with_suffix(SUFFIX)
    files.rename(stranger, target)
    files.sync_dir(aside)
    _log.warning(
        "%s: a version that siltstone did not write was set aside as %s; write through siltstone",
        stranger,
        target,
    )


def is_ours(files: Files, folder: Path, public: Path) -> bool:
    """Tell whether a public name in the dataset `folder` is a link to a manifest of ours."""
    return files.identity(public) in identities(files, folder)


def identities(files: Files, folder: Path) -> frozenset[tuple[int, int]]:
    """Return the identities of all manifests of ours in the dataset `folder`, listed once."""
    private, found = folder / PRIVATE_DIRECTORY, set[tuple[int, int]]()
    for name in files.list(private) if files.is_dir(private) else ():
        if name == STRANGERS:
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # vacuumed meanwhile
            for each in files.list(private / name):
                found.add(files.identity(private / name / each))
    return frozenset(found)


def public_name(version: int) -> str:
    """Return the name of a version's manifest: the newest sorts first."""
    return f"{_VERSION_MAX - version:020d}{SUFFIX}"


def version_of(name: str) -> int | None:
    """Return the version that a manifest's name says, also of one that was set aside."""
    return _version(name.removeprefix(".").partition(SUFFIX)[0] + SUFFIX)


def _version(name: str) -> int | None:
    stem = name.removesuffix(SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdecimal() and len(stem) <= 20):
        return None  # there are digits that are none of ours, such as those of other scripts
    version = _VERSION_MAX - int(stem)
    return None if version < 0 else version
