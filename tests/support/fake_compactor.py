"""Fake compactor: joined parts and segments of indexes of fake datasets, each one commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import (
    INDEX_DIRECTORY,
    POSITION,
    BuiltSegment,
    Compacted,
    IndexSpec,
    InputsMovedError,
    Span,
)
from siltstone.units import require

if TYPE_CHECKING:
    pass
from tests.support.fake_datasets import FakeFiles, FakeReader, stream


class FakeCompactor:
    """See `tables.TableCompactor`."""

    def __init__(self, data: FakeFiles, reader: FakeReader) -> None:
        self._data, self._reader = data, reader

    def compact(self, pin: Pin, within: tuple[int, int]) -> Compacted:
        table = self._reader.open(pin)
        old = table.manifest
        chosen = [
            index
            for index, (first, end) in enumerate(table.spans)
            if within[0] <= first and end <= within[1]
        ]
        require(bool(chosen), f"{within} of {pin.path} holds no part")
        known = self._data.inventories.live(pin.inventory, old.paths)
        span = staging.span([known[old.paths[i]] for i in chosen], None, has_more=False)
        rows = table.part(chosen[0]).slice(0, 0)
        rows = pa.concat_tables([rows, *(table.part(index) for index in chosen)])
        rows = rows.drop_columns(POSITION).combine_chunks()
        staged = self._data.write(pin.folder, old.schema, rows.to_batches(), span)
        inputs = tuple(json.dumps([old.paths[index], old.rows[index]]) for index in chosen)
        return Compacted(rows.num_rows, inputs, staged.fragments, staged.files)

    def untouched(self, pin: Pin, planned: Pin, within: Sequence[tuple[int, int]]) -> list[bool]:
        today, old = self._data.manifest(pin), self._reader.open(planned)
        known = {(path, today.hiding(path)) for path in today.paths}
        parts = list(zip(old.manifest.paths, old.spans, strict=True))
        return [
            all(
                (path, old.manifest.hiding(path)) in known
                for path, (a, b) in parts
                if first <= a and b <= end
            )
            for first, end in within
        ]

    def swap(self, pin: Pin, compacted: Sequence[Compacted], *, keeps_indexes: bool = False) -> Pin:
        if not compacted:
            return pin
        old = self._data.manifest(pin)
        parts = [json.dumps(part) for part in zip(old.paths, old.rows, strict=True)]
        for item in compacted:
            hiding = [path for path, _ in map(json.loads, item.inputs) if old.hiding(path)]
            if hiding or not set(item.inputs) <= set(parts):
                raise InputsMovedError
            if keeps_indexes and any(is_split(text, item) for text in old.segments):
                raise InputsMovedError
            at = parts.index(item.inputs[0])
            parts = [part for part in parts if part not in item.inputs]
            parts[at:at] = item.fragments
        pairs = [json.loads(part) for part in parts]
        new = replace(
            old,
            paths=tuple(path for path, _ in pairs),
            rows=tuple(rows for _, rows in pairs),
            segments=tuple(after(text, compacted) for text in old.segments),
        )
        return self._data.commit(pin, new, [file for item in compacted for file in item.files])

    def bare(self, pin: Pin, drop: Sequence[str]) -> list[tuple[int, int]]:
        """See `tables.TableCompactor.bare`: here all columns are in all files."""
        staging.refuse_alter(self._reader.open(pin).schema, {}, drop, ())
        return []


class FakeIndexer:
    """See `tables.TableIndexer`."""

    def __init__(self, data: FakeFiles, reader: FakeReader) -> None:
        self._data, self._reader = data, reader

    def build(self, pin: Pin, spec: IndexSpec, within: Sequence[Span]) -> BuiltSegment:
        table = self._reader.open(pin)
        staging.refuse_unknown(table.schema, spec.column)
        old, wanted = table.manifest, set(within)
        chosen = [index for index, span in enumerate(table.spans) if span in wanted]
        require(len(chosen) == len(wanted), f"{sorted(wanted)} are not all parts of {pin.path}")
        rows = pa.concat_tables([table.part(index).select([spec.column]) for index in chosen])
        token = self._data.token()
        path = f"{pin.folder}/{INDEX_DIRECTORY}/{token}/segment.arrow"
        with translated(self._data.root / pin.folder, is_reading=False):
            self._data.files.mkdir((self._data.root / path).parent)
            self._data.files.write(self._data.root / path, stream(rows.schema, rows.to_batches()))
            files = self._data.inventories.seal([path], None)
            self._data.files.sync_dir((self._data.root / path).parent)
        (column,) = [number for name, number, _ in old.columns if name == spec.column]
        described = {"id": token, "index": spec.name, "kind": spec.kind, "column": column}
        inputs = tuple(json.dumps([old.paths[index], old.rows[index]]) for index in chosen)
        return BuiltSegment(
            spec.name, inputs, json.dumps({**described, "file": path}), tuple(files)
        )

    def put(self, pin: Pin, built: Sequence[BuiltSegment], gone: Sequence[str] = ()) -> Pin:
        if not (built or gone):
            return pin
        old = self._data.manifest(pin)
        segments = [text for text in old.segments if json.loads(text)["id"] not in gone]
        for segment in built:
            inputs = [json.loads(text)[0] for text in segment.inputs]
            covered = [path for path in inputs if path in old.paths]
            is_gone = bool(inputs) and not covered
            if is_gone or is_covered(segments, segment.index, covered):
                raise InputsMovedError
            segments.append(json.dumps({**json.loads(segment.described), "covered": covered}))
        files = [file for segment in built for file in segment.files]
        return self._data.commit(pin, replace(old, segments=tuple(segments)), files)


def after(text: str, compacted: Sequence[Compacted]) -> str:
    """Return a segment after a compaction: one of texts or vectors has the new parts, too."""
    segment = json.loads(text)
    for item in compacted:
        inputs, made = (
            [json.loads(each)[0] for each in some] for some in (item.inputs, item.fragments)
        )
        had = set(inputs) & set(segment["covered"])
        if had and segment["kind"] in {"fts", "vector"}:
            if had != set(inputs):
                raise InputsMovedError
            segment["covered"] += made
    return json.dumps(segment)


def is_split(text: str, item: Compacted) -> bool:
    """Say whether a segment covers some of the inputs, but not all."""
    inputs = {json.loads(each)[0] for each in item.inputs}
    had = inputs & set(json.loads(text)["covered"])
    return bool(had) and had != inputs


def is_covered(segments: Iterable[str], index: str, paths: Iterable[str]) -> bool:
    mine = (found for found in map(json.loads, segments) if found["index"] == index)
    return any(set(found["covered"]) & set(paths) for found in mine)
