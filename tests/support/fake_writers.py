"""Fake writers: rows and folds of fake datasets, each one commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.failpoints import Failpoint, cross
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.formats.types.casts import cast_column
from siltstone.formats.types.defaults import absent
from siltstone.storage.files import arrow_file
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.tables import kept_names, staging
from siltstone.storage.tables.values import (
    NOTHING_RETYPED,
    POSITION,
    AdoptedLoad,
    Span,
    StagedFiles,
)
from siltstone.units import require
from tests.support.fake_pinned import FakeManifest, FakePinned

if TYPE_CHECKING:
    pass
from tests.support.fake_datasets import FakeFiles, FakeReader, extended


class FakeWriter:
    """See `tables.TableWriter`."""

    def __init__(self, data: FakeFiles, reader: FakeReader) -> None:
        self._data, self._reader = data, reader

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        with translated(self._data.root / folder, is_reading=False):
            for name in ("data", "_versions"):
                self._data.files.mkdir(self._data.root / folder / name)
        ids = tuple(range(len(schema)))
        return self._data.commit(folder, FakeManifest(schema, ids, len(ids), (), ()), ())

    def stage(
        self,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> StagedFiles:
        manifest = self._data.manifest(pin)
        found = staging.peeked(batches)
        if found is None:
            return StagedFiles(0, (), (), ())
        names = staging.narrowed(manifest.schema, found[0].names).names
        columns = tuple(column for column in manifest.columns if column[0] in names)
        return replace(
            self._data.write(pin.folder, manifest.schema, found[1], seqs), columns=columns
        )

    def commit(self, pin: Pin, staged: StagedFiles) -> Pin:
        if not staged.rows:
            return pin
        old = self._data.manifest(pin)
        staging.refuse_unfit(staged.columns, old.columns)
        return self._data.commit(pin, extended(old, staged), staged.files)

    def commit_first(self, pin: Pin, staged: StagedFiles) -> Pin:
        if not staged.rows:
            return pin
        require(pin.version == 1, f"{pin.path} is version {pin.version}, not the first")
        old = self._data.manifest(pin)
        staging.refuse_unfit(staged.columns, old.columns)
        return self._data.commit(pin.folder, extended(old, staged), staged.files)

    def write_arrow(self, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Pin:
        return arrow_file.write(self._data.files, self._data.root, folder, schema, batches)

    def append(
        self,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> Pin:
        return self.commit(pin, self.stage(pin, batches, seqs=seqs))

    def overwrite(self, pin: Pin, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Pin:
        staged = self._data.write(pin.folder, schema, batches, None)
        ids = tuple(range(len(schema)))
        new = extended(FakeManifest(schema, ids, len(ids), (), ()), staged)
        pin = msgspec.structs.replace(pin, runs=())
        return self._data.commit(pin, new, staged.files)

    def renumbered(self, pin: Pin, version: int) -> Pin:
        """See `tables.TableWriter.renumbered`."""
        return self._data.commit(pin, self._data.manifest(pin), (), version=version)

    def alter(
        self,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
        relax: Sequence[str] = (),
        retype: Mapping[str, pa.DataType] = NOTHING_RETYPED,
        forbid: Sequence[str] = (),
    ) -> Pin:
        if forbid:
            pin = self.alter(pin, rename=rename, drop=drop, add=add, relax=relax, retype=retype)
            old = self._data.manifest(pin)
            fields = [f.with_nullable(f.nullable and f.name not in forbid) for f in old.schema]
            return self._data.commit(pin, replace(old, schema=pa.schema(fields)), ())
        table = self._reader.open(pin)
        staging.refuse_alter(table.schema, rename, drop, add, relax, retype)
        if not (rename or drop or add or relax or retype):
            return pin
        if retype:
            pin = self._retyped(pin, retype)
            table = self._reader.open(pin)
        kept = [
            (
                field.with_name(rename.get(field.name, field.name)).with_nullable(
                    field.nullable or field.name in relax
                ),
                number,
                field.name,
            )
            for field, number in zip(table.schema, table.manifest.ids, strict=True)
            if rename.get(field.name, field.name) not in drop
        ]
        schema = pa.schema([*(field for field, _, _ in kept), *add])
        first = table.manifest.next_id
        ids = (*(number for _, number, _ in kept), *range(first, first + len(add)))
        new = FakeManifest(schema, ids, first + len(add), (), ())
        hidden: list[str] = []
        old_names = [name for _, _, name in kept]
        files: list[InventoryFile] = []
        for index, path in enumerate(table.manifest.paths):
            part = table.part(index).select(old_names).rename_columns([f.name for f, _, _ in kept])
            for field in add:
                part = part.append_column(field, absent(field, part.num_rows))
            seqs = self._data.inventories.live(pin.inventory, [path])[path].seqs
            staged = self._data.write(pin.folder, schema, part.to_batches(), seqs)
            new, files = extended(new, staged), [*files, *staged.files]
            mine = [h for h in map(json.loads, table.manifest.hidden) if h["path"] == path]
            hidden += [json.dumps({**each, "path": new.paths[-1]}) for each in mine]
        return self._data.commit(pin, replace(new, hidden=tuple(hidden)), files)

    def _retyped(self, pin: Pin, retype: Mapping[str, pa.DataType]) -> Pin:
        """Write columns anew in other types, each with a new id, as if it were another one."""
        table, first = self._reader.open(pin), self._data.manifest(pin).next_id
        new = {name: first + place for place, name in enumerate(retype)}
        schema = pa.schema([
            pa.field(f.name, retype[f.name]) if f.name in retype else f for f in table.schema
        ])  # fmt: skip
        pairs = zip(table.schema, table.manifest.ids, strict=True)
        ids = tuple(new.get(field.name, number) for field, number in pairs)
        made, files = FakeManifest(schema, ids, first + len(new), (), ()), list[InventoryFile]()
        hidden: list[str] = []
        for index, path in enumerate(table.manifest.paths):
            part = table.part(index).select(table.schema.names)
            for place, field in enumerate(schema):
                if field.name in retype:
                    typed = cast_column(part.column(place).combine_chunks(), field.type)
                    part = part.set_column(place, field, typed)
            seqs = self._data.inventories.live(pin.inventory, [path])[path].seqs
            staged = self._data.write(pin.folder, schema, part.to_batches(), seqs)
            made, files = extended(made, staged), [*files, *staged.files]
            mine = [h for h in map(json.loads, table.manifest.hidden) if h["path"] == path]
            hidden += [json.dumps({**each, "path": made.paths[-1]}) for each in mine]
        return self._data.commit(pin, replace(made, hidden=tuple(hidden)), files)


class FakeRewriter:
    """See `tables.TableRewriter`."""

    def __init__(self, data: FakeFiles, reader: FakeReader) -> None:
        self._data, self._reader = data, reader

    def fold(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        compact_below: int,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        table, added = self._reader.open(pin), [batch for batch in batches if batch.num_rows]
        has_more = bool(added or loads)
        gone = self.outworn(pin, drop, compact_below=compact_below, has_more=has_more)
        moved = [
            batch
            for index, span in enumerate(table.spans)
            if span in gone
            for batch in without(table.part(index), drop).to_batches()
        ]
        staged = self._data.write(pin.folder, table.schema, [*moved, *added], None)
        staged = replace(staged, columns=table.manifest.columns)
        return self.fold_staged(pin, gone, staged, drop, loads)

    def adopts(self, pin: Pin, load: Pin, columns: Sequence[tuple[str, str]]) -> bool:
        """See `tables.TableRewriter.adopts`."""
        base, other = self._data.manifest(pin).schema, self._data.manifest(load).schema
        known = {theirs: other.field(ours).type for ours, theirs in columns}
        return all(known[f.name] == f.type if f.name in known else f.nullable for f in base)

    def _adopt(
        self, old: FakeManifest, folder: str, load: AdoptedLoad
    ) -> tuple[FakeManifest, list[InventoryFile]]:
        """Return a manifest with the files of a load, under names of base, and these files."""
        theirs, known = self._reader.open(load.pin), self._data.living(load.pin)
        files: list[InventoryFile] = []
        for path, rows, (first, end) in zip(
            theirs.manifest.paths, theirs.manifest.rows, theirs.spans, strict=True
        ):
            name = f"{folder}/data/{self._data.token()}.arrow"
            with translated(self._data.root / folder, is_reading=False):
                kept_names.give(self._data.files, self._data.root / path, self._data.root / name)
                cross(Failpoint.NAME_AFTER_ADOPTION)
                self._data.files.sync_dir(self._data.root / folder / "data")
            files.append(replace(known[path], path=name))
            offsets = [int(n) - first for n in load.gone if first <= n < end]
            described = json.dumps({"path": name, "columns": dict(load.columns)})
            old = replace(
                old,
                paths=(*old.paths, name),
                rows=(*old.rows, rows),
                adopted=(*old.adopted, described),
            )
            if offsets:
                files += self._hide(folder, offsets)
                each = {"path": name, "file": files[-1].path, "count": len(offsets)}
                old = replace(old, hidden=(*old.hidden, json.dumps(each)))
        return old, files

    def outworn(
        self, pin: Pin, drop: np.ndarray, *, compact_below: int, has_more: bool
    ) -> list[Span]:
        """See `tables.TableRewriter.outworn`: of which half is hidden, and small ones."""
        table = self._reader.open(pin)
        require(bool(np.isin(np.flatnonzero(~table.live.bools()), drop).all()), "rows come back")
        lost = [int(((drop >= first) & (drop < end)).sum()) for first, end in table.spans]
        left = [end - first - n for (first, end), n in zip(table.spans, lost, strict=True)]
        worn = {i for i, n in enumerate(lost) if n and n >= left[i]}
        small = {i for i, n in enumerate(left) if n < compact_below}
        losing = {i for i, n in enumerate(lost) if n > self._hidden(table, i)}
        found = sorted(worn | small)
        is_worth = worn or small & losing or has_more or len(found) > 1
        return [table.spans[index] for index in found] if is_worth else []

    def fold_staged(
        self,
        pin: Pin,
        gone: Sequence[Span],
        staged: StagedFiles,
        drop: np.ndarray,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        table = self._reader.open(pin)
        old = table.manifest
        require(set(gone) <= set(table.spans), f"{gone} are not all parts of {pin.path}")
        if staged.rows:
            staging.refuse_unfit(staged.columns, old.columns)
        stay = [index for index, span in enumerate(table.spans) if span not in set(gone)]
        hidden: list[str] = []
        files: list[InventoryFile] = []
        for index in stay:
            first, end = table.spans[index]
            offsets = sorted({int(n) - first for n in drop if first <= n < end})
            if len(offsets) > self._hidden(table, index):
                files += self._hide(pin.folder, offsets)
                file = files[-1].path
            else:
                file = old.hiding(old.paths[index]) or ""
            if file:
                each = {"path": old.paths[index], "file": file, "count": len(offsets)}
                hidden.append(json.dumps(each))
        if not (files or gone or staged.rows or loads):
            return pin
        cross(Failpoint.MERGE_AFTER_DELETIONS)
        paths = tuple(old.paths[index] for index in stay)
        rows = tuple(old.rows[index] for index in stay)
        new = extended(replace(old, paths=paths, rows=rows, hidden=tuple(hidden)), staged)
        for load in loads:
            new, more = self._adopt(new, pin.folder, load)
            files += more
        return self._data.commit(pin, new, [*files, *staged.files])

    def _hidden(self, table: FakePinned, index: int) -> int:
        found = (json.loads(text) for text in table.manifest.hidden)
        path = table.manifest.paths[index]
        return next((each["count"] for each in found if each["path"] == path), 0)

    def _hide(self, folder: str, offsets: Sequence[int]) -> list[InventoryFile]:
        path = f"{folder}/_deletions/{self._data.token()}.json"
        with translated(self._data.root / folder, is_reading=False):
            self._data.files.mkdir((self._data.root / path).parent)
            self._data.files.write(self._data.root / path, json.dumps(offsets).encode())
            self._data.files.sync_dir((self._data.root / path).parent)
            return self._data.inventories.hashed([path], None)

    def rewrite(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        seqs: tuple[int, int] | None = None,
        is_numbered: bool = False,  # the seam: always so
    ) -> Pin:
        table, dropped = self._reader.open(pin), np.asarray(drop, dtype=np.int64)
        require(
            not len(dropped) or 0 <= dropped.min() <= dropped.max() < pin.rows,
            f"positions to drop lie outside the {pin.rows} rows of {pin.path}",
        )
        old, added = table.manifest, [batch for batch in batches if batch.num_rows]
        parts = [table.part(index) for index in range(len(old.paths))]
        keeps = [~np.isin(part[POSITION].to_numpy(), dropped) for part in parts]
        touched = [not keep.all() for keep in keeps]
        if not any(touched) and not added:
            return pin
        moved = [
            batch
            for part, keep, is_touched in zip(parts, keeps, touched, strict=True)
            if is_touched
            for batch in part.drop_columns(POSITION).filter(pa.array(keep)).to_batches()
        ]
        known = self._data.inventories.live(pin.inventory, old.paths)
        inputs = [known[path] for path, t in zip(old.paths, touched, strict=True) if t]
        span = staging.span(inputs, seqs, has_more=bool(added))
        staged = self._data.write(pin.folder, old.schema, [*moved, *added], span)
        stay = [index for index, is_touched in enumerate(touched) if not is_touched]
        paths, rows = (tuple(values[i] for i in stay) for values in (old.paths, old.rows))
        new = extended(replace(old, paths=paths, rows=rows), staged)
        return self._data.commit(pin, new, staged.files)


def without(part: pa.Table, drop: np.ndarray) -> pa.Table:
    kept = ~np.isin(part[POSITION].to_numpy(), drop)
    return part.drop_columns(POSITION).filter(pa.array(kept))
