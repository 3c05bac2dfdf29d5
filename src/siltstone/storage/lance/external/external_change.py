"""External change: a client's version differs from the one below it only by the client's operation.

    Lance builds a commit on the highest version in <folder>/_versions/. That may be an external
    version, with a number that a version of ours has, too, but without a public name yet. If it
    were imported, it would lose the rows of ours and add those that were written by path.

So the fragments are compared: a fragment that the operation does not name must be unchanged, and
every fragment must be in the version below or in the operation. A manifest does not name the
version on which it was built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from siltstone.storage.lance.external import version_import
from siltstone.storage.tables.values import OtherLineError

_DATA = "data"
_ANEW = frozenset(("Overwrite", "Restore"))  # nothing of the version below has to be left
_ALL_FILES = frozenset(("Merge", "Project"))  # each fragment may change, and none goes
_ROWS_ONLY = frozenset(("Append", "Delete", "Update", "UpdateConfig", "DataReplacement"))
# Where an operation keeps fragments that it writes, or writes anew.
_FRAGMENTS = ("fragments", "new_fragments", "updated_fragments")
Paths = tuple[str, ...]
Fragments = Mapping[int, Paths]


def of(folder: str, fragments: Iterable[Any]) -> dict[int, Paths]:
    """Return the data and deletion files of each fragment by its number, relative to the root."""
    found: dict[int, Paths] = {}
    for fragment in fragments:
        deletions = fragment.deletion_file()
        gone = () if deletions is None else (f"{folder}/{deletions}",)
        found[fragment.fragment_id] = (*_paths(folder, fragment.metadata), *gone)
    return found


def refuse_other_line(
    folder: str, operation: Any, note: bytes, below: Fragments, above: Fragments
) -> None:
    """Check that a version is the one below with the change of `operation`.

    For a compaction of an indexed table (None) pylance 14 cannot list the old and new fragments;
    their files, with random names, are in `note`, the bytes of Lance's transaction file.

    Raises:
        OtherLineError: It is not; nothing was committed.
    """
    name = "" if operation is None else type(operation).__name__
    if name == "Restore":
        return  # its files are compared with those of the versions in sight
    if operation is None:
        changed = {number for number, paths in below.items() if _are_in(note, paths)}
        removed = changed
        allowed = {path for paths in above.values() for path in paths if _are_in(note, [path])}
    else:
        changed, removed = _changed(operation, below), _removed(operation)
        allowed = _written(folder, operation)
    lost = [] if name in _ANEW else sorted(below.keys() - above.keys() - removed)
    allowed.update(path for number in changed for path in below.get(number, ()))
    other = sorted(
        number
        for number, paths in above.items()
        if _is_other(paths, below.get(number), allowed, may_change=number in changed)
    )
    if lost or other:
        raise OtherLineError(
            f"the version was not built on the newest one of {folder}: it lacks its fragments"
            f" {lost[:10]} and has others of the numbers {other[:10]}. Another program wrote them"
            " by path; nothing was committed; open the table again"
        )


def refuse_other_rows(operation: Any, below: Any, above: Any) -> None:
    """Refuse a delete or an update that restores rows which the version below no longer has.

    For one that was planned on an older version, and rebased; `below` and `above` are Lance's
    handles. The files of its changed fragments stay, so their live rows are compared.

    Raises:
        OtherLineError: It restores rows; nothing was committed.
    """
    left = {each.fragment_id: each for each in below.get_fragments()}
    for number in sorted(each.id for each in getattr(operation, "updated_fragments", ())):
        before, after = left.get(number), above.get_fragment(number)
        if before is None or after is None:
            continue
        is_same = _paths("", before.metadata) == _paths("", after.metadata)
        if not is_same or not np.isin(_living(above, after), _living(below, before)).all():
            raise OtherLineError(
                f"the version brings rows of fragment {number} back that were changed since it was"
                " planned; nothing was committed; open the table again"
            )


def refuse_unsure(folder: str, operation: Any) -> None:
    """Refuse a change of rows in remaining fragments that may be built on an external version.

    Its deletes cannot be distinguished from those of the external version; the files show all other
    changes.

    Raises:
        OtherLineError: It may be; nothing was committed.
    """
    if getattr(operation, "updated_fragments", ()):
        raise OtherLineError(
            f"a version that another program wrote by path into {folder} was set aside while this"
            " one was made, and it may be built on that; nothing was committed; write again, or"
            " open the table again"
        )


def _living(dataset: Any, fragment: Any) -> Any:
    scanner = dataset.scanner(columns=[], fragments=[fragment], with_row_address=True)
    return scanner.to_table().column("_rowaddr").to_numpy()


def refuse_other_schema(operation: Any, below: Any, above: Any) -> None:
    """Refuse columns, or indexes, that the operation did not add.

    `below` and `above` are Lance's handles.

    Raises:
        OtherLineError: There are such; nothing was committed.
    """
    if type(operation).__name__ not in _ROWS_ONLY:
        return
    if _fields(below) != _fields(above) or not _indexes(above) <= _indexes(below):
        raise OtherLineError(
            "the version has columns or indexes that neither the newest one nor its own change has:"
            " another program wrote versions by path; nothing was committed; open the table again"
        )


def _is_other(
    paths: Paths, before: Paths | None, allowed: Collection[str], *, may_change: bool
) -> bool:
    if paths == before:
        return False
    if before is not None and not may_change:
        return True
    # A deletion file is written anew when Lance rebases a delete.
    return any(path not in allowed for path in paths if f"/{_DATA}/" in path)


def _are_in(note: bytes, paths: Iterable[str]) -> bool:
    names = [path.rpartition("/")[2].encode() for path in paths if f"/{_DATA}/" in path]
    return all(name in note for name in names)


def _removed(operation: Any) -> set[int]:
    """Return the fragments that an operation takes away."""
    found = version_import.with_rows_gone(operation)
    for group in getattr(operation, "groups", ()):
        found.update(each.id for each in getattr(group, "old_fragments", ()))
    return found


def _changed(operation: Any, below: Fragments) -> set[int]:
    """Return the fragments of the version below that may be other ones, of the same number."""
    if type(operation).__name__ in _ANEW | _ALL_FILES:
        return set(below)
    replaced = {each.fragment_id for each in getattr(operation, "replacements", ())}
    return _removed(operation) | replaced


def _written(folder: str, operation: Any) -> set[str]:
    """Return the data files that an operation says it wrote, relative to the root."""
    groups = getattr(operation, "groups", ())
    fragments = [
        each
        for one in (operation, *groups)
        for kind in _FRAGMENTS
        for each in getattr(one, kind, ())
    ]
    found = {path for fragment in fragments for path in _paths(folder, fragment)}
    replaced = getattr(operation, "replacements", ())
    return found | {f"{folder}/{_DATA}/{each.new_file.path}" for each in replaced}


def _paths(folder: str, fragment: Any) -> tuple[str, ...]:
    return tuple(f"{folder}/{_DATA}/{file.path}" for file in fragment.files)


def _fields(dataset: Any) -> list[tuple[str, int]]:
    return [(field.name(), field.id()) for field in dataset.lance_schema.fields()]


def _indexes(dataset: Any) -> set[str]:
    return {str(part.uuid) for index in dataset.describe_indices() for part in index.segments}
