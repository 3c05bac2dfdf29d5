"""Lance indexes: built over chosen fragments in no version, then added to one by a commit.

    <folder>/_indices/<uuid>/*      a segment: an index over the rows of some fragments

An index is one or more segments with one name. Lance builds a segment without a commit, so it is
not visible before our own commit names it; `create_scalar_index` and `optimize_indices` commit next
to other versions, and rebase over them automatically. Rows have stable ids, so a segment stays
correct when fragments that it covers are deleted or compacted. Of deleted fragments it still has
the ids: because of these, and of deletion files, Lance leaves out of a search the rows of the
segment that the version does not have. Compacted fragments stay covered by segments of texts and
vectors, since no row is dropped; Lance takes them from scalar segments, and a scan reads them.

But Lance refuses to compact covered and uncovered fragments into one: `split` names the segments to
remove for that.
"""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from siltstone.choices import IndexKind
from siltstone.storage.lance.search.vector_indexes import encoding_of, of_vectors
from siltstone.storage.tables.values import IndexSpec, InputsMovedError, Segment

STAGING = "staging"  # the empty directory that a merged text index leaves in its own
_SCALAR = {"btree": "BTREE", "bitmap": "BITMAP", "fts": "INVERTED"}
_KINDS: dict[str, IndexKind] = {"BTree": "btree", "Bitmap": "bitmap", "Inverted": "fts"}


def build(dataset: Any, spec: IndexSpec, fragments: Sequence[Any]) -> Any:
    """Write a segment over `fragments` of `dataset`; return Lance's description of it."""
    kind, options = _SCALAR.get(spec.kind, ""), dict[str, Any](spec.options)
    if spec.kind == "vector":
        size = dataset.schema.field(spec.column).type.list_size
        kind, options = of_vectors(options, sum(f.metadata.num_rows for f in fragments), size)
    built = _build(dataset, spec, fragments, kind, options)
    if spec.kind == "vector" and not built.files:  # too few vectors to train a code book of
        kind, options = of_vectors({**dict(spec.options), "encoding": "flat"}, 0, size=1)
        built = _build(dataset, spec, fragments, kind, options)
    # Of a text index the parts lie aside until they are merged, also when there is but one.
    return dataset.merge_existing_index_segments([built]) if spec.kind == "fts" else built


def _build(
    dataset: Any, spec: IndexSpec, fragments: Sequence[Any], kind: str, options: Mapping[str, Any]
) -> Any:
    return dataset.create_index_uncommitted(
        spec.column,
        kind,
        name=spec.name,
        replace=True,  # of the name alone: nothing is committed
        fragment_ids=[fragment.fragment_id for fragment in fragments],
        **options,
    )


def encode(index: Any) -> str:
    """Return Lance's description of a segment as text; `decode` is the inverse."""
    kind, details = index.index_details
    return json.dumps(
        {
            "uuid": str(index.uuid),
            "name": index.name,
            "fields": list(index.fields),
            "dataset_version": index.dataset_version,
            "fragment_ids": sorted(index.fragment_ids),
            "index_version": index.index_version,
            "files": [[file.path, file.size_bytes] for file in index.files],
            "index_details": [kind, base64.b64encode(details).decode()],
        }
    )


def decode(text: str) -> Any:
    """Return a segment from its text, for Lance."""
    found = json.loads(text)
    lance = importlib.import_module("lance.dataset")
    kind, details = found.pop("index_details")
    files = [lance.IndexFile(path, size) for path, size in found.pop("files")]
    return lance.Index(**found, files=files, index_details=(kind, base64.b64decode(details)))


def segments(dataset: Any, spans: Mapping[int, tuple[int, int]]) -> list[Segment]:
    """Return the segments of a version; `spans` has the positions of its fragments' rows."""
    tied_now = tied(dataset)
    return [
        Segment(
            id=str(segment.uuid),
            index=index.name,
            kind=_KINDS.get(index.index_type, "vector"),
            columns=tuple(index.field_names),
            covered=tuple(sorted(spans[n] for n in segment.fragment_ids if n in spans)),
            nbytes=segment.size_bytes or 0,
            tied=tuple(sorted(spans[n] for n in tied_now.intersection(segment.fragment_ids))),
            encoding=encoding_of(index.index_type),
            metric=_metric_of(index),
            type=_type_of(index),
        )
        for index in dataset.describe_indices()
        for segment in index.segments
    ]


def _metric_of(index: Any) -> str | None:
    is_of_vectors = encoding_of(index.index_type) is not None
    return str(index.details["metric_type"]).lower() if is_of_vectors else None


def _type_of(index: Any) -> str:
    if encoding_of(index.index_type) is not None:
        return "vector"
    return _KINDS.get(index.index_type) or index.index_type


def covered(dataset: Any, name: str, gone: Collection[str]) -> set[int]:
    """Return the fragments that segments of an index cover, except those with the ids `gone`."""
    return {
        number
        for index in dataset.describe_indices()
        if index.name == name
        for segment in index.segments
        if str(segment.uuid) not in gone
        for number in segment.fragment_ids
    }


def change(dataset: Any, new: Iterable[Any], gone: Collection[str]) -> Any:
    """Return the operation that adds segments, and removes those with the ids `gone`."""
    lance = importlib.import_module("lance")
    index_of = importlib.import_module("lance.dataset").Index  # `lance.dataset` is a function, too
    removed = [
        index_of(
            uuid=segment.uuid,
            name=index.name,
            fields=list(index.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=set(segment.fragment_ids),
            index_version=segment.index_version,
        )
        for index in dataset.describe_indices()
        for segment in index.segments
        if str(segment.uuid) in gone
    ]
    return lance.LanceOperation.CreateIndex(list(new), removed)


def tied(dataset: Any) -> set[int]:
    """Return the fragments of which no row may go, or get another row id, in a compaction.

    Segments for search cover them: Lance would let such a segment cover the new fragment, too, and
    give a search rows that are gone in the place of some that are there.
    """
    found = {number for _, numbers in _for_search(dataset) for number in numbers}
    fragments = [each for each in dataset.get_fragments() if each.fragment_id in found]
    keeps_ids = dataset.has_stable_row_ids
    return {f.fragment_id for f in fragments if not keeps_ids or f.metadata.deletion_file}


def split(dataset: Any, groups: Iterable[Collection[int]]) -> set[str]:
    """Return the ids of the segments that cover some, but not all, fragments of a group."""
    segments = [s for index in dataset.describe_indices() for s in index.segments]
    wanted = [set(group) for group in groups]
    return {
        str(segment.uuid)
        for segment in segments
        if any(0 < len(group & set(segment.fragment_ids)) < len(group) for group in wanted)
    }


def refuse_unfit(dataset: Any, groups: Iterable[Collection[int]]) -> None:
    """Check that no segment for search is lost, or wrong, by a compaction of these fragments.

    Raises:
        InputsMovedError: One came, or a row went, since the compaction was planned.
    """
    wanted, tied_now = [set(group) for group in groups], tied(dataset)
    lost = split(dataset, wanted) & {name for name, _ in _for_search(dataset)}
    if lost or any(group & tied_now for group in wanted):
        raise InputsMovedError


def _for_search(dataset: Any) -> list[tuple[str, set[int]]]:
    """Return the segments of texts and vectors: their ids, and the fragments that they cover."""
    return [
        (str(segment.uuid), set(segment.fragment_ids))
        for index in dataset.describe_indices()
        if _KINDS.get(index.index_type, "vector") not in {"btree", "bitmap"}
        for segment in index.segments
    ]
