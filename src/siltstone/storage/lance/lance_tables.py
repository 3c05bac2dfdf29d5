"""Lance I/O: datasets on pylance, every version private until it is promoted.

    <folder>/data/*.lance                          data files; no name is ever used twice
    <folder>/_transactions/<n>-<uuid>.txn          Lance's account of a commit
    <folder>/_siltstone/<transaction>/<n>.manifest what a pin names
    <folder>/_siltstone/_kept/                     our own names of the files above it (`kept`)
    <folder>/_versions/                            links to the promoted ones, nothing else

    write files ─▶ sync them, their directories ─▶ Lance commit ─▶ sync manifest, txn file,
    directories ─▶ inventory (synced) ─▶ pin

Lance syncs nothing itself (0 calls under strace), so the order above is ours. A crash anywhere
leaves files that no pin names. Lance's "latest version" is never asked for: an all-zero newest
manifest opens as an empty table. Lance is imported at the first use, by this module alone.
LANCE_IO_THREADS must not be set (1 hangs). `_lock` guards the table of open handles; it is never
held over I/O. The file is long because Lance stops in it.
"""

from __future__ import annotations

import importlib
import itertools
import json
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from siltstone.errors import CorruptionError, RequestError, SiltstoneError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin
from siltstone.storage.files.syncs import Syncing, Syncs
from siltstone.storage.lance import compaction, overlay, root_tables
from siltstone.storage.lance import directory as lance_directory
from siltstone.storage.lance import indexes as lance_indexes
from siltstone.storage.lance import manifest as lance_manifest
from siltstone.storage.lance.errors import translated
from siltstone.storage.lance.external import external_change, external_versions, version_import
from siltstone.storage.lance.pinned import LancePinned, Part
from siltstone.storage.lance.staged_catalog import TABLE_ID, StagedCatalog
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import promotion, staging
from siltstone.storage.tables.inventories import Inventories, describe
from siltstone.storage.tables.inventories import check as check_file
from siltstone.storage.tables.tables import (
    INDEX_DIRECTORY,
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
    Span,
    StagedFiles,
    StagedVersion,
)
from siltstone.units import require

if TYPE_CHECKING:
    from siltstone.storage.files.files import Files

_OPEN_MAX = 64
# An open version takes about 3 kB a fragment (measured), and every checkpoint opens a version of
# history with one fragment more: 64 of them by count alone held more the longer a store was open.
OPEN_PARTS_MAX = 2048
# Lance's own bounds, for each handle, are 1 GiB and 6 GiB. Handles share no session: two staged
# versions may have one path and one number, and its cache must not take one for the other.
_LANCE_CACHES = {"metadata_cache_size_bytes": 16 << 20, "index_cache_size_bytes": 1 << 20}
_SHOWN_MAX = 100_000
_NAMED_MAX = 1_000_000
_UNITED_MAX = 10_000
_HINT_STEPS_MAX = 32
_DATA, _TRANSACTIONS = "data", "_transactions"


def _token() -> str:
    return uuid.uuid4().hex


class LanceTables:
    """See `tables.Tables`. One per open store; threads may share it.

    Args:
        verify: "first_use": a data file is checked before this process first reads it;
            "scrub": only by `check`.
        token: Gives names that were never used before.
        open_parts_max: How many parts the versions that are kept open may have together.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        *,
        verify: str = "first_use",
        token: Callable[[], str] = _token,
        open_parts_max: int = OPEN_PARTS_MAX,
    ) -> None:
        if verify not in ("first_use", "scrub"):
            raise RequestError(f'verify is {verify!r}; choose "first_use" or "scrub"')
        self._root, self._files, self._token = root.absolute(), files, token
        self._verifies = verify == "first_use"
        self._parts_max = open_parts_max
        self._inventories = Inventories(self._root, files, token)
        self._syncs = Syncs(self._root, files)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LancePinned] = OrderedDict()
        self._shown: set[str] = set()
        self._shown_upto: dict[str, str] = {}
        self._hinted: dict[Path, tuple[int, int]] = {}
        self._named: set[str] = set()
        self._united: dict[str, tuple[float, ...]] = {}

    def create(self, folder: str, schema: pa.Schema) -> Pin:
        """See `tables.Tables.create`. Stable row ids on, Lance's own clean-up off."""
        where = self._root / folder
        with translated(where, is_reading=False):
            for name in ("", _DATA, _TRANSACTIONS, "_versions"):
                self._files.mkdir(where / name)
            kept.make(self._files, self._root, folder)
        catalog = self._staging(folder, {})
        with _writing(where, catalog):
            lance = _lance()
            dataset = lance.LanceDataset.commit(
                str(catalog.location),
                lance.LanceOperation.Overwrite(schema, []),
                max_retries=0,
                enable_stable_row_ids=True,
                namespace_client=catalog,
                table_id=TABLE_ID,
                namespace_client_managed_versioning=True,
            )
        return self._seal(folder, "", catalog, dataset, (), rows=0)

    def stage(
        self,
        folder: str,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> StagedFiles:
        """See `tables.Tables.stage`."""
        dataset = self._handle(folder, pin)
        found = staging.peeked(batches)
        if found is None:
            return StagedFiles(0, (), (), ())
        schema = staging.narrowed(dataset.schema, found[0].names)
        fragments = self._write(folder, dataset, schema, found[1])
        staging.check_field_ids(fragments, dataset.lance_schema, schema.names)
        columns = staging.columns_of(dataset.lance_schema, schema)
        return self._staged(folder, fragments, columns, seqs)

    def commit(self, folder: str, pin: Pin, staged: StagedFiles) -> Pin:
        """See `tables.Tables.commit`."""
        if not staged.rows:
            return pin
        dataset = self._handle(folder, pin)
        staging.refuse_unfit(
            staged.columns, staging.columns_of(dataset.lance_schema, dataset.schema)
        )
        operation = _lance().LanceOperation.Append(_fragments(staged))
        return self._commit(folder, pin, [operation], staged.files, rows=pin.rows + staged.rows)

    def append(
        self,
        folder: str,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> Pin:
        """See `tables.Tables.append`."""
        return self.commit(folder, pin, self.stage(folder, pin, batches, seqs=seqs))

    def overwrite(
        self, folder: str, pin: Pin, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Pin:
        """See `tables.Tables.overwrite`. Field ids start anew: nothing staged before fits then."""
        dataset = self._handle(folder, pin)
        found = staging.peeked(batches)
        staged = StagedFiles(0, (), (), ())
        if found is not None:
            staging.narrowed(schema, found[0].names)
            fragments = self._write(folder, dataset, schema, found[1], mode="overwrite")
            fresh = importlib.import_module("lance.schema").LanceSchema.from_pyarrow(schema)
            staging.check_field_ids(fragments, fresh, schema.names)
            staged = self._staged(folder, fragments, (), None)
        operation = _lance().LanceOperation.Overwrite(schema, _fragments(staged))
        return self._commit(folder, pin, [operation], staged.files, rows=staged.rows)

    def rewrite(
        self,
        folder: str,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        compact_below: int = 0,
        seqs: tuple[int, int] | None = None,
        is_numbered: bool = False,
    ) -> Pin:
        """See `tables.Tables.rewrite`. Inputs are verified; no deletion file is written.

        The inputs are those of `pin` itself, in the same call: a hand-made Rewrite of fragments
        that were planned on another pin would bring deleted rows back.
        """
        table = self._table(folder, pin)
        dropped = _ascending(np.asarray(drop, dtype=np.int64))
        require(
            not len(dropped) or 0 <= dropped[0] <= dropped[-1] < pin.rows,
            f"positions to drop lie outside the {pin.rows} rows of {pin.path}",
        )
        found = staging.peeked(batches)
        touched = table.touched(dropped, compact_below, has_more=found is not None)
        if found is None and not touched:
            return pin
        added = found[1] if found is not None else iter(())
        staged = self._rewritten(folder, table, touched, dropped, added, seqs)
        parts = [table.parts[index] for index in touched]
        return self._replaced(folder, table, parts, staged, is_numbered=is_numbered)

    def touched(
        self, folder: str, pin: Pin, drop: np.ndarray, *, compact_below: int, has_more: bool
    ) -> list[tuple[int, int]]:
        """See `tables.Tables.touched`."""
        table = self._table(folder, pin)
        return [table.spans[i] for i in table.touched(drop, compact_below, has_more=has_more)]

    def replace(
        self, folder: str, pin: Pin, gone: Sequence[tuple[int, int]], staged: StagedFiles
    ) -> Pin:
        """See `tables.Tables.replace`."""
        table = self._table(folder, pin)
        spans = set(gone)
        parts = [part for part in table.parts if (part.start, part.start + part.rows) in spans]
        require(len(parts) == len(spans), f"{sorted(spans)} are not all parts of {pin.path}")
        if not parts and not staged.rows:
            return pin
        known = staging.columns_of(table.dataset.lance_schema, table.schema)
        staging.refuse_unfit(staged.columns, known)
        return self._replaced(folder, table, parts, staged)

    def _replaced(
        self,
        folder: str,
        table: LancePinned,
        parts: Sequence[Part],
        staged: StagedFiles,
        *,
        is_numbered: bool = False,
    ) -> Pin:
        # Not one Update: to derive row versions for 10 M rows takes it 2 s, these two 4 ms. The
        # version between them is nobody's: one transaction, one pin. But where other clients commit
        # on top they must find out which parts went, or a delete of theirs there is lost.
        operations: list[Any] = []
        gone = [part.number for part in parts]
        if is_numbered and gone and staged.rows:
            update = _lance().LanceOperation.Update(gone, [], _fragments(staged))
            operations.append(update)
        elif gone:
            operations.append(_lance().LanceOperation.Delete([], gone, "rewritten"))
        if staged.rows and not (is_numbered and gone):
            operations.append(_lance().LanceOperation.Append(_fragments(staged)))
        left = table.rows - sum(part.rows for part in parts)
        return self._commit(folder, table.pin, operations, staged.files, rows=left + staged.rows)

    def compact(self, folder: str, pin: Pin, within: tuple[int, int]) -> Compacted:
        """See `tables.Tables.compact`. Inputs are verified."""
        table = self._table(folder, pin)
        parts = table.parts_within(within)
        require(bool(parts), f"{within} of {pin.path} holds no part")
        inputs = [table.inventory()[path] for part in parts for path in part.paths]
        fragments = [table.fragment_of(part) for part in parts]
        with translated(self._root / folder, is_reading=False):
            old, new = compaction.compact(table.dataset, fragments)
            names = [f"{folder}/{_DATA}/{file['path']}" for f in new for file in f["files"]]
            self._name(names)
            files = self._inventories.seal(names, staging.span(inputs, None, has_more=False))
            self._sync_names(folder, _DATA)
        rows = sum(fragment["physical_rows"] for fragment in new)
        require(rows == within[1] - within[0], f"{rows} rows came of {within} of {pin.path}")
        return Compacted(
            rows,
            tuple(compaction.canonical(fragment) for fragment in old),
            tuple(json.dumps(fragment) for fragment in new),
            tuple(files),
        )

    def untouched(self, folder: str, pin: Pin, planned: Pin, within: Sequence[Span]) -> list[bool]:
        """See `tables.Tables.untouched`."""
        if pin.path == planned.path:
            return [True] * len(within)
        today = compaction.described(self._handle(folder, pin))
        table = self.open(folder, planned)
        before = compaction.described(table.dataset)
        return [
            all(before[part.number] == today.get(part.number) for part in table.parts_within(span))
            for span in within
        ]

    def ready(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        """See `tables.Tables.ready`."""
        dataset = self._handle(folder, pin)
        split = lance_indexes.split(dataset, map(compaction.numbers, compacted))
        if not split:
            return pin
        return self._commit(
            folder, pin, [lance_indexes.change(dataset, (), split)], (), rows=pin.rows
        )

    def swap(self, folder: str, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        """See `tables.Tables.swap`."""
        if not compacted:
            return pin
        dataset = self._handle(folder, pin)
        operations = [compaction.rewrite(dataset, compacted)]
        # Lance refuses to compact what an index covers together with what it does not.
        split = lance_indexes.split(dataset, map(compaction.numbers, compacted))
        if split:
            operations.insert(0, lance_indexes.change(dataset, (), split))
        files = [file for item in compacted for file in item.files]
        return self._commit(folder, pin, operations, files, rows=pin.rows)

    def index(self, folder: str, pin: Pin, spec: IndexSpec, within: Sequence[Span]) -> BuiltSegment:
        """See `tables.Tables.index`. Inputs are verified."""
        table, where = self._table(folder, pin), self._root / folder
        staging.refuse_unknown(table.schema, spec.column)
        wanted = set(within)
        parts = [part for part in table.parts if (part.start, part.start + part.rows) in wanted]
        require(len(parts) == len(wanted), f"{sorted(wanted)} are not all parts of {pin.path}")
        fragments = table.fragments_for(parts)
        with translated(where, is_reading=False):
            built = lance_indexes.build(table.dataset, spec, fragments)
            home = f"{folder}/{INDEX_DIRECTORY}/{built.uuid}"
            written = kept.place(self._files, self._root, home)
            left = lance_indexes.staging_of(written)
            if self._files.is_dir(left):
                self._files.rmdir(left)
            self._name(f"{home}/{name}" for name in self._files.list(written))
            names = version_import.index_files(self._files, self._root, home)
            with self._syncs.all() as syncing:
                self._begin(syncing, names, is_known=True)
                files = self._inventories.hashed(names, None)
        inputs = [compaction.canonical(each.metadata.to_json()) for each in fragments]
        return BuiltSegment(spec.name, tuple(inputs), lance_indexes.encode(built), tuple(files))

    def put_indexes(
        self, folder: str, pin: Pin, built: Sequence[BuiltSegment], gone: Sequence[str] = ()
    ) -> Pin:
        """See `tables.Tables.put_indexes`. No data file is written."""
        if not (built or gone):
            return pin
        dataset = self._handle(folder, pin)
        today = {
            compaction.canonical(f.metadata.to_json()): f.fragment_id
            for f in dataset.get_fragments()
        }
        new: list[Any] = []
        for segment in built:
            covered = {today[text] for text in segment.inputs if text in today}
            if not covered or covered & lance_indexes.covered(dataset, segment.index, gone):
                raise InputsMovedError  # two that cover a row would give it twice
            new.append(lance_indexes.covering(lance_indexes.decode(segment.described), covered))
        operation = lance_indexes.change(dataset, new, set(gone))
        files = [file for segment in built for file in segment.files]
        return self._commit(folder, pin, [operation], files, rows=pin.rows)

    def alter(
        self,
        folder: str,
        pin: Pin,
        *,
        rename: Mapping[str, str],
        drop: Sequence[str],
        add: Sequence[pa.Field],
    ) -> Pin:
        """See `tables.Tables.alter`. No data file is written: Lance alters the manifest only."""
        where = self._root / folder
        staging.refuse_alter(self._handle(folder, pin).schema, rename, drop, add)
        if not (rename or drop or add):
            return pin
        catalog = self._staging(folder, {pin.version: self._root / pin.path})
        with _writing(where, catalog):
            dataset = _open_newest_of(catalog)
            if rename:
                dataset.alter_columns(*({"path": o, "name": n} for o, n in rename.items()))
            if drop:
                dataset = _open_newest_of(catalog)
                dataset.drop_columns(list(drop))
            if add:
                dataset = _open_newest_of(catalog)
                dataset.add_columns(list(add))
            dataset = _open_newest_of(catalog)
        return self._seal(folder, pin.inventory, catalog, dataset, (), rows=pin.rows)

    def bare(self, folder: str, pin: Pin, drop: Sequence[str]) -> list[Span]:
        """See `tables.Tables.bare`. Lance: "Fragment 0 does not contain any data"."""
        table = self._table(folder, pin)
        if not drop:
            return []
        schema = table.dataset.lance_schema
        return [
            span
            for part, span in zip(table.parts, table.spans, strict=True)
            if staging.is_bare(table.fragment_of(part).metadata, schema, drop)
        ]

    def import_version(self, folder: str, pin: Pin | None, given: StagedVersion) -> ImportedVersion:
        """See `tables.Tables.import_version`.

        Files that the pin below has are not read again; all others are synced and hashed here.
        """
        where = self._root / folder
        staged = version_import.staged_manifest(self._root, folder, given)
        with translated(where, is_reading=False):
            version_import.take(self._files, staged, given.size)
            cross(Failpoint.TAKE_AFTER_MOVE)
            found = lance_manifest.decode(self._files.read(staged.target))
        lance_manifest.refuse_flags(found)
        if found.version != given.version:
            raise RequestError(f"the manifest holds version {found.version}, not {given.version}")
        read_version = version_import.read_version(found.transaction)
        with translated(where, is_reading=False), suppress(FileNotFoundError):
            self._name([f"{folder}/{_TRANSACTIONS}/{found.transaction}"])
        dataset = self._opened(folder, staged.target, given.version)
        version_import.refuse_blobs(dataset.schema)
        below = None if pin is None else self.open(folder, pin)
        operation = _operation_of(dataset)
        if below is not None:
            version_import.refuse_lost(operation, {part.number for part in below.parts})
            self._refuse_other(folder, below, dataset, operation, found.transaction)
            if promotion.may_be_built_on(self._files, where, staged.target):
                external_change.refuse_unsure(folder, operation)
        name = "" if operation is None else type(operation).__name__
        restored = 0 if operation is None or name != "Restore" else int(operation.version)
        with translated(where, is_reading=False):
            made, added, back = self._taken(
                folder, below, dataset, staged, found.transaction, is_restored=restored > 0
            )
        return ImportedVersion(made, dataset.schema, name, read_version, added, back, restored)

    def _refuse_other(
        self, folder: str, below: LancePinned, dataset: Any, operation: Any, transaction: str
    ) -> None:
        """Refuse a version that Lance built on another one than the one below."""
        before = {part.number: part.paths for part in below.parts}
        after = external_change.of(folder, dataset.get_fragments())
        path, note = f"{folder}/{_TRANSACTIONS}/{transaction}", b""
        txn = kept.place(self._files, self._root, path)  # a clean-up may have taken the public name
        if operation is None and self._files.exists(txn):
            with translated(txn, is_reading=True):
                note = self._files.read(txn)
        external_change.refuse_other_line(folder, operation, note, before, after)
        external_change.refuse_other_schema(operation, below.dataset, dataset)
        if version_import.read_version(transaction) != below.pin.version:
            with translated(txn, is_reading=True):
                external_change.refuse_other_rows(operation, below.dataset, dataset)

    def _taken(
        self,
        folder: str,
        below: LancePinned | None,
        dataset: Any,
        staged: version_import.StagedManifest,
        transaction: str,
        *,
        is_restored: bool,
    ) -> tuple[Pin, tuple[str, ...], tuple[str, ...]]:
        """Make a version of another client durable; return its pin, what it adds, what is back."""
        inventory = "" if below is None else below.pin.inventory
        living = {} if below is None else below.inventory()
        txn = f"{folder}/{_TRANSACTIONS}/{transaction}"
        live = [
            *([txn] if self._files.exists(self._root / txn) else []),
            *version_import.files_of(
                self._files, self._root, folder, dataset.get_fragments(), living
            ),
            *self._index_files(folder, dataset, inventory),
        ]
        strange = [path for path in live if path not in living]
        known = self._known(inventory) if strange else ()
        paths = [path for path in strange if path not in known]
        self._name(strange)
        # A chain that was folded has forgotten the files of a version that is restored.
        back = (path for path in strange if path in known or (is_restored and path != txn))
        with self._syncs.all() as syncing:
            syncing.begin(staged.target, is_known=below is not None)
            self._begin(syncing, paths, is_known=below is not None)
            added = self._inventories.hashed(paths, None)
            name = self._inventories.add(inventory, added, live, durable=False)
            syncing.begin(self._root / name, is_known=True)  # nobody takes its folder away
            manifest = describe(self._files, self._root, staged.pin_path(self._root))
        pin = Pin(
            dataset.version, manifest.path, manifest.size, manifest.xxh3, dataset.count_rows(), name
        )
        self._keep(self._pinned(folder, pin, dataset))  # the next version is put on top of it
        return pin, (manifest.path, *paths), tuple(back)

    def _opened(self, folder: str, manifest: Path, version: int) -> Any:
        """Open what a client wrote; it may be anything.

        Raises:
            RequestError: Lance cannot read it as that version.
        """
        home = kept.home_of(folder) or folder
        catalog = StagedCatalog(self._root / home, self._files, {version: manifest})
        try:
            with translated(manifest, is_reading=True):
                return _open_newest_of(catalog)
        except CorruptionError as error:
            raise RequestError(f"the manifest is none that can be read: {error.reason}") from error

    def _known(self, inventory: str) -> set[str]:
        chain = self._inventories.chain(inventory).values()
        return {file.path for each in chain for file in each.files}

    def _index_files(self, folder: str, dataset: Any, inventory: str) -> list[str]:
        """Return the files of the indexes of a version: what is known of them, else what is there.

        An index never changes: all files of its folder were there when it was committed.
        """
        found: list[str] = []
        folders = version_import.index_folders(folder, dataset)
        known = self._known(inventory) if folders else ()
        for index, nbytes in folders.items():
            mine = [path for path in known if path.startswith(f"{index}/")]
            found += mine or version_import.index_files(self._files, self._root, index, nbytes)
        return found

    def show(self, folder: str, pins: Sequence[Pin], *, is_whole: bool = False) -> None:
        """See `tables.Tables.show`.

        Not synced: who opens the store after a loss of power shows all of them again.
        """
        where = self._root / folder
        fresh = self._not_shown(folder, pins)
        if fresh:
            wanted = {pin.version: self._root / pin.path for pin in fresh}
            with translated(where, is_reading=False):
                promotion.link(self._files, where, wanted, max(wanted), durable=False)
                self._hint(where, sorted(wanted))
        with self._lock:
            if len(self._shown) >= _SHOWN_MAX:
                self._shown, self._shown_upto = set(), {}
            self._shown.update(pin.path for pin in fresh)
            if is_whole and pins:
                self._shown_upto[folder] = pins[-1].path

    def _hint(self, where: Path, versions: Sequence[int]) -> None:
        """Hint at the newest version, unless it is found from the last hint by a few steps.

        To put a file in the place of another one makes ext4 write it out at once: 5 ms.
        """
        hinted, last = self._hinted.get(where, (0, 0))
        newest = versions[-1]
        follows = list(versions) == list(range(last + 1, newest + 1))
        if not follows or not hinted or newest - hinted >= _HINT_STEPS_MAX:
            promotion.hint(self._files, where, newest)
            hinted = newest
        self._hinted[where] = (hinted, newest)

    def _not_shown(self, folder: str, pins: Sequence[Pin]) -> list[Pin]:
        """Return those of `pins` that this process has not shown; looks at the newest ones alone.

        Commits of a table show their own versions as they end, in any order: that one is shown says
        nothing of those below it, unless all of them were looked at.
        """
        upto = self._shown_upto.get(folder)
        unsure = list(itertools.takewhile(lambda pin: pin.path != upto, reversed(pins)))
        return [pin for pin in reversed(unsure) if pin.path not in self._shown]

    def write_directory(self, listed: Sequence[Listed]) -> None:
        """See `tables.Tables.write_directory`.

        A dataset anew, durable before the link that makes it the newest version. What older lists
        were made of goes after an hour: somebody may just be reading them.
        """
        folder, where = lance_directory.FOLDER, self._root / lance_directory.FOLDER
        pin = self.create(folder, lance_directory.SCHEMA)
        pin = self.append(folder, pin, [lance_directory.rows(listed)])
        catalog = self._staging(folder, {pin.version: self._root / pin.path})
        with _writing(where, catalog):
            _open_newest_of(catalog).update_metadata(lance_directory.FENCE)
            dataset = _open_newest_of(catalog)
        pin = self._seal(folder, pin.inventory, catalog, dataset, (), rows=pin.rows)
        needed = {file.path for file in self.files(folder, pin)}
        with translated(where, is_reading=False):
            public = where / "_versions"
            self._files.mkdir(public)
            below = [promotion.version_of(name) or 0 for name in self._files.list(public)]
            number = max([0, *below]) + 1
            data = lance_manifest.renumbered(self._files.read(self._root / pin.path), number)
            self._files.create_if_absent(public / promotion.public_name(number), data)
            self._forget_lists(where, needed, number)

    def write_root_tables(self, tables: Sequence[RootTable]) -> None:
        """See `tables.Tables.write_root_tables`."""
        failed: list[SiltstoneError] = []
        for table in tables:
            try:
                with translated(self._root / table.folder, is_reading=False):
                    root_tables.show(self._files, self._root, table, self._cloned)
            except SiltstoneError as error:
                failed.append(error)
        with translated(self._root, is_reading=False):
            names = [table.name for table in tables]
            root_tables.forget(self._files, self._root, names, lance_directory.KEPT_S)
        if failed:
            raise failed[0]

    def _cloned(self, folder: str, pin: Pin) -> bytes:
        """Return the manifest of a dataset that has a pin's files by their absolute paths."""
        source = _lance().dataset(str(self._root / folder), version=pin.version)
        with tempfile.TemporaryDirectory(prefix="siltstone-") as target:
            clone = source.shallow_clone(f"{target}/t", pin.version)
            name = promotion.public_name(clone.version)
            return (Path(target) / "t" / "_versions" / name).read_bytes()

    def _forget_lists(self, where: Path, needed: Collection[str], number: int) -> None:
        kept = {*needed, str(where / "_versions" / promotion.public_name(number))}
        for folder in ("_versions", _DATA, _TRANSACTIONS, PRIVATE_DIRECTORY):
            for path in self._below(where / folder):
                name = str(path.relative_to(self._root))
                if name not in kept and str(path) not in kept and self._is_stale(path):
                    self._files.unlink(path)
                    if folder == PRIVATE_DIRECTORY and not self._files.list(path.parent):
                        self._files.rmdir(path.parent)

    def _below(self, folder: Path) -> Iterator[Path]:
        for name in self._files.list(folder):
            path = folder / name
            yield from self._below(path) if self._files.is_dir(path) else [path]

    def _is_stale(self, path: Path) -> bool:
        return time.time() - self._files.mtime(path) > lance_directory.KEPT_S

    def overlaid(
        self,
        folder: str,
        pin: Pin,
        *,
        drop: np.ndarray,
        batches: Iterable[pa.RecordBatch],
        version: int,
    ) -> Ephemeral:
        """See `tables.Tables.overlaid`. What crashes half-way is left to vacuum."""
        table, where = self.open(folder, pin), self._root / folder
        found = staging.peeked(batches)
        catalog = self._staging(folder, {pin.version: self._root / pin.path})
        with _writing(where, catalog):
            changed, gone = overlay.hidden(table, np.sort(drop))
            added = (
                [] if found is None else self._write(folder, table.dataset, table.schema, found[1])
            )
            added = [*overlay.numbered(added, version)]
            lance = _lance()
            dataset = lance.LanceDataset.commit(
                _open_newest_of(catalog),
                lance.LanceOperation.Update(gone, changed, added),
                read_version=pin.version,
                max_retries=0,
                namespace_client=catalog,
                table_id=TABLE_ID,
                namespace_client_managed_versioning=True,
            )
        with translated(where, is_reading=False):
            return self._renumbered(folder, catalog, dataset, [*changed, *added], version)

    def _renumbered(
        self,
        folder: str,
        catalog: StagedCatalog,
        dataset: Any,
        own: Sequence[Any],
        version: int,
    ) -> Ephemeral:
        written = catalog.versions[dataset.version]
        path = catalog.location / promotion.public_name(version)
        data = lance_manifest.renumbered(self._files.read(written), version)
        self._files.replace(path, data, durable=False)
        self._tidy(catalog.location, path)
        numbers = {fragment.id for fragment in own}
        mine = [f for f in dataset.get_fragments() if f.fragment_id in numbers]
        new = [
            f"{_DATA}/{x.path}"
            for f in mine
            for x in f.metadata.files
            if f.fragment_id >= overlay.FRAGMENTS_FROM
        ]
        new += [str(f.deletion_file()) for f in mine if f.metadata.deletion_file]
        self._name(f"{folder}/{name}" for name in new)
        names = [str(path.relative_to(self._root)), *(f"{folder}/{name}" for name in new)]
        files = [describe(self._files, self._root, name) for name in names]
        manifest = files[0]
        return Ephemeral(
            version, manifest.path, manifest.size, manifest.xxh3, dataset.count_rows(), (*files,)
        )

    def open(self, folder: str, pin: Pin) -> LancePinned:
        """See `tables.Tables.open`.

        The newest `_OPEN_MAX` handles are kept, while they have at most `open_parts_max` parts
        together; the last one opened always is.
        """
        with self._lock:
            if pin.path in self._open:
                self._open.move_to_end(pin.path)
                return self._open[pin.path]
        return self._keep(self._table(folder, pin))

    def _keep(self, table: LancePinned) -> LancePinned:
        with self._lock:
            self._open[table.pin.path] = table
            parts = sum(len(each.parts) for each in self._open.values())
            while len(self._open) > 1 and (len(self._open) > _OPEN_MAX or parts > self._parts_max):
                parts -= len(self._open.popitem(last=False)[1].parts)
        return table

    def promote(self, folder: str, pins: Sequence[Pin], newest: Pin) -> None:
        """See `tables.Tables.promote`."""
        where = self._root / folder
        wanted = {pin.version: self._root / pin.path for pin in (*pins, newest)}
        with translated(where, is_reading=False):
            promotion.link(self._files, where, wanted, newest.version)
            kept.unite(self._files, self._root, folder)
            promotion.forget_tags(self._files, where)
            # Also what a client has tagged: without our name for it, it would pass for another's.
            promotion.unlink_stale(self._files, where, set(wanted), newest.version)
            if promotion.clear(self._files, where):
                promotion.hint(self._files, where, newest.version)

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        """See `tables.Tables.set_aside`."""
        where = self._root / folder
        with translated(where, is_reading=False):
            if not promotion.is_followed(self._files, where, above):
                return []
            kept.unite(self._files, self._root, folder)  # of what is set aside, too
            found = promotion.clear(self._files, where, above)
        return [(version, str(path.relative_to(self._root))) for version, path in found]

    def files(self, folder: str, pin: Pin) -> list[InventoryFile]:
        """See `tables.Tables.files`."""
        table = self._table(folder, pin)
        top = next(iter(self._inventories.chain(pin.inventory).values()))
        notes = [f for f in top.files if f"/{_TRANSACTIONS}/" in f.path]
        manifest = InventoryFile(pin.path, pin.size, pin.xxh3)
        inventories = self._inventories.own_files(pin.inventory)
        indexes = self._inventories.live(
            pin.inventory, self._index_files(folder, table.dataset, pin.inventory)
        )
        return [*table.inventory().values(), *indexes.values(), *notes, manifest, *inventories]

    def external_versions(self, folder: str) -> list[ExternalVersion]:
        """See `tables.Tables.external_versions`."""
        found = external_versions.manifests(self._files, self._root, folder)
        return [self._stranger(folder, version, path) for version, path in found]

    def _stranger(self, folder: str, version: int, path: str) -> ExternalVersion:
        try:
            dataset = self._strange(folder, version, path)
            return external_versions.describe(dataset, path, self._root / folder, folder)
        except SiltstoneError as error:
            return ExternalVersion(path, version, 0, f"it cannot be read: {error}")

    def added(self, folder: str, external: ExternalVersion) -> Iterator[pa.RecordBatch]:
        """See `tables.Tables.added`."""
        dataset = self._strange(folder, external.version, external.path)
        return external_versions.read(dataset, external, self._root / folder)

    def _strange(self, folder: str, version: int, path: str) -> Any:
        """Open a version by path where its files are: a clean-up may have taken public names."""
        dataset = self._at(folder, folder, version, path)
        home = kept.home_of(folder)
        named = external_change.of(folder, dataset.get_fragments()).values()
        exposed, hidden = kept.lacking(self._files, self._root, chain.from_iterable(named))
        return dataset if exposed or not hidden else self._at(str(home), folder, version, path)

    def _at(self, location: str, folder: str, version: int, path: str) -> Any:
        catalog = StagedCatalog(self._root / location, self._files, {version: self._root / path})
        with translated(self._root / folder, is_reading=True):
            return _open_newest_of(catalog)

    def check(self, folder: str, pin: Pin) -> None:
        """See `tables.Tables.check`."""
        for file in self.files(folder, pin):
            check_file(self._files, self._root, file)

    def _handle(self, folder: str, pin: Pin) -> Any:
        return self.open(folder, pin).dataset

    def _table(self, folder: str, pin: Pin) -> LancePinned:
        where, path = self._root / folder, self._root / pin.path
        check_file(self._files, self._root, InventoryFile(pin.path, pin.size, pin.xxh3))
        for location in (kept.home_of(folder), folder):
            if location is None:
                continue
            catalog = StagedCatalog(self._root / location, self._files, {pin.version: path})
            with translated(where, is_reading=True):
                dataset = _open_newest_of(catalog)
                if dataset.version != pin.version:
                    raise CorruptionError(path, None, f"holds version {dataset.version}")
                table = self._pinned(folder, pin, dataset)
                if location == folder or self._has_kept(folder, table):
                    return table
        raise AssertionError(folder)

    def _has_kept(self, folder: str, table: LancePinned) -> bool:
        """Say whether all files that a read may open have their kept names.

        Those of a store that an older siltstone wrote have none until an owner makes them.
        """
        paths = [path for part in table.parts for path in part.paths]
        paths += self._index_files(folder, table.dataset, table.pin.inventory)
        with suppress(FileNotFoundError):
            for path in paths:
                if path not in self._named:
                    self._files.size(self._root / (kept.kept_of(path) or path))
                    self._known_by_both(path)
            return True
        return False

    def _name(self, paths: Iterable[str]) -> None:
        """Give new files both names, before anything names them."""
        for path in paths:
            if path not in self._named and kept.kept_of(path) is not None:
                kept.both(self._files, self._root, path)
                self._known_by_both(path)
                cross(Failpoint.NAME_AFTER_LINK)

    def _sync_names(self, folder: str, directory: str) -> None:
        """Make the names of new files durable: the public ones, then our own."""
        self._files.sync_dir(self._root / folder / directory)
        kept.sync(self._files, self._root, folder, directory)

    def _begin(self, syncing: Syncing, paths: Sequence[str], *, is_known: bool) -> None:
        """Begin to sync files with both names."""
        names = [name for path in paths if (name := kept.kept_of(path)) is not None]
        public = [self._root / path for path in paths]
        syncing.begin(*public, names=[self._root / name for name in names], is_known=is_known)

    def _known_by_both(self, path: str) -> None:
        with self._lock:
            if len(self._named) >= _NAMED_MAX:
                self._named = set()
            self._named.add(path)

    def unite(self, folder: str) -> None:
        """See `tables.Tables.unite`; what did not change since the last time is left alone."""
        where = self._root / folder
        with translated(where, is_reading=False):
            found = kept.changed(self._files, self._root, folder)
            if found is None or found == self._united.get(folder):
                return
            kept.unite(self._files, self._root, folder)
            promotion.forget_tags(self._files, where)
        if max(found) < time.time() - kept.TICK_S:  # as it was before: our links change it, too
            with self._lock:
                if len(self._united) >= _UNITED_MAX:
                    self._united = {}
                self._united[folder] = found

    def unite_all(self) -> None:
        """See `tables.Tables.unite_all`."""
        with translated(self._root, is_reading=False):
            for folder in kept.folders(self._files, self._root):
                kept.unite(self._files, self._root, folder)

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """See `tables.Tables.lacking`."""
        return kept.lacking(self._files, self._root, paths)

    def _pinned(self, folder: str, pin: Pin, dataset: Any) -> LancePinned:
        return LancePinned(
            dataset,
            folder=folder,
            root=self._root,
            pin=pin,
            live=lambda paths: self._inventories.live(pin.inventory, paths),
            verify=self._inventories.verify if self._verifies else _trust,
            index_paths=lambda: self._index_files(folder, dataset, pin.inventory),
        )

    def _staging(self, folder: str, versions: dict[int, Path]) -> StagedCatalog:
        """Return the catalog of a new transaction, in a directory of its own."""
        location = self._root / folder / PRIVATE_DIRECTORY / self._token()
        with translated(location, is_reading=False):
            self._files.mkdir(location)
        return StagedCatalog(location, self._files, versions)

    def _write(
        self,
        folder: str,
        dataset: Any,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        mode: str = "append",
    ) -> list[Any]:
        where, feed = self._root / folder, staging.BatchFeed(batches, schema)
        try:
            with translated(where, is_reading=False):
                write = importlib.import_module("lance.fragment").write_fragments
                return write(feed.reader(), dataset, mode=mode)
        except Exception:
            if feed.error is not None:
                raise feed.error from None  # what the caller's own iterator raised
            raise

    def _staged(
        self,
        folder: str,
        fragments: Sequence[Any],
        columns: tuple[staging.Column, ...],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        with translated(self._root / folder, is_reading=False):
            names = [f"{folder}/{_DATA}/{file.path}" for f in fragments for file in f.files]
            self._name(names)
            files = self._inventories.seal(names, seqs)
            self._sync_names(folder, _DATA)
        return StagedFiles(
            sum(fragment.num_rows for fragment in fragments),
            tuple(json.dumps(fragment.to_json()) for fragment in fragments),
            tuple(files),
            columns,
        )

    def _rewritten(
        self,
        folder: str,
        table: LancePinned,
        touched: Sequence[int],
        dropped: np.ndarray,
        added: Iterator[pa.RecordBatch],
        seqs: tuple[int, int] | None,
    ) -> StagedFiles:
        """Stage what is left of the fragments `touched` and then the rows `added`."""
        first = next(added, None)
        inputs = [table.inventory()[p] for index in touched for p in table.parts[index].paths]
        span = staging.span(inputs, seqs, has_more=first is not None)
        more = added if first is None else chain([first], added)
        rows = table.surviving(touched, dropped)
        found = staging.peeked(chain(rows, more))
        if found is None:
            return StagedFiles(0, (), (), ())
        fragments = self._write(folder, table.dataset, table.schema, found[1])
        staging.check_field_ids(fragments, table.dataset.lance_schema, table.schema.names)
        return self._staged(folder, fragments, (), span)

    def _commit(
        self,
        folder: str,
        pin: Pin,
        operations: Iterable[Any],
        added: Iterable[InventoryFile],
        *,
        rows: int,
    ) -> Pin:
        where = self._root / folder
        catalog = self._staging(folder, {pin.version: self._root / pin.path})
        with _writing(where, catalog):
            dataset = _open_newest_of(catalog)
            for operation in operations:
                dataset = _lance().LanceDataset.commit(
                    dataset,
                    operation,
                    read_version=max(catalog.versions),
                    max_retries=0,
                    namespace_client=catalog,
                    table_id=TABLE_ID,
                    namespace_client_managed_versioning=True,
                )
        return self._seal(folder, pin.inventory, catalog, dataset, added, rows=rows)

    def _seal(
        self,
        folder: str,
        below: str,
        catalog: StagedCatalog,
        dataset: Any,
        added: Iterable[InventoryFile],
        *,
        rows: int,
    ) -> Pin:
        """Make a staged version durable and name it.

        A data file that a commit adds is already synced; Lance's commit itself wrote the manifest
        and the account of the transaction.
        """
        where, version = self._root / folder, dataset.version
        path = catalog.versions[version]
        with translated(where, is_reading=False):
            note = dataset.read_transaction(version)
            fragments = dataset.get_fragments()
            names = [f"{_DATA}/{file.path}" for f in fragments for file in f.metadata.files]
            names += [str(f.deletion_file()) for f in fragments if f.metadata.deletion_file]
            require(dataset.count_rows() == rows, f"{path} holds other than {rows} rows")
            txn = f"{folder}/{_TRANSACTIONS}/{note.read_version}-{note.uuid}.txn"
            written = catalog.location / _TRANSACTIONS / Path(txn).name
            self._files.rename(written, self._root / txn)  # readers look for it there
            self._name([txn])
            notes = self._inventories.seal([txn], None)
            self._sync_names(folder, _TRANSACTIONS)
            self._files.sync_file(path)
            self._tidy(catalog.location, path)
            self._files.sync_dir(path.parent)
            live = [txn, *(f"{folder}/{name}" for name in names)]
            live += self._index_files(folder, dataset, below)
            inventory = self._inventories.add(below, [*notes, *added], live)
            name = str(path.relative_to(self._root))
            manifest = describe(self._files, self._root, name)
        return Pin(version, name, manifest.size, manifest.xxh3, rows, inventory)

    def _tidy(self, location: Path, kept: Path) -> None:
        """Delete what Lance left beside the one manifest that the transaction is about."""
        for name in self._files.list(location):
            path = location / name
            if self._files.is_dir(path):
                for each in self._files.list(path):
                    self._files.unlink(path / each)
                self._files.rmdir(path)
            elif path != kept:
                self._files.unlink(path)


def _ascending(positions: np.ndarray) -> np.ndarray:
    """Return each position once, in order.

    `np.unique` hashes whole numbers (NumPy 2.4), and takes twenty times as long as a sort.
    """
    ordered = np.sort(positions)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def warm_up() -> None:
    """Import Lance and plan a first scan: 1-2 s, for a thread of its own."""
    dataset = _lance().write_dataset(pa.table({"warm": [1]}), "memory://siltstone-warm-up")
    dataset.to_table()


def _lance() -> Any:
    return importlib.import_module("lance")


def _open_newest_of(catalog: StagedCatalog) -> Any:
    """Open the newest version that `catalog` knows: the one pinned, or staged through it since."""
    # Not `lance.dataset`: to ask the catalog where the table is, it imports a second of models.
    return _lance().LanceDataset(
        str(catalog.location),
        namespace_client=catalog,
        table_id=TABLE_ID,
        namespace_client_managed_versioning=True,
        **_LANCE_CACHES,
    )


@contextmanager
def _writing(where: Path, catalog: StagedCatalog) -> Generator[None]:
    """Run a Lance commit; what our catalog raised inside comes out, not Lance's wrapping of it."""
    with translated(where, is_reading=False):
        try:
            yield
        except Exception as error:
            # It must not stay there: its frames refer to data sets, these in Rust to the catalog,
            # and Python sees no such circle. What else the frames have would never be let go.
            failed, catalog.error = catalog.error, None
            if failed is not None:
                raise failed from error
            raise


def _operation_of(dataset: Any) -> Any:
    """Return the change that made a version; None where Lance cannot say."""
    with suppress(TypeError):  # pylance 14: of a Rewrite with indexes
        return dataset.read_transaction(dataset.version).operation
    return None


def _trust(_files: Iterable[InventoryFile]) -> None:
    """Check nothing: with verify="scrub" the bytes are left to `check`."""


def _fragments(staged: StagedFiles) -> list[Any]:
    metadata = _lance().FragmentMetadata
    return [metadata.from_json(text) for text in staged.fragments]
