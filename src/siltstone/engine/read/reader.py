"""Reader: the levels of a table for a read at a seq, in a view or in the past.

    seq >= merged_seq   the view's own levels
    seq <  merged_seq   the past: base as of a record that serves the seq (`past_record`), and
                        history from there up to seq

The second case is complete because a merge folds only flushed seqs: a seq below a base's merged_seq
is at most flushed_seq, so history has every version up to it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of, whole_table_schema
from siltstone.engine.columns.images import Images
from siltstone.engine.columns.row_vectors import FreshVectors
from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.levels.history_run import HistoryRun, held_of
from siltstone.engine.levels.sources import Source, known_of
from siltstone.engine.levels.visibility import VisibilityCache
from siltstone.engine.read.fallback_rows import FallbackRows
from siltstone.engine.read.index_use import prefilter_of
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.past_record import PastTable
from siltstone.engine.read.read_levels import ReadLevels, TextSearch
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import Levels, View
from siltstone.errors import CorruptionError, SiltstoneError, SnapshotExpiredError
from siltstone.formats.log.group import UPSERT
from siltstone.formats.manifest import Fallback, KeyedStorage, Load, Pin, Schema, TableDefinition
from siltstone.formats.types import blobs
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.manifest.manifest_store import Lease
from siltstone.storage.tables.keys.key_cover import TableKeys
from siltstone.storage.tables.keys.key_places import PinnedKeys
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import POSITION


class PlainReader(msgspec.Struct, frozen=True, eq=False):
    """One version of a plain table; `lease` keeps its files. No `table`: it has no version yet.

    `texts`: how texts are searched; its indexes are those of the version.
    """

    table_schema: TableSchema
    table: PinnedTable | None
    version: int
    lease: object = None
    texts: TextSearch | None = None

    def count(self) -> int:
        """Return the number of rows."""
        return 0 if self.table is None else self.table.rows

    def scan(
        self,
        columns: Sequence[str] | None = None,
        wanted: Filter | None = None,
        *,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that `wanted` keeps, with `columns` of the schema.

        `limit`: the caller takes no more rows than that; more may come.
        """
        shown = list(self.table_schema.arrow.names if columns is None else columns)
        fields = self.table_schema.fields(shown)
        for kept in self._kept(shown, wanted, positions=False, limit=limit):
            if kept.schema.equals(fields):
                yield kept
            else:
                yield batch_of([kept.column(name) for name in shown], fields, kept.num_rows)

    def scan_placed(
        self, columns: Sequence[str], wanted: Filter | None
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield the same, and the positions of the rows in the version."""
        fields = self.table_schema.fields(list(columns))
        for kept in self._kept(columns, wanted, positions=True):
            arrays = [kept.column(name) for name in columns]
            places = kept.column(POSITION).to_numpy().astype(np.int64)
            yield places, batch_of(arrays, fields, kept.num_rows)

    def _kept(
        self,
        shown: Sequence[str],
        wanted: Filter | None,
        *,
        positions: bool,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that `wanted` keeps, with `shown` and the columns of the filter."""
        if self.table is None:
            return
        shown = list(shown)
        read = shown + ([n for n in sorted(wanted.columns) if n not in shown] if wanted else [])
        hidden = blobs.names_of(self.table_schema.arrow)  # Lance compares their places
        names = {name: name for name in read if name not in hidden}
        prefilter, indexed = prefilter_of(self.table, wanted, names) if wanted else (None, False)
        batches = self.table.scan(
            read,
            prefilter=prefilter,
            positions=positions,
            limit=None if wanted or limit is None else min(limit, self.table.rows),
            indexed=indexed,
        )
        for batch in batches:
            kept = wanted.keep(batch) if wanted else batch
            if kept.num_rows:
                yield kept


Reader: TypeAlias = KeyedReader | PlainReader
"""A table at one seq."""


class Readers:
    """Creates readers. Holds only the state that it needs to open pins; any thread.

    `_noting` guards the sets of objects that hold memory: a growing set cannot be iterated.
    """

    def __init__(
        self,
        tables: TableReader,
        keys: TableKeys,
        records: PastRecords,
        *,
        index_bytes_max: int,
        parts: PartCache | None = None,
    ) -> None:
        """Half of `index_bytes_max` may be pages of key runs.

        `parts` keeps rows of bases in files; None: nothing does.
        """
        self.parts = parts
        self._tables, self._keys, self._records = tables, keys, records
        self.index_bytes_max = index_bytes_max
        keys.bound(index_bytes_max // 2)
        self._noting = threading.Lock()
        self._bases: weakref.WeakSet[Base] = weakref.WeakSet()
        self._kept: weakref.WeakSet[VisibilityCache] = weakref.WeakSet()
        self._images: weakref.WeakSet[Images] = weakref.WeakSet()
        self._runs: weakref.WeakSet[HistoryRun] = weakref.WeakSet()
        self._vectors = FreshVectors(self._bytes_left)
        self._fallbacks = FallbackRows(tables)
        self._unread: weakref.WeakValueDictionary[str, HistoryRun] = weakref.WeakValueDictionary()

    def open(
        self, view: View, table: TableDefinition, seq: int, *, defined_at: int | None = None
    ) -> Reader:
        """Return the reader of `table` at `seq`.

        Names, schema and incarnation are those at `defined_at` (default `seq`): a transaction that
        altered a table reads it with its own definition.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq.
        """
        defined = seq if defined_at is None else defined_at
        table_schema = table_schema_of(catalogs.schema_of(table, defined))
        incarnation = catalogs.incarnation_of(table, defined)
        if table_schema.keys is None:
            version = catalogs.version_of(incarnation, seq)
            return self.plain(table_schema, None if version is None else version.pin, view.lease)
        key = (incarnation.id, table_schema.id)
        memo = view.memo.get(key)
        # Open transactions share a view, and each may have its own schema under the same id. Rows
        # that could not be read when the view was made may be readable now.
        if (
            self._unread
            or not isinstance(memo, KeyedReader)
            or memo.table_schema is not table_schema
        ):
            memo = None
        elif memo.seq == seq:
            return memo
        levels = view.levels.get(incarnation.id)
        if memo and levels is not None and levels.storage.merged_seq <= min(seq, memo.seq):
            reader = view.memo[key] = memo.at(seq)  # of the view's own levels, as that one was
            return reader
        if levels is None and incarnation.seq > seq:  # made by the asking transaction itself
            read = ReadLevels(table_schema, (), None, **self._shared(view, table))
            return KeyedReader(read, seq)
        if levels is None:
            raise SnapshotExpiredError(f"seq {seq}", self.oldest_seq(view), seq)
        if seq >= levels.storage.merged_seq:
            with self._noting:
                self._kept.add(levels.kept)
                self._images.add(levels.images)
            read = ReadLevels(
                table_schema,
                self._read_again(table, levels),
                levels.base,
                lease=view.lease,
                kept=levels.kept,
                bytes_left=self._bytes_left,
                images=levels.images,
                merged_seq=levels.storage.merged_seq,
                **self._shared(view, table),
            )
        else:
            old, lease = self._serving(view, PastTable(levels.storage, incarnation), seq)
            leases = (view.lease, lease)
            sources = self.history(table, levels.storage, old.merged_seq, seq, leases)
            base, shared = self.base(table, old), self._shared(view, table)
            read = ReadLevels(table_schema, sources, base, lease=leases, **shared)
        reader = view.memo[key] = KeyedReader(read, seq)
        return reader

    def hold(self, view: View, seq: int) -> dict[int, Lease]:
        """Return leases on the records that a snapshot at `seq` may read besides the view's.

        One for each record, by its number: each is an open file, and many tables share a record.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq.
        """
        leases: dict[int, Lease] = {}
        for table in view.catalog.tables:
            incarnation = catalogs.incarnation_of(table, seq)
            levels = view.levels.get(incarnation.id)
            if levels is None or seq >= levels.storage.merged_seq:
                continue
            if catalogs.is_alive(table, seq):
                lease = self._serving(view, PastTable(levels.storage, incarnation), seq)[1]
                leases.setdefault(lease.number, lease)
        return leases

    def oldest_seq(self, view: View) -> int:
        """Return the lowest seq from which on all tables can be read, besides those of tags.

        In a bucket it may be above that of the store, and all its records may be read for it.
        """
        keyed = (
            PastTable(view.levels[incarnation.id].storage, incarnation)
            for table in view.catalog.tables
            for incarnation in table.incarnations
            if incarnation.id in view.levels
        )
        return max(view.record.oldest_seq, self._records.begin(keyed))

    def keep(self, seq: int) -> Lease | None:
        """Return a lease that keeps all from `seq` on from vacuum; None: it is taken already."""
        return self._records.upto(seq)

    def storage_at(
        self, view: View, table: TableDefinition, seq: int, defined_at: int | None = None
    ) -> tuple[KeyedStorage, object]:
        """Return the storage of a keyed table at `seq`, and a lease on its files; see `open`.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq.
        """
        incarnation = catalogs.incarnation_of(table, seq if defined_at is None else defined_at)
        levels = view.levels.get(incarnation.id)
        if levels is None:
            raise SnapshotExpiredError(f"seq {seq}", self.oldest_seq(view), seq)
        if seq >= levels.storage.merged_seq:
            return levels.storage, view.lease
        return self._serving(view, PastTable(levels.storage, incarnation), seq)

    def plain(
        self, table_schema: TableSchema, pin: Pin | None, lease: object = None
    ) -> PlainReader:
        """Return the reader of one version of a plain table; `lease` keeps its files."""
        texts = TextSearch((), self._tables.analyzer)
        if pin is None:
            return PlainReader(table_schema, None, 0, texts=texts)
        return PlainReader(table_schema, self.pinned(pin), pin.version, lease, texts)

    def _shared(self, view: View, table: TableDefinition) -> dict[str, Any]:
        """Return the vectors that reads keep, and what the newest record declares of indexes."""
        mine = [index for index in view.record.indexes if index.table == table.id]
        texts = tuple(index for index in mine if index.kind == "fts")
        valued = frozenset(index.column for index in mine if index.kind == "btree")
        search = TextSearch(texts, self._tables.analyzer)
        return {"vectors": self._vectors, "texts": search, "valued": valued}

    def pinned(self, pin: Pin) -> PinnedTable:
        """Return the dataset version of a pin that a frame names."""
        return self._tables.open(pin)

    def keys(self, pin: Pin) -> PinnedKeys:
        """Return the key runs of a base, or of a load."""
        return self._keys.open(pin)

    def base(self, table: TableDefinition, storage: KeyedStorage) -> Base | None:
        """Return the base of an incarnation in a record."""
        pin = storage.base
        if pin is None:
            return None
        table_schema = table_schema_of(catalogs.schema_by_id(table, storage.base_schema))
        return self.base_of(pin, table_schema)

    def base_of(self, pin: Pin, table_schema: TableSchema) -> Base:
        """Return a base by its pin; it is opened at its first read."""
        base = Base(
            lambda: self._tables.open(pin),
            lambda: self._keys.open(pin),
            table_schema,
            rows=pin.rows + pin.hidden,
            hidden=pin.hidden,
            index_bytes_max=self.index_bytes_max,
            taken=self._taken,
            parts=self.parts,
        )
        with self._noting:
            self._bases.add(base)
        return base

    def history(
        self,
        table: TableDefinition,
        storage: KeyedStorage,
        low: int,
        high: int,
        lease: object,
        *,
        known: Sequence[Source] = (),
    ) -> tuple[Source, ...]:
        """Return the part (low, high] of the history in `storage`, oldest first.

        Each load is its own run. Rows that Lance refused are memtables, which may have rows
        above `high`. `known` are levels of the same rows, perhaps with an index in memory.
        """
        schema, found, at = whole_table_schema(table).schema, list[Source](), low
        others: list[tuple[int, int, Source | None]] = [(high + 1, high, None)]
        for load in storage.loads:
            if low < load.seq <= high:
                seqs, opened = (load.seq - 1, load.seq), partial(self._attached, load)
                run = self._run(opened, schema, seqs, lease, known)
                others.append((load.seq, load.seq, run))
        others += (
            (each.first_seq, each.last_seq, self._refused(table, each, schema, known))
            for each in storage.fallbacks
            if each.first_seq <= high and each.last_seq > low
        )
        for first, last, other in sorted(others, key=lambda each: each[0]):
            end = min(first - 1, storage.foldable_seq(high))
            if storage.history is not None and at < end:
                opened = partial(self._tables.open, storage.history)
                found.append(self._run(opened, schema, (at, end), lease, known))
            if other is not None:
                found.append(other)
            at = max(at, last)
        return tuple(found)

    def _run(
        self,
        opened: Callable[[], PinnedTable | Attached],
        schema: Schema,
        seqs: tuple[int, int],
        lease: object,
        known: Sequence[Source],
    ) -> HistoryRun:
        """Return history above one seq, up to another; what is `known` of it is not read again."""
        low, high = seqs
        inside = [source for source in known if source.last_seq > low and source.first_seq <= high]
        is_whole = all(source.last_seq <= high for source in inside)
        index = known_of(inside, low) if is_whole else ()
        runs = [source for source in inside if isinstance(source, HistoryRun)]
        held = held_of(runs, low, high) if index and len(runs) == len(inside) else ()
        run = HistoryRun(
            opened, schema, low, high,
            lease=lease, known=index, held=held, bytes_left=self._bytes_left,
        )  # fmt: skip
        with self._noting:
            self._runs.add(run)
        return run

    def _refused(
        self, table: TableDefinition, rows: Fallback, schema: Schema, known: Sequence[Source]
    ) -> Source:
        """Return rows that Lance refused.

        If they cannot be read, readers of the table get the error, and no others. They are read
        again by each later reader (`_read_again`), and for the next view, but once: when that is
        made under a lock, the failure is there.
        """
        failed = self._unread.get(rows.pin.path)
        if failed is not None and all(failed is not source for source in known):
            return failed
        try:
            found = self._fallbacks.of(table, rows)
        except SiltstoneError as error:
            run = HistoryRun(_raising(error), schema, rows.first_seq - 1, rows.last_seq)
            self._unread[rows.pin.path] = run
            return run
        self._unread.pop(rows.pin.path, None)  # an older view may still have it
        return found

    def _read_again(self, table: TableDefinition, levels: Levels) -> tuple[Source, ...]:
        """Return the sources of a view, with rows that Lance refused if they can be read now."""
        if not self._unread:
            return levels.sources
        found = list(levels.sources)
        for rows in levels.storage.fallbacks:
            failed = self._unread.get(rows.pin.path)
            if failed in found:
                with contextlib.suppress(SiltstoneError):
                    found[found.index(failed)] = self._fallbacks.of(table, rows)
        return tuple(found)

    def _attached(self, load: Load) -> Attached:
        pin = load.pin
        return Attached(self._tables.open(pin), load.seq, UPSERT, partial(self._keys.open, pin))

    def _taken(self) -> int:
        """Return the bytes that all bases, and what is kept about what lies over them, hold.

        Rows that two bases share count once: counted twice, those of the next base would not fit.
        """
        with self._noting:
            bases, kept, images = [*self._bases], [*self._kept], [*self._images]
            runs = [*self._runs]
        parts = [part for base in bases for part in base.resident_parts]
        twice = sum(part.nbytes for part in parts) - sum({p: p.nbytes for p in parts}.values())
        return (
            self._keys.cached_bytes()
            + self._vectors.nbytes
            + (0 if self.parts is None else self.parts.nbytes)
            + sum(each.nbytes for each in (*bases, *kept, *images))
            + sum(run.held_bytes for run in runs)
            - twice
        )

    def _bytes_left(self) -> int:
        return self.index_bytes_max - self._taken()

    def _serving(self, view: View, table: PastTable, seq: int) -> tuple[KeyedStorage, Lease]:
        """Return the storage, as of an older record that serves `seq`, and a lease.

        Raises:
            SnapshotExpiredError: It is not kept any more.
            CorruptionError: The record that has it is lost.
        """
        found = self._records.serving(table, seq)
        if found is not None:
            return found
        lost = self._records.missing() if seq >= view.record.oldest_seq else None
        if lost is not None:
            raise CorruptionError(lost, None, f"missing; seq {seq} cannot be read without it")
        raise SnapshotExpiredError(f"seq {seq}", self.oldest_seq(view), view.record.last_seq)


def _raising(error: SiltstoneError) -> Callable[[], PinnedTable]:
    def opened() -> PinnedTable:
        raise error

    return opened
