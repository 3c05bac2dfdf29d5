"""Version import: manifests that another Lance client staged, checked before the import.

    the client   writes data files and  <folder>/_versions/<n>.manifest-<uuid>
    we move it   to                     <folder>/_siltstone/<uuid>/<n>.manifest

The private name has the client's uuid, so a second request for the same manifest is known by the
pin of the first one. All files of a manifest must lie in the table's own folder, with names that
Lance gives; the manifest of another process is data, so no path in it is followed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.arguments import count_of
from siltstone.errors import RequestError
from siltstone.formats.manifest import PRIVATE_DIRECTORY
from siltstone.formats.types import blobs
from siltstone.storage.files.files import Files
from siltstone.storage.lance.files.index_files import inside
from siltstone.storage.tables.promotion import EXTERNAL_DIRECTORY, public_name
from siltstone.storage.tables.values import StagedVersion

MANIFEST_BYTES_MAX = 256 << 20
VERSION_MAX = (1 << 63) - 1
_VERSIONS, _DATA, _DELETIONS = "_versions", "data", "_deletions"
_STAGED_NAME = re.compile(r"([0-9]{1,20})\.manifest-([0-9A-Za-z][0-9A-Za-z-]{0,63})")
# What Lance writes before it links or renames it to a name of `_versions` or `_refs`.
_HALF_WRITTEN_NAME = re.compile(
    rf"([0-9]{{1,20}}\.manifest|{_STAGED_NAME.pattern})#[0-9]{{1,9}}|\.tmp[0-9A-Za-z]{{6}}"
)
_TRANSACTION_NAME = re.compile(r"[0-9]{1,20}-[0-9A-Za-z-]{1,64}\.txn")


class StagedManifest(msgspec.Struct, frozen=True):
    """The path at which the client wrote a manifest, and its private path (absolute)."""

    source: Path
    target: Path

    def pin_path(self, root: Path) -> str:
        """Return the path in a pin over it."""
        return str(self.target.relative_to(root))


def staged_manifest(root: Path, folder: str, given: StagedVersion) -> StagedManifest:
    """Return the paths of the manifest, from its name; nothing is read.

    Raises:
        RequestError: It is not a staged manifest of that version in the table's own folder.
    """
    where = root / folder
    count_of("a version", given.version, 1, VERSION_MAX)
    text = given.path if isinstance(given.path, str) else ""
    path = Path("/" + text.removeprefix("file://").lstrip("/"))
    name = _STAGED_NAME.fullmatch(path.name)
    if "\0" in text or ".." in path.parts or path.parent != where / _VERSIONS or name is None:
        raise RequestError(
            f"the manifest path {text[:200]!r} is not a staged manifest in {where / _VERSIONS}"
        )
    if name[2] == EXTERNAL_DIRECTORY:
        raise RequestError(
            f"the manifest {path.name!r} would lie in the folder of versions that are set aside"
        )
    canonical = public_name(given.version)
    if name[1] not in {canonical.partition(".")[0], str(given.version)}:
        raise RequestError(f"the manifest {path.name!r} is not named as version {given.version}")
    return StagedManifest(path, where / PRIVATE_DIRECTORY / name[2] / canonical)


def is_left(name: str) -> bool:
    """Return whether a file in `_versions` is a manifest that a client staged, or half wrote."""
    return any(known.fullmatch(name) for known in (_STAGED_NAME, _HALF_WRITTEN_NAME))


def take(files: Files, staged: StagedManifest, size: int | None) -> None:
    """Move the manifest to its private name, without a sync; an earlier try may have moved it.

    Raises:
        RequestError: It is missing, a link, has another size, or its private name is taken.
    """
    source, target = staged.source, staged.target
    found = target if files.exists(target) and not files.exists(source) else source
    if not files.exists(found) or files.is_dir(found):
        raise RequestError(f"the manifest {source} does not exist")
    if found.resolve() != found.parent.parent.resolve() / found.parent.name / found.name:
        raise RequestError(f"the manifest {source} is a link, or lies behind one")
    nbytes = files.size(found)
    if nbytes > MANIFEST_BYTES_MAX or size not in {None, nbytes}:
        raise RequestError(f"the manifest {source} has {nbytes} bytes, {size} were announced")
    if found is source:
        if files.exists(target):  # no uuid of a client's making
            raise RequestError(f"the manifest {source} has the name of an existing manifest")
        if not files.is_dir(target.parent.parent):
            files.mkdir(target.parent.parent)
        with contextlib.suppress(FileExistsError):
            files.make_level(target.parent)
        files.rename(source, target)


def transaction_name(text: str) -> str:
    """Return the name of the file with the transaction of a version.

    Raises:
        RequestError: The manifest has none, or an invalid one.
    """
    if not _TRANSACTION_NAME.fullmatch(text):
        raise RequestError(f"the manifest names the transaction {text[:200]!r}")
    return text


def read_version(text: str) -> int:
    """Return the version on which a transaction was planned."""
    return int(transaction_name(text).partition("-")[0])


def refuse_lost(operation: Any, known: Collection[int]) -> None:
    """Refuse a delete or an update of fragments that are not in the version below.

    Lance rebases past a version that it cannot look up, and then ignores fragments that it does not
    find: rows would not be deleted, or would appear twice.

    Raises:
        RequestError: It changes such fragments.
    """
    lost = sorted(with_rows_gone(operation).difference(known))
    if lost:
        raise RequestError(
            f"the version changes fragments {lost}, which are not in the version that it follows;"
            " open the table again"
        )


def with_rows_gone(operation: Any) -> set[int]:
    """Return the fragments that a delete or an update takes away, or rows of them."""
    found = {each.id for each in getattr(operation, "updated_fragments", ())}
    found.update(getattr(operation, "removed_fragment_ids", ()))
    found.update(getattr(operation, "deleted_fragment_ids", ()))
    return found


def refuse_blobs(schema: pa.Schema, storage_format: str) -> None:
    """Refuse columns whose values may lie in files that no fragment names.

    Raises:
        RequestError: The version has such a column, which the message names.
    """
    unkept = blobs.why_unkept(schema, storage_format)
    if unkept is not None:
        raise RequestError(f"column {unkept[0]!r} cannot be a blob column: {unkept[1]}")


def files_of(
    files: Files, root: Path, folder: str, fragments: Iterable[Any], below: Container[str] = ()
) -> list[str]:
    """Return the data and deletion files of fragments, relative to the root.

    Files that the version below needs, too, are not checked again.

    Raises:
        RequestError: A file has an invalid name, lies elsewhere, is missing or has another size.
    """
    found: list[str] = []
    for fragment in fragments:
        for path, size in _named(folder, fragment):
            if path not in below:
                _refuse_unwhole(files, root / path, size)
            found.append(path)
    return found


def _named(folder: str, fragment: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the files that a fragment names, with their bytes where it says those."""
    metadata = fragment.metadata
    if metadata.overlays:
        raise RequestError(f"fragment {metadata.id} has overlays, which are not supported")
    for file in metadata.files:
        if file.base_id is not None:
            raise RequestError(f"the data file {file.path!r} lies in another dataset")
        yield inside(folder, _DATA, file.path), file.file_size_bytes
    deletions = fragment.deletion_file()
    if deletions is not None:
        head, _, name = str(deletions).rpartition("/")
        if head != _DELETIONS:
            raise RequestError(f"the deletion file {deletions!r} lies elsewhere")
        yield inside(folder, _DELETIONS, name), None


def _refuse_unwhole(files: Files, path: Path, size: int | None) -> None:
    if not files.exists(path) or files.is_dir(path):
        raise RequestError(f"the manifest names {path.name}, which does not exist")
    if path.resolve() != path.parent.parent.resolve() / path.parent.name / path.name:
        raise RequestError(f"the file {path.name} is a link, or lies behind one")
    nbytes = files.size(path)
    if size not in {None, nbytes}:
        raise RequestError(f"the file {path.name} has {nbytes} bytes, the manifest says {size}")
