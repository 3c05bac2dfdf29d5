"""External versions: versions of a dataset that other programs wrote by path, without siltstone.

    _versions/<n>.manifest              not a link to a manifest of ours
    _siltstone/strangers/.<n>.manifest.*  a version that was set aside

A manifest `_versions/<n>.manifest-<uuid>` is different: a client staged it and perhaps never
commits it. Lance gives such a manifest its final name when it opens it, so opening it would publish
it.

The store does not read external versions, and nothing waits for them. A version *added* the rows of
the data files that its own transaction appended. It may contain more rows: those of the version of
ours on which it was built, of which some may be deleted since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.storage.files.files import Files
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.external import external_change
from siltstone.storage.tables import promotion
from siltstone.storage.tables.tables import PRIVATE_DIRECTORY, ExternalVersion

ASIDE = f"{PRIVATE_DIRECTORY}/{promotion.EXTERNAL_DIRECTORY}"


def manifests(files: Files, root: Path, folder: str) -> list[tuple[int, str]]:
    """Return (version, path) of the external manifests in a dataset, lowest version first.

    Each version appears once: a crash while it is set aside leaves it with two names.
    """
    where = root / folder
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for inside in ("_versions", ASIDE):
        names = files.list(where / inside) if files.is_dir(where / inside) else ()
        final = [name for name in names if name.endswith(promotion.SUFFIX)]
        versions = {name: promotion.version_of(name) for name in final}
        public = [where / inside / name for name in final]
        ours = promotion.identities(files, where, public) if final else frozenset()
        for name, version in versions.items():
            identity = _strange(files, where / inside / name, ours)
            if version is not None and identity is not None:
                found[identity] = (version, f"{folder}/{inside}/{name}")
    return sorted(found.values())


def _strange(files: Files, path: Path, ours: Collection[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the identity of a manifest that is none of `ours`, listed after it was seen.

    Vacuum unlinks the public name of one of ours before the private one, so a name that it took
    away before we listed is gone when it is asked again.
    """
    try:
        identity = files.identity(path)
        return identity if identity not in ours and files.exists(path) else None
    except FileNotFoundError:
        return None


def describe(dataset: Any, path: str, folder: Path, inside: str) -> ExternalVersion:
    """Return the description of a version that Lance opened from `path`.

    `folder` is the folder of the dataset, `inside` the same relative to the root.
    """
    with translated(folder, is_reading=True):
        version, rows = int(dataset.version), int(dataset.count_rows())
        transaction = dataset.read_transaction(version)
        named = _named(dataset, transaction, inside)
        if transaction is None:
            return ExternalVersion(path, version, rows, "unknown", named=named)
        what = type(transaction.operation).__name__
        by = f"{what}, transaction {transaction.uuid}"
        # To append where no dataset is makes one, which Lance calls an overwrite.
        is_first = what == "Overwrite" and version == 1 and not transaction.read_version
        if what != "Append" and not is_first:
            return ExternalVersion(path, version, rows, by, named=named)
        names = {file.path for f in transaction.operation.fragments for file in f.files}
        added = sum(fragment.count_rows() for fragment in _holding(dataset, names))
        return ExternalVersion(path, version, rows, by, added, tuple(sorted(names)), named)


def _named(dataset: Any, transaction: Any, inside: str) -> tuple[str, ...]:
    files = external_change.of(inside, dataset.get_fragments()).values()
    note = ""
    if transaction is not None:
        note = f"{inside}/_transactions/{transaction.read_version}-{transaction.uuid}.txn"
    return (*(path for paths in files for path in paths), note)


def read(dataset: Any, external: ExternalVersion, folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a version added."""
    with translated(folder, is_reading=True):
        for fragment in _holding(dataset, set(external.files)):
            yield from fragment.to_batches()


def _holding(dataset: Any, names: set[str]) -> Iterator[Any]:
    """Yield the fragments whose files are all among `names`."""
    for fragment in dataset.get_fragments():
        if {file.path for file in fragment.metadata.files} <= names:
            yield fragment
