"""Base: the merged rows of one keyed table, one pinned version, and what finds rows in it by key.

    key runs     sorted files beside the parts, written by maintenance: nothing is built to read
    uncovered    parts that no run covers, as after a repair: an index in memory, if it fits
                 `index_bytes_max`; else a read by key is a scan with a filter
    row cache    rows read by key, as dicts, at most `CACHED_ROWS_MAX`, each with its place
    resident     all columns as Arrow, after `_MISSES_MIN` misses of the cache, or at the third scan
                 of a statement, if they fit the same bound: a row then costs 3 us, taken from Lance
                 250
    filed        else the rows in part files, one for each part, made then (`filed_rows`): 5 us

After a fold the next base gets the resident rows and the cache of this one (`carry`). A cached row
is good as long as its part is there and it is not hidden: no row is changed in its place.

None of these changes a result: a pin is immutable, the rest are caches of it.

Lock: one, held while the index of uncovered parts or resident rows are read, so that they are read
once; later reads take no lock.
"""

from __future__ import annotations

import functools
import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.levels.chunk import NOTHING, Run
from siltstone.engine.levels.filed_rows import FiledRows
from siltstone.engine.levels.resident import Resident, ResidentPart
from siltstone.formats.bits import Bits, all_of
from siltstone.formats.key_run import OFFSET_BITS
from siltstone.formats.keys import Codes, Key, KeyColumns, KeysAt, in_blocks, same_keys
from siltstone.formats.rows import from_storage_values
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.tables.keys.key_places import PinnedKeys, Stretch
from siltstone.storage.tables.tables import OrderedValues, PinnedTable
from siltstone.storage.tables.values import POSITION, SAMPLED_ROWS, PartId

CACHED_ROWS_MAX = 100_000
_CACHE_BYTES_MAX = 64 << 20
_ROW_BYTES_FLOOR = 400
INDEX_ROW_BYTES = 16
_FILTER_BITS = 22
_MISSES_MIN = 64
_MISSES_A_SCAN, _MISSES_A_PAGE = 23, 9
_TOGETHER_MIN = 4
_FILED_SHARE = 0.5
_VARIABLE = (str, bytes)
_MIX = np.uint64(0x9E3779B97F4A7C15)

Cached: TypeAlias = tuple[int | None, "dict[str, object] | None"]
"""A row and its place (see `key_places`); (None, None): there is none."""


class Base:
    """One pinned base, written with `table_schema` (see the module)."""

    def __init__(
        self,
        opened: Callable[[], PinnedTable],
        keys: Callable[[], PinnedKeys],
        table_schema: TableSchema,
        *,
        rows: int,
        hidden: int,
        index_bytes_max: int,
        taken: Callable[[], int] = lambda: 0,
        parts: PartCache | None = None,
    ) -> None:
        """Open lazily: `opened` and `keys` are asked once, at the first read.

        `rows` counts its positions, `hidden` those of hidden rows: replaced or deleted, and still
        in the files.

        `taken` says how many of the `index_bytes_max` all bases hold already. The row cache gets a
        quarter of them. `parts` keeps rows that do not fit in files; None: nothing does.
        """
        self._opened: Callable[[], PinnedTable] = functools.cache(opened)
        self._open_keys: Callable[[], PinnedKeys] = functools.cache(keys)
        self.table_schema, self.rows, self.hidden = table_schema, rows, hidden
        self._index_bytes_max, self._taken = index_bytes_max, taken
        self._lock = threading.Lock()
        self._index: Run | None = None
        self._cache: dict[Key, Cached] = {}
        self._row_bytes = max(_ROW_BYTES_FLOOR, 120 * len(table_schema.names))
        cache_bytes_max = min(_CACHE_BYTES_MAX, index_bytes_max // 4)
        self._cached_max = min(CACHED_ROWS_MAX * self._row_bytes, cache_bytes_max)
        self._cached_bytes = 0
        self._before: dict[Key, Cached] = {}
        self._before_bytes, self._kept_parts = 0, set[int]()
        self._misses = 0 if parts is None or not parts.is_eager else _MISSES_MIN + 1
        self._resident: Resident | None = None
        self._parts = parts
        self._files: FiledRows | None = None

    @property
    def _filed(self) -> FiledRows | None:
        """Its rows in files; two threads may make two of them, which are equal."""
        if self._files is None and self._parts is not None and self.rows:
            self._files = FiledRows(self.table, self.table_schema, self._parts)
        return self._files

    @property
    def _may_make(self) -> bool:
        """Whether rows do not fit into memory, and were read often enough for a file."""
        return self._misses > _MISSES_MIN

    @property
    def table(self) -> PinnedTable:
        """The pinned dataset."""
        return self._opened()

    @property
    def keys(self) -> PinnedKeys:
        """Its key runs."""
        return self._open_keys()

    @property
    def live(self) -> Bits:
        """The positions of its rows, without the hidden ones."""
        return self.table.live if self.hidden else all_of(self.rows)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of its index in memory, the resident and the cached rows."""
        index = 0 if self._index is None else self._index.nbytes
        resident = 0 if self._resident is None else self._resident.nbytes
        return index + resident + self._cached_bytes + self._before_bytes

    @property
    def resident_parts(self) -> Collection[ResidentPart]:
        """The resident rows, by part; after a fold two bases may share some."""
        return () if self._resident is None else self._resident.by_id.values()

    @property
    def has_all_keys(self) -> bool:
        """Whether rows are found by key without a scan, also the first ones."""
        return not self.rows or not self.keys.uncovered or self._index is not None

    def is_at_hand(self, key: Key) -> bool:
        """Say whether `find` of a key would read no file, but for key runs."""
        at_hand = not self.rows or self._resident is not None or key in self._cache
        return at_hand and self.has_all_keys

    # point reads

    def find(self, key: Key) -> dict[str, object] | None:
        """Return the row of `key` as Python values by the names of `table_schema`, or None."""
        cached = self._cache.get(key)
        if cached is not None:
            return cached[1]
        found = self._found_before(key) or self._find(key)
        if not self.table_schema.rows.is_packable:
            return found[1]  # a nested value may be changed by its caller
        self._remember(key, found)
        return found[1]

    def find_many(self, keys: Sequence[Key]) -> dict[Key, dict[str, object]]:
        """Return rows that are in no memory, by one read of Lance; `find` has all others.

        A row that is taken by itself costs hundreds of microseconds. There are none if Python lacks
        a form for one of them: `find` says for which.
        """
        names, codec = self.table_schema.arrow.names, self.table_schema.codec
        if not (self.rows and self.table_schema.rows.is_packable and self.has_all_keys):
            return {}
        wanted = [key for key in keys if key not in self._cache and not self._found_before(key)]
        self._misses += len(wanted)
        if len(wanted) < _TOGETHER_MIN or self._rows_in_memory() is not None:
            return {}
        at = self._in_lance_alone(wanted)
        if not at:
            return {}
        taken = self.table.take(np.array([n for _, n in at], np.int64), names)
        try:
            values = taken.to_pylist()
        except (OverflowError, ValueError):
            return {}
        found: dict[Key, dict[str, object]] = {}
        for (key, position), stored, row in zip(at, codec.keys(taken), values, strict=True):
            if stored == key:
                found[key] = row
                self._remember(key, (self.keys.place_of(position), row))
        return found

    def _in_lance_alone(self, keys: Sequence[Key]) -> list[tuple[Key, int]]:
        """Return the positions of the rows with the codes of keys that no file has."""
        filed = self._filed
        if filed is not None and filed.is_whole:
            return []
        at = [(key, n) for key in keys for n in self._matches(key) if self._is_live(n)]
        if filed is None:
            return at
        return [(key, n) for key, n in at if not filed.has(n, may_make=self._may_make)]

    def _remember(self, key: Key, found: Cached) -> None:
        """Put a row into the cache; a full one is dropped at once: no lock, bounded."""
        size = self._row_bytes + _variable_bytes(found[1])
        if self._cached_bytes + size > self._cached_max:
            self._cache, self._cached_bytes = {}, 0
        if size <= self._cached_max:
            self._cached_bytes += size
            self._cache[key] = found

    def _found_before(self, key: Key) -> Cached | None:
        """Return a row that the base before the last fold had cached, if it is still there."""
        found = self._before.get(key)
        if found is None or found[0] is None or found[0] >> OFFSET_BITS not in self._kept_parts:
            return None
        position = self.keys.position_of(found[0])
        return found if position is not None and self._is_live(position) else None

    def _is_live(self, position: int) -> bool:
        return not self.hidden or self.table.live.has_one(position)

    def _find(self, key: Key) -> Cached:
        if not self.rows:
            return None, None
        codec, resident = self.table_schema.codec, self._rows_in_memory()
        for position in self._matches(key):
            if not self._is_live(position):
                continue  # the live row of the key, if there is one, is another match
            if resident is not None:
                if codec.exact or resident.key(codec, position) == key:
                    return self.keys.place_of(position), resident.row(position)
                continue
            row = self._row_of(key, position)
            if row is not None:
                return self.keys.place_of(position), row
        return None, None

    def _row_of(self, key: Key, position: int) -> dict[str, object] | None:
        """Return the row at a position, out of its file or of Lance; None: it has another key."""
        codec, filed = self.table_schema.codec, self._filed
        if filed is not None:
            row = filed.row(position, may_make=self._may_make)
            if codec.exact and row is not None:
                return row
            stored = None if row is None else self._key_of(row, filed, position)
            if stored is not None:
                return row if stored == key else None
        rows = self.table.take(np.array([position]), self.table_schema.arrow.names)
        return rows.to_pylist()[0] if codec.exact or codec.keys(rows)[0] == key else None

    def _key_of(self, row: dict[str, object], filed: FiledRows, position: int) -> Key | None:
        """Return the key of a row out of a file, exactly; None: the file is lost."""
        codec = self.table_schema.codec
        if codec.is_plain:
            found = [row[name] for name in codec.names]
            return found[0] if len(found) == 1 else tuple(found)
        table = filed.take(np.array([position]), codec.names)
        return None if table is None else codec.keys(table)[0]

    def take(self, positions: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows at some positions, in their order, from where they cost least.

        `names` are those of `table_schema`.
        """
        found = None
        if self._resident is not None and len(positions) and names:
            found = self._resident.take(positions, names)
        elif self._filed is not None:
            found = self._filed.take(positions, names)
        return self.table.take(positions, names) if found is None else found

    def _matches(self, key: Key) -> Iterator[int]:
        """Return the positions of the rows with the code of a key."""
        keys = self.keys
        if not keys.newest_first:
            return self._uncovered_matches(key)
        found = keys.find(self.table_schema.codec.code(key))
        return chain(found, self._uncovered_matches(key)) if keys.uncovered else found

    def _uncovered_matches(self, key: Key) -> Iterator[int]:
        index, codec = self._uncovered_index(), self.table_schema.codec
        if index is None:
            yield from self._scanned(key)
            return
        code, sought = codec.code(key), index.sought
        at = bisect_left(sought, code)
        while at < len(sought) and sought[at] == code:
            yield int(index.ordinals[at])
            at += 1

    def _scanned(self, key: Key) -> Iterator[int]:
        codec = self.table_schema.codec
        parts: Sequence[object] = (key,) if len(codec.names) == 1 else key  # type: ignore[assignment]
        tests = [
            pc.field(name) == from_storage_values([part], kind)[0]
            for name, part, kind in zip(codec.names, parts, codec.user_types, strict=True)
        ]
        wanted = filter_of(functools.reduce(operator.and_, tests), self.table_schema.arrow)
        sent = None if wanted is None else wanted.prefilter({name: name for name in codec.names})
        for batch in self.table.scan(codec.names, prefilter=sent, indexed=True, positions=True):
            for offset, found in enumerate(codec.keys(batch)):
                if found == key:
                    yield batch.column(POSITION)[offset].as_py()

    def _rows_in_memory(self, misses: int = 1) -> Resident | None:
        """Return all rows as Arrow if they are there, or are worth it now and fit."""
        if self._resident is None and self._misses <= _MISSES_MIN:
            self._misses += misses
            if self._misses > _MISSES_MIN:
                with self._lock:
                    self._resident = self._resident or self._load()
        return self._resident

    @property
    def in_memory(self) -> Resident | None:
        """All rows as Arrow, if they are there."""
        return self._resident

    def hear_scan(self) -> Resident | None:
        """Return all rows if they are there; at the third scan of a statement they are read."""
        return self._rows_in_memory(_MISSES_A_SCAN)

    def _load(self, known: Mapping[PartId, ResidentPart] = MappingProxyType({})) -> Resident | None:
        """Read all parts that are not `known`; None: they do not fit."""
        left = self._index_bytes_max - self._taken()
        parts: dict[PartId, ResidentPart] = {}
        names = self.table_schema.arrow.names
        if self._is_far_above(left + sum(part.nbytes for part in known.values())):
            return None
        for part, span in zip(self.table.part_ids, self.table.spans, strict=True):
            if part in known:
                parts[part] = known[part]
                continue
            batches: list[pa.RecordBatch] = []
            for batch in self.table.scan(names, within=span, with_hidden=True):
                left -= batch.nbytes
                if left < 0:
                    return None
                batches.append(batch)
            fields = batches[0].schema if batches else self.table_schema.arrow
            whole = pa.Table.from_batches(batches, fields).combine_chunks()
            if any(column.num_chunks > 1 for column in whole.columns):
                return None  # texts of over 2 GiB do not fit into one array
            parts[part] = ResidentPart(whole)
        return Resident(parts) if self.rows else None

    def _is_far_above(self, nbytes: int) -> bool:
        """Say whether rows like the first ones need twice as much: then they are not even read."""
        if self._parts is None or not self.rows:
            return False
        first, end = next(span for span in self.table.spans if span[0] < span[1])
        few = (first, min(end, first + SAMPLED_ROWS))
        names = self.table_schema.arrow.names
        batches = [*self.table.scan(names, within=few, with_hidden=True)]
        found = sum(batch.nbytes for batch in batches)
        return found * self.rows > 2 * nbytes * (few[1] - few[0])

    def _uncovered_index(self) -> Run | None:
        """Return the codes of the rows that no run covers and their positions, if they fit."""
        if self._index is None and self._fits_index():
            with self._lock:
                if self._index is None:
                    self._index = self._by_scan(None)
        return self._index

    def _fits_index(self) -> bool:
        rows = sum(end - first for first, end in self.keys.uncovered.values())
        return rows * INDEX_ROW_BYTES + self._taken() <= self._index_bytes_max

    # ranges

    def stretches(self, first: int, last: int, *, descending: bool) -> list[Iterator[Stretch[Any]]]:
        """Return codes from `first` to `last`, in order, and the positions of their rows.

        Exact codes, and only if it `has_order`. Hidden rows are among them.
        """
        if not self.rows:
            return []
        found = self.keys.stretches(first, last, descending=descending)
        if self.keys.uncovered:
            index = self._uncovered_index()
            assert index is not None
            found.append(iter([index.between(first, last, descending=descending)]))
        return found

    def stretches_of_keys(
        self, first: bytes, end: bytes | None, *, descending: bool
    ) -> list[Iterator[Stretch[Any]]]:
        """Return keys from `first` to below `end`, in order, and the positions of their rows.

        Hashed codes, and only if it `has_order`. Hidden rows are among them.
        """
        return self.keys.stretches_of_keys(first, end, descending=descending) if self.rows else []

    @property
    def has_order(self) -> bool:
        """Whether its keys are found in order: all are in runs, or fit an index in memory."""
        if not self.rows:
            return True
        if not self.table_schema.codec.exact:
            return not self.keys.in_order.uncovered
        return not self.keys.uncovered or self._uncovered_index() is not None

    def values_in_order(self, column: str | None) -> OrderedValues | None:
        """Return the values of a column in order, none for None; None: no index has them so."""
        if not self.rows or column is None:
            return OrderedValues((), ())
        return self.table.search.values_in_order(column)

    def take_read(self, positions: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Return `take` for a read of a page: a number of these make rows stay near."""
        self._rows_in_memory(_MISSES_A_PAGE)
        if self._resident is None and self._filed is not None:
            found = self._filed.take(positions, names, may_make=self._may_make)
            return self.table.take(positions, names) if found is None else found
        return self.take(positions, names)

    # a fold

    def carry(self, old: Base) -> None:
        """Carry rows from the base before a fold; call it before anyone reads this.

        It reads the new parts alone. Without it the next readers would take rows one by one until
        they are resident again.
        """
        self._open_keys()
        _ = self.live  # it reads the files that hide rows
        if old.table_schema is not self.table_schema:
            return
        if old._resident is not None:
            self._resident = self._load(old._resident.by_id)
            # What does not fit next to the old rows may fit without them: then reads try again.
            self._misses = 0 if self._resident is None else old._misses
        self._before, self._before_bytes = old._cache, old._cached_bytes
        kept = {*old.table.part_ids}.intersection(self.table.part_ids)
        self._kept_parts = {part.number for part in kept}

    def file_as(self, old: Base) -> None:
        """Make files for new parts, if most rows of the base before a fold are in files.

        It reads the new parts alone; a merge asks for it, in any process.
        """
        before, now = old._filed, self._filed
        if before is not None and now is not None and before.share >= _FILED_SHARE:
            now.make()

    # shadows

    def positions(self, codes: Codes, keys: KeysAt) -> np.ndarray:
        """Return the positions, in no order, of the rows with one of some keys.

        Args:
            codes: The codes of the keys, ascending.
            keys: Returns the keys at some indices of `codes`; called only for hashed codes.
        """
        if not self.rows or not len(codes):
            return NOTHING
        needles, found = self.keys.find_many(codes)
        if self.keys.uncovered:
            index = self._uncovered_index() or self._by_scan(codes)
            more, places = index.find(codes)
            needles, found = np.append(needles, more), np.append(found, places)
        if self.hidden:
            kept = self.live.has(found)
            needles, found = needles[kept], found[kept]
        if self.table_schema.codec.exact or not len(found):
            return found
        order = np.argsort(found)  # each page of Lance is read once, not for each block of keys
        needles, found = needles[order], found[order]
        blocks = in_blocks(len(found))
        return np.concatenate([self._verified(found[at], keys(needles[at])) for at in blocks])

    def _verified(self, positions: np.ndarray, keys: KeyColumns) -> np.ndarray:
        """Return those of some positions, ascending, whose row has the key in its place."""
        codec = self.table_schema.codec
        stored = codec.columns(self.take(positions, list(codec.names)))
        return positions[same_keys(stored, keys)]

    def _by_scan(self, wanted: Codes | None) -> Run:
        """Return the index of the rows that no run covers; `wanted`: of those with these codes.

        It scans their keys once. A table of hashed bits keeps nearly all rows out of the exact
        search: that costs 110 ns a row for unsorted keys, the bits 5 ns.
        """
        codec = self.table_schema.codec
        bits = None if wanted is None else _bits(wanted)
        codes_found, positions_found = [NOTHING], [NOTHING]
        for span in self.keys.uncovered.values():
            start = span[0]
            for batch in self.table.scan(list(codec.names), within=span, with_hidden=True):
                codes = codec.codes(batch)
                rows = np.arange(len(codes))
                rows = rows if bits is None else rows[bits[_slots(codes)]]
                codes_found.append(codes[rows])
                positions_found.append(rows + start)
                start += batch.num_rows
        codes, positions = np.concatenate(codes_found), np.concatenate(positions_found)
        order = np.argsort(codes)
        return Run(codes[order], positions[order])


def _bits(wanted: Codes) -> np.ndarray:
    bits = np.zeros(1 << _FILTER_BITS, bool)
    bits[_slots(wanted)] = True
    return bits


def _variable_bytes(row: dict[str, object] | None) -> int:
    return sum([len(v) for v in row.values() if isinstance(v, _VARIABLE)]) if row else 0


def _slots(codes: Codes) -> np.ndarray:
    return (codes.view(np.uint64) * _MIX) >> np.uint64(64 - _FILTER_BITS)
