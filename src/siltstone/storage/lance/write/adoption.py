"""Adoption: the data files of a bulk load become parts of a base; no row is written again.

    .attached/<job>/data/x.lance   ═link═   base/data/<token>.lance, and its kept name

History keeps the first name for as long as the past needs it, base has the others for as long as
the part lives: each goes by itself, the bytes with the last of them.

A load's file calls columns by their ids, and numbers fields as its own dataset does. Which field of
the base a column of a file is, the manifest alone says, by number. So an adopted part is described
with the numbers of the base, whatever was renamed, dropped, or added under a dropped name since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from siltstone.storage.lance.files import deletions
from siltstone.storage.lance.files.dataset_files import DATA, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import StagedFiles
from siltstone.units import require

_NO_FIELD = -2
"""Lance's own number for a column of a file that no version has any more."""
_OF_OTHER_ROWS = ("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")

Columns = Sequence[tuple[str, str]]
Offsets = Mapping[str, np.ndarray]
"""Offsets in parts, by the name of the first data file of each."""


def fits(base: LancePinned, load: LancePinned, columns: Columns) -> bool:
    """Say whether files of a load may be parts of a base, with `columns` as (its name, base's)."""
    known = {theirs: load.schema.field(ours).type for ours, theirs in columns}
    return (
        base.dataset.data_storage_version == load.dataset.data_storage_version
        and all(part.rows == part.stored for part in load.parts)
        and all(known.get(f.name, f.type) == f.type for f in base.schema)
        and all(f.name in known or f.nullable for f in base.schema)
    )


def adopted(data: DatasetFiles, base: LancePinned, load: LancePinned, by: Columns) -> StagedFiles:
    """Give the files of a load names in the base's folder, durable, and describe them as parts."""
    folder, numbers = base.pin.folder, _numbers(base, load, by)
    named = {path: f"{folder}/{DATA}/{data.token()}.lance" for path in _paths(load)}
    with translated(data.root / folder, is_reading=False):
        data.link(folder, DATA, named)
    files = [replace(load.files[old], path=new) for old, new in named.items()]
    fragments = [load.fragment_of(part).metadata.to_json() for part in load.parts]
    names = {PurePosixPath(old).name: PurePosixPath(new).name for old, new in named.items()}
    texts = tuple(json.dumps(_described(each, numbers, names)) for each in fragments)
    return StagedFiles(load.rows, texts, tuple(files), ())


def _paths(load: LancePinned) -> list[str]:
    return [path for part in load.parts for path in part.paths]


def _numbers(base: LancePinned, load: LancePinned, columns: Columns) -> dict[int, int]:
    """Return the number in the base of each stored field of the load that it still has."""
    ours = {field.name(): staging.leaves(field) for field in load.dataset.lance_schema.fields()}
    theirs = {field.name(): staging.leaves(field) for field in base.dataset.lance_schema.fields()}
    return {
        old: new
        for name, other in columns
        for old, new in zip(ours[name], theirs[other], strict=True)
    }


def _described(
    fragment: dict[str, Any], numbers: Mapping[int, int], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the description of a part of a load as one of the base, still without a number."""
    files = [
        {
            **file,
            "path": names[file["path"]],
            "fields": [numbers.get(number, _NO_FIELD) for number in file["fields"]],
        }
        for file in fragment["files"]
    ]
    return {**fragment, **dict.fromkeys(_OF_OTHER_ROWS), "id": 0, "files": files}


def offsets_gone(load: LancePinned, staged: StagedFiles, gone: np.ndarray) -> Offsets:
    """Return the offsets of the rows at the positions `gone` of a load, ascending, per part."""
    found: dict[str, np.ndarray] = {}
    for part, text in zip(load.parts, staged.fragments, strict=True):
        first, end = np.searchsorted(gone, part.span)
        if end > first:
            found[_first_file(json.loads(text))] = gone[first:end] - part.start
    return found


def hiding(dataset: Any, version: int, gone: Offsets) -> tuple[list[Any], dict[str, bytes]]:
    """Describe adopted parts, which have numbers by now, with deletion files; return these, too."""
    changed: list[Any] = []
    new: dict[str, bytes] = {}
    for metadata in (fragment.metadata for fragment in dataset.get_fragments()):
        offsets = gone.get(_first_file(metadata.to_json()))
        if offsets is not None:
            described, name = deletions.with_deletions(metadata, version, offsets)
            changed.append(described)
            new[name] = deletions.encode(offsets)
    require(len(changed) == len(gone), f"{len(changed)} of {len(gone)} adopted parts are there")
    return changed, new


def _first_file(fragment: Mapping[str, Any]) -> str:
    """Return the name of its first data file: no other part has it."""
    return fragment["files"][0]["path"]
