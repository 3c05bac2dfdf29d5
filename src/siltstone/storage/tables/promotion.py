"""Promotion: hard links that show pins to readers of the plain path (`lance.dataset(folder)`).

    _siltstone/<txn>/<n>.manifest   ═link═   _versions/<n>.manifest

A promotion is late, idempotent and never a commit point: readers of the store do not look here. A
crash between two steps leaves too few or too many links, and the next promotion completes them.
Promotions of several processes may run at the same time: each accepts the links that another one
created or removed meanwhile. If a clean-up by another program removes links here, the next
promotion creates them again: the files themselves have kept names.

An external version, written by path, takes a number that a pin of ours has or will have. Its
manifest is set aside, with a warning, when ours needs the name, when a client requests the table
from a catalog (Lance would build the client's commit on it), and at each promotion of the table:

    _versions/<n>.manifest ═link═▶ _siltstone/strangers/.<n>.manifest.<inode>.manifest
                           ─rename▶ _siltstone/strangers/.<n>.manifest.<unused>.manifest ─▶ unlink

A crash between the steps leaves two names of one file, which is one version; the next process that
sets it aside finds the first name taken by that file, and continues. It is never deleted here: what
was renamed may be one that a client wrote since, and keeps that name if its public one is taken. A
manifest of ours that a crash leaves there loses that name when vacuum deletes it.

A public name is of a version of ours if a file below `_siltstone/<txn>/` is the same file. So a
vacuum may not delete that file while the public name stands, or can be given again, by a process
that promotes what an older record names:

    _siltstone/<txn>/<n>.manifest ─rename▶ a temporary name ─▶ unlink the public name ─▶ sync
    ─▶ unlink the temporary one

After the first step no process finds the file to link it. A crash before the last one leaves a file
that still says whose the public name is; the next promotion takes that away, and the next vacuum
the file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import PRIVATE_DIRECTORY
from siltstone.storage.files.files import ABSENT, Files, is_temporary, names_in
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import require

EXTERNAL_DIRECTORY = "strangers"
SUFFIX = ".manifest"
NUMBER_MAX = 1 << 53  # which every client's JSON can say exactly; the time in ms is far below
_HINT = "latest_version_hint.json"
_VERSION_MAX = (1 << 64) - 1
# Each try loses to another writer by path, or to another process of ours.
_LINKS_MAX = 16
_LISTINGS_MAX = 16  # of a directory with two files or three; each repeated one lost to a vacuum
_log = NoticeLog(__name__)


def _nothing() -> None:
    pass


def link(
    files: Files,
    folder: Path,
    wanted: Mapping[int, Path],
    newest: int,
    *,
    before_aside: Callable[[], None] = _nothing,
    durable: bool = True,
) -> None:
    """Give each manifest (version -> private path) its public name; the newest comes last.

    Names that are not `durable` may be lost in a power cut, and must then be created again.
    `before_aside` is called before an external version loses its name, and so its guard against
    clean-ups.
    """
    public = folder / "_versions"
    if durable or not files.is_dir(public):
        files.mkdir(public)
    for version in sorted(wanted, key=lambda number: (number == newest, number)):
        private = wanted[version]
        _give(files, folder, private, public / private.name, before_aside)
    if durable:
        files.sync_dir(public)


def hint(files: Files, folder: Path, newest: int) -> None:
    """Write the hint of the newest version; Lance, from its own hint, stops at a skipped number.

    It is not synced: an old or missing hint costs a listing.
    """
    path = folder / "_versions" / _HINT
    files.replace(path, json.dumps({"version": newest}).encode(), durable=False)


def _give(
    files: Files, folder: Path, private: Path, public: Path, before_aside: Callable[[], None]
) -> None:
    """Link a manifest to its public name, even if another file has that name.

    Raises:
        FileExistsError: Others took it again and again.
    """
    for _ in range(_LINKS_MAX):
        with contextlib.suppress(FileExistsError):
            files.link(private, public)
            return
        with contextlib.suppress(FileNotFoundError):  # another process took it away meanwhile
            if files.identity(public) == files.identity(private):
                return
            if is_ours(files, folder, public):
                files.unlink(public)  # of an older line: a base was folded again; or a copy
            else:
                before_aside()
                _set_aside(files, folder, public)
    raise FileExistsError(f"{public} was taken {_LINKS_MAX} times while it was given a version")


def clear(files: Files, folder: Path, above: int = 0) -> list[tuple[int, Path]]:
    """Set aside external versions with numbers above `above`; return them with their paths.

    It starts with the highest, so that after a crash the others follow `above`, where the next call
    looks.
    """
    public = folder / "_versions"
    high = [each for each in sorted(_numbered(files, public), reverse=True) if each[0] > above]
    ours = identities(files, folder, [public / name for _, name in high])
    found: list[tuple[int, Path]] = []
    for version, name in high:
        with contextlib.suppress(FileNotFoundError):
            if files.identity(public / name) not in ours:
                aside = _set_aside(files, folder, public / name)
                found += [(version, aside)] if aside.parent != public else []
    return found


def is_followed(files: Files, folder: Path, newest: int) -> bool:
    """Return whether a version follows `newest`: Lance skips no number."""
    return files.exists(folder / "_versions" / public_name(newest + 1))


def highest(files: Files, folder: Path, *, shown: bool = False) -> int:
    """Return the highest number that a version of a dataset has or had, as far as files say; or 0.

    Of ours and of others; `shown`: of those that clients see now. Higher ones than `NUMBER_MAX` are
    not counted: a file of such a name would leave no number for the next version.
    """
    places = [folder / "_versions"]
    private = folder / PRIVATE_DIRECTORY
    if not shown:
        places += [private / name for name in names_in(files, private)]
    numbers = (version_of(name) or 0 for place in places for name in names_in(files, place))
    return max((number for number in numbers if number <= NUMBER_MAX), default=0)


def unlink_stale(files: Files, folder: Path, kept: Collection[int], newest: int) -> None:
    """Remove the public names of our versions below `newest` that are not in `kept`."""
    public = folder / "_versions"
    stale = [n for number, n in _numbered(files, public) if number < newest and number not in kept]
    ours = identities(files, folder, [public / name for name in stale])
    for name in stale:
        with contextlib.suppress(FileNotFoundError):
            if files.identity(public / name) in ours:
                files.unlink(public / name)
    if stale:
        files.sync_dir(public)


def withdraw(files: Files, folder: Path, private: Path) -> Path:
    """Take the public name of a manifest that vacuum is about to delete away, for good.

    Return the path at which the manifest is now, to be deleted after a sync of `_versions`.

    Raises:
        FileNotFoundError: Another process has deleted the manifest.
    """
    version = version_of(private.name)
    require(version is not None, f"{private.name!r} is not the name of a manifest")
    hidden = private
    if not is_temporary(private.name):  # else a vacuum was killed here
        hidden = files.temporary(private)
        files.rename(private, hidden)
    public = folder / "_versions" / public_name(version or 0)
    aside = folder / PRIVATE_DIRECTORY / EXTERNAL_DIRECTORY
    names = names_in(files, aside)
    others = [aside / name for name in names if version_of(name) == version]  # see `_take_away`
    for path in (*others, public):
        with contextlib.suppress(FileNotFoundError):
            if files.identity(path) == files.identity(hidden):
                files.unlink(path)
    return hidden


def may_be_built_on(files: Files, folder: Path, staged: Path) -> bool:
    """Return whether a version was set aside since a client wrote the manifest `staged`.

    The client may have built on that version, and Lance does not record it: a rebased delete names
    the number of its plan, which our version has, too.
    """
    try:
        return files.mtime(staged) <= files.mtime(folder / PRIVATE_DIRECTORY / EXTERNAL_DIRECTORY)
    except FileNotFoundError:
        return False


def _set_aside(files: Files, folder: Path, public: Path) -> Path:
    """Give a version by path a name in our directory, and then take its public one away.

    Raises:
        FileNotFoundError: It is gone: another process has set it aside.
    """
    aside = folder / PRIVATE_DIRECTORY / EXTERNAL_DIRECTORY
    files.mkdir(aside)
    identity = files.identity(public)
    target = aside / f".{public.name}.{identity[1]}{SUFFIX}"
    if files.exists(target) and files.identity(target) != identity:  # a copied store has it
        target = _unused(files, aside, public)
    with contextlib.suppress(FileExistsError):
        files.link(public, target)
    if is_ours(files, folder, target):  # another process has given ours that name meanwhile
        files.unlink(target)
        return public
    files.sync_file(target)
    files.sync_dir(aside)
    cross(Failpoint.ASIDE_AFTER_LINK)
    _take_away(files, folder, public, identity)
    cross(Failpoint.ASIDE_AFTER_UNLINK)
    _warn(public, target)
    return target


def _warn(public: Path, aside: Path) -> None:
    _log.warning(
        "%s: a version that was written by path, not through siltstone, was set aside as %s;"
        " the store does not read it: verify lists it, import_external(<table>) commits rows that"
        " it appended, and write through siltstone",
        public,
        aside,
    )


def _unused(files: Files, aside: Path, public: Path) -> Path:
    """Return an unused name for a version that is set aside."""
    return files.temporary(aside / public.name).with_suffix(SUFFIX)


def _take_away(files: Files, folder: Path, public: Path, identity: tuple[int, int]) -> None:
    """Unlink a public name, unless another thread or process has given it to another version.

    What it is can be known for certain only once no other process finds it. Until then it has a
    name among the versions that were set aside: it may be one, which a client has just written, and
    whose public name is taken when it is given back.
    """
    aside = folder / PRIVATE_DIRECTORY / EXTERNAL_DIRECTORY
    taken = _unused(files, aside, public)
    files.rename(public, taken)
    is_other = files.identity(taken) != identity and not _is_given_back(files, taken, public)
    if is_other and not is_ours(files, folder, taken):
        files.sync_file(taken)
        files.sync_dir(aside)
        _warn(public, taken)
    else:
        files.unlink(taken)


def _is_given_back(files: Files, taken: Path, public: Path) -> bool:
    """Give a version its public name back, unless that has been taken since."""
    try:
        files.link(taken, public)
    except FileExistsError:
        return False
    return True


def is_ours(files: Files, folder: Path, public: Path) -> bool:
    """Return whether a public name in the dataset `folder` belongs to a manifest of ours."""
    return files.identity(public) in identities(files, folder, [public])


def _numbered(files: Files, public: Path) -> list[tuple[int, str]]:
    """Return the version and the name of each manifest in a directory."""
    found = ((_version(name), name) for name in names_in(files, public))
    return [(version, name) for version, name in found if version is not None]


def identities(files: Files, folder: Path, public: Sequence[Path]) -> frozenset[tuple[int, int]]:
    """Return the identities of all manifests of ours in the dataset `folder`, listed once.

    None if `public` is empty: there is nothing to distinguish. It includes those `public` names
    that are a copy of one: a store that was copied without its hard links has two files instead of
    two names.
    """
    if not public:
        return frozenset()
    private, found = folder / PRIVATE_DIRECTORY, set[tuple[int, int]]()
    called: dict[str, list[Path]] = {}
    for name in names_in(files, private):
        if name == EXTERNAL_DIRECTORY:
            continue
        for each, identity in _identified(files, private / name).items():
            found.add(identity)
            called.setdefault(each, []).append(private / name / each)
    for path in public:
        with contextlib.suppress(FileNotFoundError):
            identity = files.identity(path)
            ours = called.get(public_name(version_of(path.name) or 0), ())
            if identity not in found and any(is_same(files, path, each) for each in ours):
                found.add(identity)
    return frozenset(found)


def _identified(files: Files, directory: Path) -> dict[str, tuple[int, int]]:
    """Return the files in the directory of a transaction, with their identities.

    Listed again if one is gone: a vacuum renames a manifest before it deletes it (`withdraw`), and
    a process that saw neither name would take the public one for an external version.
    """
    found: dict[str, tuple[int, int]] = {}
    for _ in range(_LISTINGS_MAX):
        try:
            names = files.list(directory)
        except ABSENT:
            break
        with contextlib.suppress(*ABSENT):
            for name in names:
                found[name] = files.identity(directory / name)
            break
    return found


def is_same(files: Files, path: Path, other: Path) -> bool:
    """Say whether two names are of one manifest: of one file, or of two with the same bytes."""
    if files.identity(path) == files.identity(other):
        return True
    return files.size(path) == files.size(other) and files.read(path) == files.read(other)


def public_name(version: int) -> str:
    """Return the name of a version's manifest: the newest sorts first."""
    return f"{_VERSION_MAX - version:020d}{SUFFIX}"


def version_of(name: str) -> int | None:
    """Return the version in a manifest's name, also if it was set aside."""
    return _version(name.removeprefix(".").partition(SUFFIX)[0] + SUFFIX)


def _version(name: str) -> int | None:
    stem = name.removesuffix(SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdecimal() and len(stem) <= 20):
        return None  # there are digits that are none of ours, such as those of other scripts
    version = _VERSION_MAX - int(stem)
    return None if version < 0 else version
