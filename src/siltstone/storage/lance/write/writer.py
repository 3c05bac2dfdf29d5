"""Lance writer: datasets made, rows staged and committed, rewritten or folded; columns altered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.failpoints import Failpoint, cross
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.formats.types import blobs
from siltstone.formats.types.casts import cast_column
from siltstone.formats.types.defaults import absent, initial_in, plain_of
from siltstone.storage.files import arrow_file
from siltstone.storage.lance.files import deletions
from siltstone.storage.lance.files.dataset_files import DATA, TRANSACTIONS, DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.lance.files.parts import Part, data_files
from siltstone.storage.lance.files.staged_catalog import (
    lance_module,
    open_newest,
    put,
    put_blank,
    writing,
)
from siltstone.storage.lance.files.strict_schema import strict_schema
from siltstone.storage.lance.read.pinned import LancePinned, parts_with
from siltstone.storage.lance.read.reader import LanceReader
from siltstone.storage.lance.write import adoption
from siltstone.storage.lance.write.commits import LanceCommits, fragments_of
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import (
    NO_FILES,
    NOTHING_RETYPED,
    AdoptedLoad,
    Batches,
    Seqs,
    StagedFiles,
    join,
)
from siltstone.units import require

CROWD_MAX = 8
"""So many parts of middle size with hidden rows are joined."""
_MIDDLE_ROWS = 1 << 19


class LanceWriter:
    """See `tables.TableWriter`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._root, self._files = data, data.root, data.files
        self._reader, self._commits = reader, commits

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        """See `tables.TableWriter.create`. Stable row ids on, Lance's own clean-up off."""
        where = self._root / folder
        with translated(where, is_reading=False):
            for name in ("", DATA, TRANSACTIONS, "_versions"):
                self._files.mkdir(where / name)
            kept.make(self._files, self._root, folder)
        return self._first(folder, plain_of(schema), NO_FILES)

    def _first(self, folder: str, schema: pa.Schema, staged: StagedFiles) -> Pin:
        catalog = self._commits.begin(folder)
        with writing(self._root / folder, catalog):
            if blobs.names_of(schema) and not staged.fragments:
                dataset = put_blank(catalog, schema, blobs.STORAGE_FORMAT)
            else:
                overwrite = lance_module().LanceOperation.Overwrite(schema, fragments_of(staged))
                dataset = put(catalog, str(catalog.location), overwrite, enable_stable_row_ids=True)
        columns = staging.columns_of(dataset.lance_schema, dataset.schema)
        staging.refuse_unfit(staged.columns, columns)
        return self._commits.seal(None, catalog, dataset, staged.files, rows=staged.rows)

    def stage(self, pin: Pin, batches: Batches, *, seqs: Seqs | None = None) -> StagedFiles:
        """See `tables.TableWriter.stage`."""
        table = self._reader.open(pin)
        found = staging.peeked(batches)
        if found is None:
            return NO_FILES
        schema = staging.narrowed(table.schema, found[0].names)
        columns = staging.columns_of(table.dataset.lance_schema, schema)
        return self._commits.staged(table, schema, found[1], columns, seqs)

    def commit(self, pin: Pin, staged: StagedFiles) -> Pin:
        """See `tables.TableWriter.commit`."""
        if not staged.rows:
            return pin
        dataset = self._reader.open(pin).dataset
        staging.refuse_unfit(
            staged.columns, staging.columns_of(dataset.lance_schema, dataset.schema)
        )
        operation = lance_module().LanceOperation.Append(fragments_of(staged))
        return self._commits.commit(pin, [operation], staged.files, rows=pin.rows + staged.rows)

    def commit_first(self, pin: Pin, staged: StagedFiles) -> Pin:
        """See `tables.TableWriter.commit_first`. Equal schemas get equal field ids."""
        if not staged.rows:
            return pin
        require(pin.version == 1, f"{pin.path} is version {pin.version}, not the first")
        return self._first(pin.folder, self._reader.open(pin).dataset.schema, staged)

    def write_arrow(self, folder: str, schema: pa.Schema, batches: Batches) -> Pin:
        """See `tables.TableWriter.write_arrow`."""
        return arrow_file.write(self._files, self._root, folder, schema, batches)

    def append(self, pin: Pin, batches: Batches, *, seqs: Seqs | None = None) -> Pin:
        """See `tables.TableWriter.append`."""
        return self.commit(pin, self.stage(pin, batches, seqs=seqs))

    def overwrite(self, pin: Pin, schema: pa.Schema, batches: Batches) -> Pin:
        """See `tables.TableWriter.overwrite`. Field ids restart: older staged files do not fit.

        So do the numbers of parts: no key run of the pin may be asked for the new ones.
        """
        pin = msgspec.structs.replace(pin, runs=())
        table, schema = self._reader.open(pin), plain_of(schema)
        found = staging.peeked(batches)
        if found is not None:
            staging.narrowed(schema, found[0].names)
        rows = () if found is None else found[1]
        staged = self._commits.staged(table, schema, rows, mode="overwrite")
        operation = lance_module().LanceOperation.Overwrite(schema, fragments_of(staged))
        return self._commits.commit(pin, [operation], staged.files, rows=staged.rows)

    def renumbered(self, pin: Pin, version: int) -> Pin:
        """See `tables.TableWriter.renumbered`. Nothing but its manifests is written."""
        return self._commits.renumbered(pin, version, self._reader.files(pin))

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
        """See `tables.TableWriter.alter`. Of columns without values Lance alters the manifest."""
        schema = self._reader.open(pin).dataset.schema
        staging.refuse_alter(schema, rename, drop, add, relax, retype)
        if retype:
            pin = self._retyped(pin, retype)
        valued = [field for field in add if pin.rows and initial_in(field) is not None]
        add = [field for field in plain_of(add) if field.name not in {v.name for v in valued}]
        if rename or drop or add or relax:
            pin = self._altered(pin, rename, drop, add, relax)
        if valued:
            pin = self._filled(pin, valued)
        return self._forbidden(pin, forbid) if forbid else pin

    def _forbidden(self, pin: Pin, forbid: Sequence[str]) -> Pin:
        """Let columns, which have no null, take none."""

        def project(dataset: Any) -> Any:
            schema = strict_schema(dataset.lance_schema, forbid)
            return lance_module().LanceOperation.Project(schema)

        return self._commits.commit(pin, [project], (), rows=pin.rows)

    def _altered(
        self,
        pin: Pin,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
        relax: Sequence[str],
    ) -> Pin:
        catalog = self._commits.begin(pin.folder, pin)
        with writing(self._root / pin.folder, catalog):
            if relax:
                open_newest(catalog).alter_columns(*({"path": n, "nullable": True} for n in relax))
            if rename:
                open_newest(catalog).alter_columns(
                    *({"path": o, "name": n} for o, n in rename.items())
                )
            if drop:
                open_newest(catalog).drop_columns(list(drop))
            if add:
                open_newest(catalog).add_columns(list(add))
            dataset = open_newest(catalog)
        return self._commits.seal(pin, catalog, dataset, (), rows=pin.rows, hides=pin.hidden > 0)

    def _retyped(self, pin: Pin, retype: Mapping[str, pa.DataType]) -> Pin:
        """Write columns anew, in their new types; the old ones go."""
        aside = {f"_{name}": name for name in retype}
        if pin.rows:
            pin = self._filled(pin, [pa.field(n, retype[old]) for n, old in aside.items()], aside)
        else:
            add = [pa.field(new, retype[old]) for new, old in aside.items()]
            pin = self._altered(pin, {}, (), add, ())
        pin = self._altered(pin, {}, [*retype], (), ())
        return self._altered(pin, aside, (), (), ())

    def _filled(
        self, pin: Pin, add: Sequence[pa.Field], others: Mapping[str, str] | None = None
    ) -> Pin:
        """Add columns with their initial values: each part gets one more data file.

        Or with the values of other columns, by their names, in another type.
        """
        table, added, of = self._reader.open(pin), list[InventoryFile](), others or {}
        written: dict[int, Any] = {}
        schema: Any = None
        fields, read = plain_of(add), [*of.values()] or [_narrowest(table.schema)]

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            rows = batch.num_rows
            arrays = [
                cast_column(batch.column(of[field.name]), field.type)
                if field.name in of
                else absent(field, rows)
                for field in add
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=fields)

        for part in table.parts:
            with translated(self._root / pin.folder, is_reading=False):
                fragment = table.fragment_of(part, is_checked=bool(of))
                made, schema = fragment.merge_columns(values, columns=read)
                paths = [f"{pin.folder}/{DATA}/{name}" for name in data_files(made)]
                old = [table.files[path] for path in paths if path in part.paths]
                seqs = staging.span(old, None, has_more=False)
                new = [path for path in paths if path not in part.paths]
                added += self._data.seal(pin.folder, DATA, new, seqs)
            written[part.number] = made.to_json()["files"]
        cross(Failpoint.ALTER_AFTER_VALUES)

        def merge(dataset: Any) -> Any:
            lance = lance_module()
            parts = [fragment.metadata.to_json() for fragment in dataset.get_fragments()]
            whole = [json.dumps({**part, "files": written[part["id"]]}) for part in parts]
            described = map(lance.FragmentMetadata.from_json, whole)
            return lance.LanceOperation.Merge(list(described), schema)

        return self._commits.commit(pin, [merge], added, rows=pin.rows)


def _narrowest(schema: pa.Schema) -> str:
    """Return the name of a column that is quick to read."""
    widths = {field.name: _width(field.type) for field in schema if not blobs.is_blob(field)}
    return min(widths, key=widths.__getitem__, default=schema.names[0])


def _width(kind: Any) -> int:
    has_width = pa.types.is_primitive(kind) or pa.types.is_boolean(kind)
    return kind.bit_width if has_width else 1 << 20


class LanceRewriter:
    """See `tables.TableRewriter`; threads may share it."""

    def __init__(self, data: DatasetFiles, reader: LanceReader, commits: LanceCommits) -> None:
        self._data, self._reader, self._commits = data, reader, commits

    def fold(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Batches,
        compact_below: int,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        """See `tables.TableRewriter.fold`. Inputs are verified, but for loads: no row is read."""
        table = self._reader.fresh(pin)
        dropped, found = _dropped_of(table, drop), staging.peeked(batches)
        has_more = found is not None or bool(loads)
        gone = _outworn(table, dropped, compact_below, has_more=has_more)
        rows = chain(table.surviving(gone, dropped), () if found is None else found[1])
        staged = self._commits.staged(table, table.schema, rows)
        return self._folded(table, [table.parts[index] for index in gone], staged, dropped, loads)

    def adopts(self, pin: Pin, load: Pin, columns: Sequence[tuple[str, str]]) -> bool:
        """See `tables.TableRewriter.adopts`."""
        return adoption.fits(self._reader.open(pin), self._reader.open(load), columns)

    def outworn(
        self, pin: Pin, drop: np.ndarray, *, compact_below: int, has_more: bool
    ) -> list[tuple[int, int]]:
        """See `tables.TableRewriter.outworn`."""
        table = self._reader.fresh(pin)
        found = _outworn(table, _dropped_of(table, drop), compact_below, has_more=has_more)
        return [table.spans[index] for index in found]

    def fold_staged(
        self,
        pin: Pin,
        gone: Sequence[tuple[int, int]],
        staged: StagedFiles,
        drop: np.ndarray,
        loads: Sequence[AdoptedLoad] = (),
    ) -> Pin:
        """See `tables.TableRewriter.fold_staged`."""
        table = self._reader.fresh(pin)
        known = staging.columns_of(table.dataset.lance_schema, table.schema)
        staging.refuse_unfit(staged.columns, known)
        dropped = _dropped_of(table, drop)
        return self._folded(table, parts_with(table, gone), staged, dropped, loads)

    def _folded(
        self,
        table: LancePinned,
        gone: Sequence[Part],
        staged: StagedFiles,
        dropped: np.ndarray,
        loads: Sequence[AdoptedLoad],
    ) -> Pin:
        """Hide `dropped` in the parts that stay, take the others out, and append."""
        pin, numbers = table.pin, [part.number for part in gone]
        rest = [part for part in table.parts if part not in gone]
        bounds = [np.searchsorted(dropped, part.span) for part in rest]
        hidden = [dropped[a:b] - p.start for p, (a, b) in zip(rest, bounds, strict=True)]
        changed: list[Any] = []
        new: dict[str, bytes] = {}
        for part, offsets in zip(rest, hidden, strict=True):
            if len(offsets) > table.hidden.count(part.number):
                metadata = table.fragment_of(part).metadata
                hiding, name = deletions.with_deletions(metadata, pin.version, offsets)
                new[f"{pin.folder}/{name}"] = deletions.encode(offsets)
                changed.append(hiding)
        if not (changed or numbers or staged.rows or loads):
            return pin
        with translated(self._data.root / pin.folder, is_reading=False):
            written = self._data.write(pin.folder, deletions.DELETIONS, new)
        cross(Failpoint.MERGE_AFTER_DELETIONS)
        lance = lance_module().LanceOperation
        operations: list[Any] = []
        if changed or numbers:
            operations.append(lance.Delete(changed, numbers, "folded"))
        taken, offsets = self._adopted(table, loads)
        appended = join([staged, *taken])
        if appended.rows:
            operations.append(lance.Append(fragments_of(appended)))
        added = [*written, *appended.files]
        if offsets:  # their parts have numbers once they are appended
            operations.append(partial(self._hidden_in, pin, offsets, added))
        left = sum(part.rows for part in rest) - sum(map(len, hidden))
        rows = left + appended.rows - sum(map(len, offsets.values()))
        return self._commits.commit(pin, operations, added, rows=rows, hides=True)

    def _adopted(
        self, table: LancePinned, loads: Sequence[AdoptedLoad]
    ) -> tuple[list[StagedFiles], dict[str, np.ndarray]]:
        """Return the files of loads as base's own, and the offsets of rows to hide in them."""
        taken: list[StagedFiles] = []
        offsets: dict[str, np.ndarray] = {}
        for load in loads:
            opened = self._reader.open(load.pin)
            found = adoption.adopted(self._data, table, opened, load.columns)
            offsets.update(adoption.offsets_gone(opened, found, load.gone))
            taken.append(found)
        return taken, offsets

    def _hidden_in(
        self, pin: Pin, offsets: adoption.Offsets, added: list[InventoryFile], dataset: Any
    ) -> Any:
        """Return what hides rows of adopted parts; its files are among those `added` then."""
        changed, new = adoption.hiding(dataset, pin.version, offsets)
        files = {f"{pin.folder}/{name}": data for name, data in new.items()}
        added += self._data.write(pin.folder, deletions.DELETIONS, files)
        return lance_module().LanceOperation.Delete(changed, [], "folded")

    def rewrite(
        self,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Batches,
        seqs: Seqs | None = None,
        is_numbered: bool = False,
    ) -> Pin:
        """See `tables.TableRewriter.rewrite`. Inputs are verified; no deletion file is written.

        The inputs are those of `pin` itself, in the same call: a hand-made Rewrite of fragments
        that were planned on another pin would bring deleted rows back.
        """
        table = self._reader.fresh(pin)
        dropped, found = _within(table, drop), staging.peeked(batches)
        touched = [i for i, part in enumerate(table.parts) if _counts(dropped, part)]
        if found is None and not touched:
            return pin
        parts = [table.parts[index] for index in touched]
        inputs = [table.files[path] for part in parts for path in part.paths]
        span = staging.span(inputs, seqs, has_more=found is not None)
        added = () if found is None else found[1]
        rows = chain(table.surviving(touched, dropped), added)
        staged = self._commits.staged(table, table.schema, rows, seqs=span)
        return self._replaced(table, parts, staged, is_numbered=is_numbered)

    def _replaced(
        self,
        table: LancePinned,
        parts: Sequence[Part],
        staged: StagedFiles,
        *,
        is_numbered: bool,
    ) -> Pin:
        # Not one Update: to derive row versions for 10 M rows takes it 2 s, these two 4 ms. The
        # version between them has no name: one transaction, one pin. But where other clients commit
        # on top they must find out which parts went, or a delete of theirs there is lost.
        lance, gone = lance_module().LanceOperation, [part.number for part in parts]
        if is_numbered and gone and staged.rows:
            operations = [lance.Update(gone, [], fragments_of(staged))]
        else:
            operations = [lance.Delete([], gone, "rewritten")] if gone else []
            operations += [lance.Append(fragments_of(staged))] if staged.rows else []
        left = table.rows - sum(part.rows for part in parts)
        return self._commits.commit(table.pin, operations, staged.files, rows=left + staged.rows)


def _counts(dropped: np.ndarray, part: Part) -> int:
    """Return how many rows of a part are dropped."""
    low, high = dropped.searchsorted(part.span)
    return int(high - low)


def _ascending(positions: np.ndarray) -> np.ndarray:
    """Return each position once, in order.

    `np.unique` hashes whole numbers (NumPy 2.4), and takes twenty times as long as a sort.
    """
    ordered = np.sort(positions)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _within(table: LancePinned, drop: np.ndarray) -> np.ndarray:
    """Return positions of rows, once and in order."""
    dropped = _ascending(np.asarray(drop, dtype=np.int64))
    require(
        not len(dropped) or 0 <= dropped[0] <= dropped[-1] < table.rows,
        f"positions to drop are outside the {table.rows} rows of {table.pin.path}",
    )
    return dropped


def _dropped_of(table: LancePinned, drop: np.ndarray) -> np.ndarray:
    """Return the positions of all rows that are hidden after a fold, once and in order."""
    dropped = _within(table, drop)
    require(
        len(dropped) >= table.pin.hidden and bool(_are_in(table, dropped)),
        f"a fold of {table.pin.path} would show hidden rows again",
    )
    return dropped


def _are_in(table: LancePinned, dropped: np.ndarray) -> bool:
    """Say whether all rows that are hidden already are among `dropped`."""
    return not table.pin.hidden or int((~table.live.has(dropped)).sum()) == table.pin.hidden


def _outworn(
    table: LancePinned, dropped: np.ndarray, compact_below: int, *, has_more: bool
) -> list[int]:
    """Return the indexes of the parts that a fold rewrites.

    Those of which too many rows are hidden; small ones, since to join them costs little; and those
    of middle size once there is a crowd of them. A part without hidden rows, unless it is small, is
    left to an optimize, which keeps its row ids.
    """
    lost = [_counts(dropped, part) for part in table.parts]
    losing = {i for i, part in enumerate(table.parts) if lost[i] > table.hidden.count(part.number)}
    worn = {i for i, p in enumerate(table.parts) if lost[i] > deletions.share_of(p.number) * p.rows}
    small = {i for i, part in enumerate(table.parts) if part.rows - lost[i] < compact_below}
    some = {i for i, p in enumerate(table.parts) if lost[i] and p.rows - lost[i] < _MIDDLE_ROWS}
    crowd = some if len(some - small) >= CROWD_MAX else set[int]()
    found = worn | small | crowd
    return sorted(found) if worn or crowd or found & losing or has_more or len(found) > 1 else []
