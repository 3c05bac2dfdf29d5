"""Fake Lance: `tables.Tables` in Arrow IPC files, small enough to be right at a glance.

    <folder>/data/<token>.arrow                    Arrow IPC stream, written once
    <folder>/_siltstone/<token>/<version>.manifest JSON: schema, column ids, data files
    <folder>/_indices/<token>/segment.arrow        a segment of an index: the column, as it is
    <folder>/_versions/                            promoted links

The durable steps come in the order of `lance_io`, through `Files`, so that crash tests enumerate
them on a simulated machine, where Rust cannot follow. Everything is held in memory: for tests only.
As long as the protocol `tables.Tables` that it fulfils.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from siltstone.errors import RequestError, SchemaMismatchError, UnavailableError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.external import external_versions, version_import
from siltstone.storage.tables import promotion, staging
from siltstone.storage.tables.inventories import Inventories, check, describe
from siltstone.storage.tables.tables import (
    INDEX_DIRECTORY,
    POSITION,
    PRIVATE_DIRECTORY,
    BuiltSegment,
    Compacted,
    Ephemeral,
    ExternalVersion,
    ImportedVersion,
    IndexSpec,
    InputsMovedError,
    Listed,
    RootTable,
    Segment,
    Span,
    StagedFiles,
    StagedVersion,
)
from siltstone.units import require

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from siltstone.storage.files.files import Files

_BATCHES = 3  # into which a scan is cut: who forgets that there may be several is found out


@dataclass(frozen=True)
class _Manifest:
    """One version. `ids` are the column ids in order; `paths` the data files, in row order.

    `segments` are JSON texts: id, index, kind, column (its id), file, covered (data files).
    """

    schema: pa.Schema
    ids: tuple[int, ...]
    next_id: int
    paths: tuple[str, ...]
    rows: tuple[int, ...]
    segments: tuple[str, ...] = ()

    @property
    def live(self) -> list[str]:
        return [*self.paths, *(json.loads(text)["file"] for text in self.segments)]

    @property
    def columns(self) -> tuple[staging.Column, ...]:
        pairs = zip(self.schema, self.ids, strict=True)
        return tuple((field.name, number, str(field.type)) for field, number in pairs)

    def encode(self) -> bytes:
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return json.dumps({**vars(self), "schema": schema}).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Manifest:
        value = json.loads(data)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value.pop("schema"))))
        lists = {name: tuple(value[name]) for name in _LISTS}
        return cls(schema=schema, next_id=value["next_id"], **lists)


_LISTS = ("ids", "paths", "rows", "segments")


class FakePinned:
    """See `tables.PinnedTable`. A string prefilter is not applied: a superset is allowed."""

    def __init__(
        self,
        pin: Pin,
        manifest: _Manifest,
        read: Callable[[str], pa.Table],
        known: dict[str, InventoryFile],
    ) -> None:
        order = staging.in_seq_order([[known[path]] for path in manifest.paths])
        paths = tuple(manifest.paths[index] for index in order)
        rows = tuple(manifest.rows[index] for index in order)
        self.pin, self.manifest = pin, replace(manifest, paths=paths, rows=rows)
        self.schema, self.rows = manifest.schema, sum(rows)
        self._read, self._known = read, known

    def count(self) -> int:
        return self.rows

    @property
    def spans(self) -> list[tuple[int, int]]:
        ends = list(accumulate(self.manifest.rows))
        return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []

    @property
    def worn(self) -> list[tuple[int, int]]:
        """See `tables.PinnedTable.worn`: nothing is ever deleted in place."""
        return []

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        prefilter: str | pc.Expression | None = None,
        seqs: tuple[int, int] | None = None,
        positions: bool = False,
        limit: int | None = None,
        within: tuple[int, int] | None = None,
        indexed: bool = False,  # noqa: ARG002  # the seam: no index is ever asked
    ) -> Iterator[pa.RecordBatch]:
        table = self._with_positions
        if within is not None:
            table = table.slice(within[0], within[1] - within[0])
        if seqs is not None:
            table = pa.concat_tables([table.slice(0, 0), *self._within(*seqs)])
        if prefilter is not None and not isinstance(prefilter, str):
            table = table.filter(prefilter)
        names = [*(self.schema.names if columns is None else columns), *[POSITION] * positions]
        found = _select(table.slice(0, limit), names)
        return iter(found.to_batches(max_chunksize=max(1, found.num_rows // _BATCHES)))

    @property
    def segments(self) -> list[Segment]:
        spans = dict(zip(self.manifest.paths, self.spans, strict=True))
        names = {number: name for name, number, _ in self.manifest.columns}
        return [
            Segment(
                id=found["id"],
                index=found["index"],
                kind=found["kind"],
                columns=(names[found["column"]],),
                covered=tuple(sorted(spans[path] for path in found["covered"] if path in spans)),
                nbytes=self._known[found["file"]].size,
            )
            for found in map(json.loads, self.manifest.segments)
        ]

    def sample(self, columns: Sequence[str]) -> pa.Table:
        return self.take(staging.spread(self.rows), columns)

    def take(self, positions: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        wanted = np.asarray(positions, dtype=np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self.rows:
            raise RequestError(f"positions {wanted.min()}..{wanted.max()} of {self.rows} rows")
        names = self.schema.names if columns is None else list(columns)
        taken = self._with_positions.take(pa.array(wanted, pa.int64()))
        return _select(taken, names)

    def part(self, index: int) -> pa.Table:
        """Return the rows of one data file, with their positions."""
        start = sum(self.manifest.rows[:index])
        return self._with_positions.slice(start, self.manifest.rows[index])

    @cached_property
    def _with_positions(self) -> pa.Table:
        batches = [
            staging.arranged(batch, self.schema)  # a column added after the rows were staged
            for path in self.manifest.paths
            for batch in self._read(path).to_batches()
        ]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        field = pa.field(POSITION, pa.int64(), nullable=False)
        return table.append_column(field, pa.array(np.arange(self.rows)))

    def _within(self, low: int, high: int) -> Iterator[pa.Table]:
        for index, path in enumerate(self.manifest.paths):
            if self._known[path].may_hold(low, high):
                yield self.part(index)


class FakeLance:
    """See `tables.Tables`; same answers as `lance_io.LanceTables`, any `Files`."""

    def __init__(
        self, root: Path, files: Files, *, token: Callable[[], str] = lambda: uuid.uuid4().hex
    ) -> None:
        self._root, self._files, self._token = root, files, token
        self._inventories = Inventories(root, files, token)

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        with translated(self._root / folder, is_reading=False):
            for name in ("data", "_versions"):
                self._files.mkdir(self._root / folder / name)
        ids = tuple(range(len(schema)))
        return self._commit(folder, None, _Manifest(schema, ids, len(ids), (), ()), ())

    def stage(
        self,
        folder: str,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> StagedFiles:
        manifest = self._manifest(pin)
        found = staging.peeked(batches)
        if found is None:
            return StagedFiles(0, (), (), ())
        names = staging.narrowed(manifest.schema, found[0].names).names
        columns = tuple(column for column in manifest.columns if column[0] in names)
        return replace(self._write(folder, manifest.schema, found[1], seqs), columns=columns)

    def commit(self, folder: str, pin: Pin, staged: StagedFiles) -> Pin:
        if not staged.rows:
            return pin
        old = self._manifest(pin)
        staging.refuse_unfit(staged.columns, old.columns)
        return self._commit(folder, pin, _extended(old, staged), staged.files)

    def append(
        self,
        folder: str,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> Pin:
        return self.commit(folder, pin, self.stage(folder, pin, batches, seqs=seqs))

    def overwrite(
        self, folder: str, pin: Pin, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Pin:
        staged = self._write(folder, schema, batches, None)
        ids = tuple(range(len(schema)))
        new = _extended(_Manifest(schema, ids, len(ids), (), ()), staged)
        return self._commit(folder, pin, new, staged.files)

    def rewrite(
        self,
        folder: str,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        compact_below: int = 0,
        seqs: tuple[int, int] | None = None,
        is_numbered: bool = False,  # noqa: ARG002  # the seam: always so
    ) -> Pin:
        table, dropped = self.open(folder, pin), np.asarray(drop, dtype=np.int64)
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
        known = self._inventories.live(pin.inventory, old.paths)
        inputs = [known[path] for path, t in zip(old.paths, touched, strict=True) if t]
        span = staging.span(inputs, seqs, has_more=bool(added))
        staged = self._write(folder, old.schema, [*moved, *added], span)
        stay = [index for index, is_touched in enumerate(touched) if not is_touched]
        paths, rows = (tuple(values[i] for i in stay) for values in (old.paths, old.rows))
        new = _extended(replace(old, paths=paths, rows=rows), staged)
        return self._commit(folder, pin, new, staged.files)

    def touched(
        self, folder: str, pin: Pin, drop: np.ndarray, *, compact_below: int, has_more: bool
    ) -> list[tuple[int, int]]:
        spans = self.open(folder, pin).spans
        losing = [bool(((drop >= first) & (drop < end)).any()) for first, end in spans]
        touched = [
            span
            for span, lost in zip(spans, losing, strict=True)
            if lost or span[1] - span[0] < compact_below
        ]
        return touched if any(losing) or has_more or len(touched) > 1 else []

    def replace(
        self, folder: str, pin: Pin, gone: Sequence[tuple[int, int]], staged: StagedFiles
    ) -> Pin:
        table = self.open(folder, pin)
        old, spans = table.manifest, set(gone)
        require(spans <= set(table.spans), f"{sorted(spans)} are not all parts of {pin.path}")
        if not spans and not staged.rows:
            return pin
        staging.refuse_unfit(staged.columns, old.columns)
        stay = [index for index, span in enumerate(table.spans) if span not in spans]
        paths = tuple(old.paths[index] for index in stay)
        rows = tuple(old.rows[index] for index in stay)
        new = _extended(replace(old, paths=paths, rows=rows), staged)
        return self._commit(folder, pin, new, staged.files)

    def compact(self, folder: str, pin: Pin, within: tuple[int, int]) -> Compacted:
        table = self.open(folder, pin)
        old = table.manifest
        chosen = [
            index
            for index, (first, end) in enumerate(table.spans)
            if within[0] <= first and end <= within[1]
        ]
        require(bool(chosen), f"{within} of {pin.path} holds no part")
        known = self._inventories.live(pin.inventory, old.paths)
        span = staging.span([known[old.paths[i]] for i in chosen], None, has_more=False)
        rows = table.part(chosen[0]).slice(0, 0)
        rows = pa.concat_tables([rows, *(table.part(index) for index in chosen)])
        rows = rows.drop_columns(POSITION).combine_chunks()
        staged = self._write(folder, old.schema, rows.to_batches(), span)
        inputs = tuple(json.dumps([old.paths[index], old.rows[index]]) for index in chosen)
        return Compacted(rows.num_rows, inputs, staged.fragments, staged.files)

    def untouched(
        self, folder: str, pin: Pin, planned: Pin, within: Sequence[tuple[int, int]]
    ) -> list[bool]:
        today, old = self._manifest(pin), self.open(folder, planned)
        known = set(zip(today.paths, today.rows, strict=True))
        parts = list(zip(old.manifest.paths, old.manifest.rows, old.spans, strict=True))
        return [
            all((p, n) in known for p, n, (a, b) in parts if first <= a and b <= end)
            for first, end in within
        ]

    def ready(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:  # noqa: ARG002  # the seam
        return pin

    def swap(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        if not compacted:
            return pin
        old = self._manifest(pin)
        parts = [json.dumps(part) for part in zip(old.paths, old.rows, strict=True)]
        for item in compacted:
            if not set(item.inputs) <= set(parts):
                raise InputsMovedError
            at = parts.index(item.inputs[0])
            parts = [part for part in parts if part not in item.inputs]
            parts[at:at] = item.fragments
        pairs = [json.loads(part) for part in parts]
        new = replace(
            old, paths=tuple(path for path, _ in pairs), rows=tuple(rows for _, rows in pairs)
        )
        return self._commit(folder, pin, new, [file for item in compacted for file in item.files])

    def index(self, folder: str, pin: Pin, spec: IndexSpec, within: Sequence[Span]) -> BuiltSegment:
        table = self.open(folder, pin)
        staging.refuse_unknown(table.schema, spec.column)
        old, wanted = table.manifest, set(within)
        chosen = [index for index, span in enumerate(table.spans) if span in wanted]
        require(len(chosen) == len(wanted), f"{sorted(wanted)} are not all parts of {pin.path}")
        rows = pa.concat_tables([table.part(index).select([spec.column]) for index in chosen])
        token = self._token()
        path = f"{folder}/{INDEX_DIRECTORY}/{token}/segment.arrow"
        with translated(self._root / folder, is_reading=False):
            self._files.mkdir((self._root / path).parent)
            self._files.write(self._root / path, _stream(rows.schema, rows.to_batches()))
            files = self._inventories.seal([path], None)
            self._files.sync_dir((self._root / path).parent)
        (column,) = [number for name, number, _ in old.columns if name == spec.column]
        described = {"id": token, "index": spec.name, "kind": spec.kind, "column": column}
        inputs = tuple(json.dumps([old.paths[index], old.rows[index]]) for index in chosen)
        return BuiltSegment(
            spec.name, inputs, json.dumps({**described, "file": path}), tuple(files)
        )

    def put_indexes(
        self, folder: str, pin: Pin, built: Sequence[BuiltSegment], gone: Sequence[str] = ()
    ) -> Pin:
        if not (built or gone):
            return pin
        old = self._manifest(pin)
        segments = [text for text in old.segments if json.loads(text)["id"] not in gone]
        for segment in built:
            inputs = [json.loads(text)[0] for text in segment.inputs]
            covered = [path for path in inputs if path in old.paths]
            if not covered or _is_covered(segments, segment.index, covered):
                raise InputsMovedError
            segments.append(json.dumps({**json.loads(segment.described), "covered": covered}))
        files = [file for segment in built for file in segment.files]
        return self._commit(folder, pin, replace(old, segments=tuple(segments)), files)

    def alter(
        self,
        folder: str,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
    ) -> Pin:
        table = self.open(folder, pin)
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
        new = _Manifest(schema, ids, first + len(add), (), ())
        old_names = [name for _, _, name in kept]
        files: list[InventoryFile] = []
        for index, path in enumerate(table.manifest.paths):
            part = table.part(index).select(old_names).rename_columns([f.name for f, _, _ in kept])
            seqs = self._inventories.live(pin.inventory, [path])[path].seqs
            staged = self._write(folder, schema, part.to_batches(), seqs)
            new, files = _extended(new, staged), [*files, *staged.files]
        return self._commit(folder, pin, new, files)

    def bare(self, folder: str, pin: Pin, drop: Sequence[str]) -> list[tuple[int, int]]:
        """See `tables.Tables.bare`: here all columns are in all files."""
        staging.refuse_alter(self.open(folder, pin).schema, {}, drop, ())
        return []

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """See `tables.Tables.import_version`; the client is `stage_external`."""
        staged = version_import.staged_manifest(self._root, folder, given)
        with translated(self._root / folder, is_reading=False):
            version_import.take(self._files, staged, given.size)
            manifest = _Manifest.decode(self._files.read(staged.target))
            below = "" if pin is None else pin.inventory
            chain = self._inventories.chain(below).values()
            known = {file.path for each in chain for file in each.files}
            added = self._inventories.seal([p for p in manifest.paths if p not in known], None)
            living = () if pin is None else self._manifest(pin).live
            back = tuple(p for p in manifest.paths if p in known and p not in living)
            self._files.sync_file(staged.target)
            private = (staged.target.parent, staged.target.parent.parent)
            for path in (*private, self._root / folder / "data", self._root / folder):
                self._files.sync_dir(path)
            inventory = self._inventories.add(below, added, manifest.paths)
            file = describe(self._files, self._root, staged.pin_path(self._root))
        rows = sum(manifest.rows)
        made = Pin(given.version, file.path, file.size, file.xxh3, rows, inventory)
        paths = (file.path, *(each.path for each in added))
        return ImportedVersion(made, manifest.schema, "Append", given.version - 1, paths, back)

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.Tables.write_directory`; no reader of a fake knows it."""

    def write_root_tables(self, tables: Sequence[RootTable]) -> None:
        """See `tables.Tables.write_root_tables`; no reader of a fake knows it."""

    def overlaid(
        self,
        folder: str,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        version: int,
    ) -> Ephemeral:
        """See `tables.Tables.overlaid`; here its rows are written anew."""
        made = self.rewrite(folder, pin, drop=drop, batches=batches)
        file = InventoryFile(made.path, made.size, made.xxh3)
        own = () if made is pin else (file,)
        return Ephemeral(version, made.path, made.size, made.xxh3, made.rows, own)

    def stage_external(
        self, folder: str, pin: Pin | None, batch: pa.RecordBatch, name: str
    ) -> StagedVersion:
        """Stage an append as another client would: nothing is synced."""
        ids = tuple(range(len(batch.schema)))
        none = _Manifest(batch.schema, ids, len(ids), (), ())
        old = none if pin is None else self._manifest(pin)
        version = 1 if pin is None else pin.version + 1
        where = self._root / folder
        path = f"{folder}/data/{name}.arrow"
        manifest = where / "_versions" / f"{promotion.public_name(version)}-{name}"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        staged = StagedFiles(batch.num_rows, (json.dumps([path, batch.num_rows]),), (), ())
        data = _extended(old, staged).encode()
        with translated(where, is_reading=False):
            for directory in ("data", "_versions"):
                self._files.mkdir(where / directory)
            self._write_unsynced(self._root / path, sink.getvalue().to_pybytes())
            self._write_unsynced(manifest, data)
        return StagedVersion(version, str(manifest), len(data))

    def _write_unsynced(self, path: Path, data: bytes) -> None:
        file = self._files.open(path, new=True)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()

    def show(self, folder: str, pins: Sequence[Pin], *, is_whole: bool = False) -> None:  # noqa: ARG002
        where = self._root / folder
        wanted = {pin.version: self._root / pin.path for pin in pins}
        with translated(where, is_reading=False):
            promotion.link(self._files, where, wanted, max(wanted))

    def open(self, folder: str, pin: Pin) -> FakePinned:  # noqa: ARG002  # the seam
        manifest = self._manifest(pin)
        known = self._inventories.live(pin.inventory, manifest.live)

        def read(path: str) -> pa.Table:
            self._inventories.verify([known[path]])
            return pa.ipc.open_stream(self._bytes(path)).read_all()

        return FakePinned(pin, manifest, read, known)

    def unite(self, folder: str) -> None:
        """See `tables.Tables.unite`: files have one name, nobody else opens these datasets."""

    def unite_all(self) -> None:
        """See `tables.Tables.unite_all`."""

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:  # noqa: ARG002
        """See `tables.Tables.lacking`."""
        return [], []

    def promote(self, folder: str, pins: Sequence[Pin], newest: Pin) -> None:
        where = self._root / folder
        wanted = {pin.version: self._root / pin.path for pin in (*pins, newest)}
        with translated(where, is_reading=False):
            promotion.link(self._files, where, wanted, newest.version)
            promotion.unlink_stale(self._files, where, set(wanted), newest.version)
            promotion.clear(self._files, where)

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        where = self._root / folder
        with translated(where, is_reading=False):
            found = promotion.clear(self._files, where, above)
        return [(version, str(path.relative_to(self._root))) for version, path in found]

    def files(self, folder: str, pin: Pin) -> list[InventoryFile]:  # noqa: ARG002  # the seam
        live = self._inventories.live(pin.inventory, self._manifest(pin).live)
        manifest = InventoryFile(pin.path, pin.size, pin.xxh3)
        return [*live.values(), manifest, *self._inventories.own_files(pin.inventory)]

    def external_versions(self, folder: str) -> list[ExternalVersion]:
        """Take each for one that appended the last of its data files."""
        found: list[ExternalVersion] = []
        for version, path in external_versions.manifests(self._files, self._root, folder):
            try:
                manifest = _Manifest.decode(self._bytes(path))
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

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        for path in external.files:
            yield from pa.ipc.open_stream(self._bytes(path)).read_all().to_batches()

    def check(self, folder: str, pin: Pin) -> None:
        for file in self.files(folder, pin):
            check(self._files, self._root, file)

    def _manifest(self, pin: Pin) -> _Manifest:
        check(self._files, self._root, InventoryFile(pin.path, pin.size, pin.xxh3))
        return _Manifest.decode(self._bytes(pin.path))

    def _bytes(self, path: str) -> bytes:
        try:
            return self._files.read(self._root / path)
        except OSError as error:  # as `lance_errors` does for what Lance reads itself
            raise UnavailableError(f"{path} cannot be read: {error}") from error

    def _write(
        self,
        folder: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        rows = [staging.arranged(batch, schema) for batch in batches if batch.num_rows]
        if not rows:
            return StagedFiles(0, (), (), ())
        path = f"{folder}/data/{self._token()}.arrow"
        with translated(self._root / folder, is_reading=False):
            self._files.write(self._root / path, _stream(schema, rows))
            files = self._inventories.seal([path], seqs)
            self._files.sync_dir(self._root / folder / "data")
        count = sum(batch.num_rows for batch in rows)
        return StagedFiles(count, (json.dumps([path, count]),), tuple(files), ())

    def _commit(
        self, folder: str, pin: Pin | None, manifest: _Manifest, added: Iterable[InventoryFile]
    ) -> Pin:
        version = 1 if pin is None else pin.version + 1
        path = f"{folder}/{PRIVATE_DIRECTORY}/{self._token()}/{promotion.public_name(version)}"
        with translated(self._root / folder, is_reading=False):
            self._files.mkdir((self._root / path).parent)
            self._files.write(self._root / path, manifest.encode())
            self._files.sync_dir((self._root / path).parent)
            below = "" if pin is None else pin.inventory
            inventory = self._inventories.add(below, added, manifest.live)
            file = describe(self._files, self._root, path)
        return Pin(version, path, file.size, file.xxh3, sum(manifest.rows), inventory)


def _is_covered(segments: Iterable[str], index: str, paths: Iterable[str]) -> bool:
    mine = (found for found in map(json.loads, segments) if found["index"] == index)
    return any(set(found["covered"]) & set(paths) for found in mine)


def _stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _extended(manifest: _Manifest, staged: StagedFiles) -> _Manifest:
    parts = [json.loads(text) for text in staged.fragments]
    return replace(
        manifest,
        paths=(*manifest.paths, *(path for path, _ in parts)),
        rows=(*manifest.rows, *(rows for _, rows in parts)),
    )


def _select(table: pa.Table, names: Sequence[str]) -> pa.Table:
    unknown = sorted(set(names) - set(table.schema.names))
    if unknown:
        raise SchemaMismatchError(f"no column {unknown} in {table.schema.names}")
    return table.select(names)
