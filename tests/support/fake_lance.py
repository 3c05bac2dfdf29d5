"""Fake Lance: `tables.Tables` in Arrow IPC files, small enough to be right at a glance.

    <folder>/data/<token>.arrow                    Arrow IPC stream, written once
    <folder>/_siltstone/<token>/<version>.manifest JSON: schema, column ids, data files
    <folder>/_indices/<token>/segment.arrow        a segment of an index: the column, as it is
    <folder>/_versions/                            promoted links

The durable steps come in the order of `lance_tables`, through `Files`, so that crash tests
enumerate them on a simulated machine, where Rust cannot follow. Everything is held in memory.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.errors import UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin, physical_of
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.external import external_tables, version_import
from siltstone.storage.tables import kept_names, promotion, staging
from siltstone.storage.tables.inventories import Inventories, check, describe
from siltstone.storage.tables.key_cover import TableKeys
from siltstone.storage.tables.tables import Tables
from siltstone.storage.tables.values import (
    INDEX_DIRECTORY,
    POSITION,
    AdoptedLoad,
    BuiltSegment,
    Compacted,
    Ephemeral,
    ExternalVersion,
    ImportedVersion,
    IndexSpec,
    InputsMovedError,
    Listed,
    ShownTable,
    Span,
    StagedFiles,
    StagedVersion,
)
from siltstone.units import require
from tests.support.fake_pinned import FakeManifest, FakePinned

if TYPE_CHECKING:
    from siltstone.storage.files.files import Files


class FakeFiles:
    """The files of fake datasets, and the two steps of every change: `write`, then `commit`."""

    def __init__(self, root: Path, files: Files, token: Callable[[], str]) -> None:
        self.root, self.files, self.token = root, files, token
        self.inventories = Inventories(root, files, token)

    def manifest(self, pin: Pin) -> FakeManifest:
        check(self.files, self.root, InventoryFile(pin.path, pin.size, pin.xxh3))
        return FakeManifest.decode(self.read(pin.path))

    def read(self, path: str) -> bytes:
        try:
            return self.files.read(self.root / path)
        except OSError as error:  # as `lance_errors` does for what Lance reads itself
            raise UnavailableError(f"{path} cannot be read: {error}") from error

    def write(
        self,
        folder: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        rows = [staging.arranged(batch, schema) for batch in batches if batch.num_rows]
        if not rows:
            return StagedFiles(0, (), (), ())
        path = f"{folder}/data/{self.token()}.arrow"
        with translated(self.root / folder, is_reading=False):
            self.files.write(self.root / path, _stream(schema, rows))
            files = self.inventories.seal([path], seqs)
            self.files.sync_dir(self.root / folder / "data")
        count = sum(batch.num_rows for batch in rows)
        return StagedFiles(count, (json.dumps([path, count]),), tuple(files), ())

    def commit(self, on: Pin | str, manifest: FakeManifest, added: Iterable[InventoryFile]) -> Pin:
        """Commit on a pin, or the first version in a folder."""
        pin, folder = (None, on) if isinstance(on, str) else (on, on.folder)
        version = 1 if pin is None else pin.version + 1
        path = f"{folder}/{PRIVATE_DIRECTORY}/{self.token()}/{promotion.public_name(version)}"
        with translated(self.root / folder, is_reading=False):
            self.files.mkdir((self.root / path).parent)
            self.files.write(self.root / path, manifest.encode())
            below, hidden = "" if pin is None else pin.inventory, manifest.hidden_rows
            physical = self._physical(path, manifest) if hidden else []
            self.files.sync_dir((self.root / path).parent)
            runs = () if pin is None else pin.runs
            live = [*manifest.live, *(file.path for file in (*physical, *runs))]
            inventory = self.inventories.add(below, [*added, *physical], live)
            made = self.inventories.pin(version, path, sum(manifest.rows) - hidden, inventory)
            return msgspec.structs.replace(
                made, hidden_rows=hidden or msgspec.UNSET, key_runs=runs or msgspec.UNSET
            )

    def _physical(self, path: str, manifest: FakeManifest) -> list[InventoryFile]:
        self.files.write(self.root / physical_of(path), replace(manifest, hidden=()).encode())
        return self.inventories.hashed([physical_of(path)], None)

    def living(self, pin: Pin) -> dict[str, InventoryFile]:
        """Return the files that a pin needs besides its manifest, by their paths."""
        others = [pin.physical_path] if pin.hidden else []
        others += [run.path for run in pin.runs]
        return self.inventories.live(pin.inventory, [*self.manifest(pin).live, *others])


class FakeReader:
    """See `tables.TableReader`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def open(self, pin: Pin) -> FakePinned:  # the seam
        manifest, known = self._data.manifest(pin), self._data.living(pin)
        if pin.hidden:
            check(self._data.files, self._data.root, known[pin.physical_path])

        def read(path: str) -> pa.Table:
            self._data.inventories.verify([known[path]])
            table = pa.ipc.open_stream(self._data.read(path)).read_all()
            return manifest.as_here(path, table)

        def offsets(path: str) -> list[int]:
            self._data.inventories.verify([known[path]])
            return json.loads(self._data.read(path))

        return FakePinned(pin, manifest, read, known, offsets)

    def files(self, pin: Pin) -> list[InventoryFile]:  # the seam
        manifest = InventoryFile(pin.path, pin.size, pin.xxh3)
        return [
            *self._data.living(pin).values(),
            manifest,
            *self._data.inventories.own_files(pin.inventory),
        ]

    def derived(self, pin: Pin) -> dict[str, bytes]:
        physical = replace(self._data.manifest(pin), hidden=())
        return {pin.physical_path: physical.encode()} if pin.hidden else {}

    def check(self, pin: Pin) -> None:
        for file in self.files(pin):
            check(self._data.files, self._data.root, file)

    def release(self) -> None:
        pass


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
        return self._data.commit(pin, _extended(old, staged), staged.files)

    def commit_first(self, pin: Pin, staged: StagedFiles) -> Pin:
        if not staged.rows:
            return pin
        require(pin.version == 1, f"{pin.path} is version {pin.version}, not the first")
        old = self._data.manifest(pin)
        staging.refuse_unfit(staged.columns, old.columns)
        return self._data.commit(pin.folder, _extended(old, staged), staged.files)

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
        new = _extended(FakeManifest(schema, ids, len(ids), (), ()), staged)
        pin = msgspec.structs.replace(pin, key_runs=msgspec.UNSET)
        return self._data.commit(pin, new, staged.files)

    def alter(
        self,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
    ) -> Pin:
        table = self._reader.open(pin)
        staging.refuse_alter(table.schema, rename, drop, add)
        if not (rename or drop or add):
            return pin
        kept = [
            (field.with_name(rename.get(field.name, field.name)), number, field.name)
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
            seqs = self._data.inventories.live(pin.inventory, [path])[path].seqs
            staged = self._data.write(pin.folder, schema, part.to_batches(), seqs)
            new, files = _extended(new, staged), [*files, *staged.files]
            mine = [h for h in map(json.loads, table.manifest.hidden) if h["path"] == path]
            hidden += [json.dumps({**each, "path": new.paths[-1]}) for each in mine]
        return self._data.commit(pin, replace(new, hidden=tuple(hidden)), files)


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
            for batch in _without(table.part(index), drop).to_batches()
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
        new = _extended(replace(old, paths=paths, rows=rows, hidden=tuple(hidden)), staged)
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
        compact_below: int = 0,
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
        losing = [not keep.all() for keep in keeps]
        touched = [
            lost or rows < compact_below for lost, rows in zip(losing, old.rows, strict=True)
        ]
        if not any(losing) and not added and sum(touched) < 2:
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
        new = _extended(replace(old, paths=paths, rows=rows), staged)
        return self._data.commit(pin, new, staged.files)


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

    def ready(self, pin: Pin, compacted: Sequence[Compacted]) -> Pin:  # the seam
        return pin

    def swap(self, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        if not compacted:
            return pin
        old = self._data.manifest(pin)
        parts = [json.dumps(part) for part in zip(old.paths, old.rows, strict=True)]
        for item in compacted:
            hiding = [path for path, _ in map(json.loads, item.inputs) if old.hiding(path)]
            if hiding or not set(item.inputs) <= set(parts):
                raise InputsMovedError
            at = parts.index(item.inputs[0])
            parts = [part for part in parts if part not in item.inputs]
            parts[at:at] = item.fragments
        pairs = [json.loads(part) for part in parts]
        new = replace(
            old,
            paths=tuple(path for path, _ in pairs),
            rows=tuple(rows for _, rows in pairs),
            segments=tuple(_after(text, compacted) for text in old.segments),
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
            self._data.files.write(self._data.root / path, _stream(rows.schema, rows.to_batches()))
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
            if not covered or _is_covered(segments, segment.index, covered):
                raise InputsMovedError
            segments.append(json.dumps({**json.loads(segment.described), "covered": covered}))
        files = [file for segment in built for file in segment.files]
        return self._data.commit(pin, replace(old, segments=tuple(segments)), files)


class FakeNames:
    """See `tables.PublicNames`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def show(self, folder: str, pins: Iterable[Pin], *, is_whole: bool = False) -> None:
        where = self._data.root / folder
        wanted = {pin.version: self._data.root / pin.path for pin in pins}
        with translated(where, is_reading=False):
            promotion.link(self._data.files, where, wanted, max(wanted))

    def promote(self, pins: Sequence[Pin], newest: Pin) -> None:
        where = self._data.root / newest.folder
        wanted = {pin.version: self._data.root / pin.path for pin in (*pins, newest)}
        with translated(where, is_reading=False):
            promotion.link(self._data.files, where, wanted, newest.version)
            promotion.unlink_stale(self._data.files, where, set(wanted), newest.version)
            promotion.clear(self._data.files, where)

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        where = self._data.root / folder
        with translated(where, is_reading=False):
            found = promotion.clear(self._data.files, where, above)
        return [(version, str(path.relative_to(self._data.root))) for version, path in found]

    def unite(self, folder: str) -> None:
        """See `tables.PublicNames.unite`: files have one name, nobody else opens these datasets."""

    def unite_all(self) -> None:
        """See `tables.PublicNames.unite_all`."""

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """See `tables.PublicNames.lacking`."""
        return [], []


class FakeExternal:
    """See `tables.ExternalTables`."""

    def __init__(self, data: FakeFiles) -> None:
        self._data = data

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """See `tables.ExternalTables.import_version`; the client is `stage_external`."""
        staged = version_import.staged_manifest(self._data.root, folder, given)
        with translated(self._data.root / folder, is_reading=False):
            version_import.take(self._data.files, staged, given.size)
            manifest = FakeManifest.decode(self._data.files.read(staged.target))
            below = "" if pin is None else pin.inventory
            chain = self._data.inventories.chain(below).values()
            known = {file.path for each in chain for file in each.files}
            added = self._data.inventories.seal([p for p in manifest.paths if p not in known], None)
            living = () if pin is None else self._data.manifest(pin).live
            back = tuple(p for p in manifest.paths if p in known and p not in living)
            self._data.files.sync_file(staged.target)
            private = (staged.target.parent, staged.target.parent.parent)
            for path in (*private, self._data.root / folder / "data", self._data.root / folder):
                self._data.files.sync_dir(path)
            inventory = self._data.inventories.add(below, added, manifest.paths)
            file = describe(self._data.files, self._data.root, staged.pin_path(self._data.root))
        rows = sum(manifest.rows)
        made = Pin(given.version, file.path, file.size, file.xxh3, rows, inventory)
        paths = (file.path, *(each.path for each in added))
        return ImportedVersion(made, manifest.schema, "Append", given.version - 1, paths, back)

    def versions(self, folder: str) -> list[ExternalVersion]:
        """Take each for one that appended the last of its data files."""
        found: list[ExternalVersion] = []
        for version, path in external_tables.manifests(self._data.files, self._data.root, folder):
            try:
                manifest = FakeManifest.decode(self._data.read(path))
            except ValueError as error:
                found.append(ExternalVersion(path, version, 0, f"it cannot be read: {error}"))
                continue
            last = manifest.paths[-1:]
            rows = sum(manifest.rows)
            added = sum(manifest.rows[-1:])
            found.append(
                ExternalVersion(path, version, rows, "Append", added, last, manifest.paths)
            )
        return found

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        for path in external.files:
            yield from pa.ipc.open_stream(self._data.read(path)).read_all().to_batches()

    def stage_external(
        self, folder: str, pin: Pin | None, batch: pa.RecordBatch, name: str
    ) -> StagedVersion:
        """Stage an append as another client would: nothing is synced."""
        ids = tuple(range(len(batch.schema)))
        none = FakeManifest(batch.schema, ids, len(ids), (), ())
        old = none if pin is None else self._data.manifest(pin)
        version = 1 if pin is None else pin.version + 1
        where = self._data.root / folder
        path = f"{folder}/data/{name}.arrow"
        manifest = where / "_versions" / f"{promotion.public_name(version)}-{name}"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        staged = StagedFiles(batch.num_rows, (json.dumps([path, batch.num_rows]),), (), ())
        data = _extended(old, staged).encode()
        with translated(where, is_reading=False):
            for directory in ("data", "_versions"):
                self._data.files.mkdir(where / directory)
            self._write_unsynced(self._data.root / path, sink.getvalue().to_pybytes())
            self._write_unsynced(manifest, data)
        return StagedVersion(version, str(manifest), len(data))

    def _write_unsynced(self, path: Path, data: bytes) -> None:
        file = self._data.files.open(path, new=True)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()


class FakeClientViews:
    """See `tables.ClientViews`."""

    def __init__(self, rewriter: FakeRewriter) -> None:
        self._rewriter = rewriter

    def overlaid(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        version: int,
    ) -> Ephemeral:
        """See `tables.ClientViews.overlaid`; here its rows are written anew."""
        made = self._rewriter.fold(pin, drop=drop, batches=batches, compact_below=1 << 62)
        file = InventoryFile(made.path, made.size, made.xxh3)
        own = () if made is pin else (file,)
        pin = Pin(version, made.path, made.size, made.xxh3, made.rows, "")
        return Ephemeral(pin, own)

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.ClientViews.write_directory`; no reader of a fake knows it."""

    def write_root_tables(self, tables: Sequence[ShownTable]) -> None:
        """See `tables.ClientViews.write_root_tables`; no reader of a fake knows it."""


def fake_lance(
    root: Path, files: Files, *, token: Callable[[], str] = lambda: uuid.uuid4().hex
) -> Tables:
    """Return `tables.Tables` that give the same answers as `lance_tables`, on any `Files`."""
    data = FakeFiles(root, files, token)
    reader = FakeReader(data)
    rewriter = FakeRewriter(data, reader)
    return Tables(
        reader=reader,
        writer=FakeWriter(data, reader),
        rewriter=rewriter,
        compactor=FakeCompactor(data, reader),
        indexer=FakeIndexer(data, reader),
        names=FakeNames(data),
        external=FakeExternal(data),
        clients=FakeClientViews(rewriter),
        keys=TableKeys(root, files, data.inventories, reader, token=token),
    )


def _after(text: str, compacted: Sequence[Compacted]) -> str:
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


def _is_covered(segments: Iterable[str], index: str, paths: Iterable[str]) -> bool:
    mine = (found for found in map(json.loads, segments) if found["index"] == index)
    return any(set(found["covered"]) & set(paths) for found in mine)


def _without(part: pa.Table, drop: np.ndarray) -> pa.Table:
    kept = ~np.isin(part[POSITION].to_numpy(), drop)
    return part.drop_columns(POSITION).filter(pa.array(kept))


def _stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _extended(manifest: FakeManifest, staged: StagedFiles) -> FakeManifest:
    parts = [json.loads(text) for text in staged.fragments]
    return replace(
        manifest,
        paths=(*manifest.paths, *(path for path, _ in parts)),
        rows=(*manifest.rows, *(rows for _, rows in parts)),
    )
