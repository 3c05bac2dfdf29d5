"""Base: the merged rows of one keyed table, one pinned version, with indexes to find rows.

    key index    codes in ascending order and their positions: built at the first point read, if it
                 fits `index_bytes_max`; else a point read is a scan with a filter, through the key
                 index that an optimize builds
    row cache    rows read by key, as dicts, at most `CACHED_ROWS_MAX`
    resident     all columns as Arrow, after `_MISSES_MIN` misses of the cache, if they fit the same
                 bound: a row then costs 3 us, taken from Lance 500

After a fold the next base gets the index, the resident rows and the cache of this one (`carry`).

None of these changes a result: a pin is immutable, the rest are caches of it.

Lock: one, held while the key index or positions are built, so that they are built once; later reads
take no lock.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.levels.chunk import NOTHING, Run, merge_runs
from siltstone.engine.levels.resident import PartId, Resident, ResidentPart
from siltstone.formats.bits import Bits, all_of
from siltstone.formats.keys import Codes, Key
from siltstone.formats.rows import from_storage_values
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION

CACHED_ROWS_MAX = 100_000
_CACHE_BYTES_MAX = 64 << 20
_ROW_BYTES_FLOOR = 400
INDEX_ROW_BYTES = 16
_FILTER_BITS = 22
_SCANS_MAX = 4
_MISSES_MIN = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Base:
    """One pinned base, written with `table_schema` (see the module)."""

    def __init__(
        self,
        opened: Callable[[], PinnedTable],
        table_schema: TableSchema,
        *,
        rows: int,
        hidden: int,
        index_bytes_max: int,
        taken: Callable[[], int] = lambda: 0,
    ) -> None:
        """Open lazily: `opened` is asked once, at the first read; `rows` counts its positions.

        `hidden` of them are hidden rows: replaced or deleted, and still in the files.

        `taken` says how many of the `index_bytes_max` all bases hold already. The row cache gets a
        quarter of them.
        """
        self._opened: Callable[[], PinnedTable] = functools.cache(opened)
        self.table_schema, self.rows, self._hidden = table_schema, rows, hidden
        self._index_bytes_max, self._taken = index_bytes_max, taken
        self._lock = threading.Lock()
        self._index: Run | None = None
        self._scans = 0
        self._cache: dict[Key, dict[str, object] | None] = {}
        self._row_bytes = max(_ROW_BYTES_FLOOR, 120 * len(table_schema.names))
        cache_bytes_max = min(_CACHE_BYTES_MAX, index_bytes_max // 4)
        self._cached_max = min(CACHED_ROWS_MAX * self._row_bytes, cache_bytes_max)
        self._cached_bytes = 0
        self._before: dict[Key, dict[str, object] | None] = {}
        self._before_bytes, self._changed = 0, NOTHING
        self._misses = 0
        self._resident: Resident | None = None

    @property
    def table(self) -> PinnedTable:
        """The pinned dataset."""
        return self._opened()

    @property
    def live(self) -> Bits:
        """The positions of its rows, without the hidden ones."""
        return self.table.live if self._hidden else all_of(self.rows)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of the key index, the resident rows and the cached rows."""
        index = 0 if self._index is None else self._index.nbytes
        resident = 0 if self._resident is None else self._resident.nbytes
        before = self._before_bytes + self._changed.nbytes
        return index + resident + self._cached_bytes + before

    # point reads

    def find(self, key: Key) -> dict[str, object] | None:
        """Return the row of `key` as Python values by the names of `table_schema`, or None."""
        cached = self._cache.get(key, self)
        if cached is not self:
            return cached  # type: ignore[return-value]
        row = self._find(key) if self._is_unknown(key) else self._before[key]
        if not self.table_schema.rows.is_packable:
            return row  # a nested value may be changed by whoever gets it
        size = self._row_bytes + _variable_bytes(row)
        if self._cached_bytes + size > self._cached_max:
            self._cache, self._cached_bytes = {}, 0  # drop all at once: no lock, bounded
        if size <= self._cached_max:
            self._cached_bytes += size
            self._cache[key] = row
        return row

    def _is_unknown(self, key: Key) -> bool:
        """Say whether the base before the last fold does not tell what the row of a key is."""
        return key not in self._before or _holds(self._changed, self.table_schema.codec.code(key))

    def _find(self, key: Key) -> dict[str, object] | None:
        if not self.rows:
            return None
        codec = self.table_schema.codec
        index = self._key_index()
        if index is None:
            return self._find_by_scan(key)
        codes, positions = index.codes, index.ordinals
        code = codec.code(key)
        low = int(codes.searchsorted(code))
        resident = self._rows_in_memory()
        while low < len(codes) and codes[low] == code:
            position = int(positions[low])
            low += 1
            if self._hidden and not self.table.live.has_one(position):
                continue  # the live row of the key, if there is one, is another match
            if resident is not None:
                found = resident.row(position)
                if codec.exact or resident.key(codec, position) == key:
                    return found
                continue
            rows = self.table.take(np.array([position]), self.table_schema.arrow.names)
            if codec.exact or codec.keys(rows)[0] == key:
                return rows.to_pylist()[0]
        return None

    def _find_by_scan(self, key: Key) -> dict[str, object] | None:
        codec = self.table_schema.codec
        parts: Sequence[object] = (key,) if len(codec.names) == 1 else key  # type: ignore[assignment]
        tests = [
            pc.field(name) == from_storage_values([part], kind)[0]
            for name, part, kind in zip(codec.names, parts, codec.user_types, strict=True)
        ]
        wanted = filter_of(functools.reduce(operator.and_, tests), self.table_schema.arrow)
        sent = None if wanted is None else wanted.prefilter({name: name for name in codec.names})
        for batch in self.table.scan(self.table_schema.arrow.names, prefilter=sent, indexed=True):
            for offset, found in enumerate(codec.keys(batch)):
                if found == key:
                    return batch.slice(offset, 1).to_pylist()[0]
        return None

    def _rows_in_memory(self) -> Resident | None:
        """Return all rows as Arrow if they are there, or are worth it now and fit."""
        if self._resident is None and self._misses <= _MISSES_MIN:
            self._misses += 1
            if self._misses > _MISSES_MIN and self.table_schema.rows.is_packable:
                with self._lock:
                    self._resident = self._resident or self._load()
        return self._resident

    def _load(self, known: Mapping[PartId, ResidentPart] = MappingProxyType({})) -> Resident | None:
        """Read all parts that are not `known`; None: they do not fit."""
        left = self._index_bytes_max - self._taken()
        parts: dict[PartId, ResidentPart] = {}
        names = self.table_schema.arrow.names
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
            parts[part] = ResidentPart(pa.Table.from_batches(batches, self._fields(batches)))
        return Resident(parts) if self.rows else None

    def _fields(self, batches: Sequence[pa.RecordBatch]) -> pa.Schema:
        return batches[0].schema if batches else self.table_schema.arrow

    def _key_index(self) -> Run | None:
        if self._index is None and self._fits_index():
            with self._lock:
                if self._index is None:
                    self._index = self._make_index()
        return self._index

    def _fits_index(self, held: int = 0) -> bool:
        """Say whether an index fits, in the place of one that has `held` bytes."""
        wanted, bound = self.rows * INDEX_ROW_BYTES, self._index_bytes_max
        return wanted <= bound and wanted + self._taken() - held <= bound

    def _make_index(self) -> Run:
        parts = [codes for _, codes in self._scan_codes()]
        codes = np.concatenate(parts) if parts else NOTHING
        if len(codes) > 1 and (codes[1:] >= codes[:-1]).all():
            return Run(codes, np.arange(len(codes), dtype=np.int64))
        order = np.argsort(codes)
        return Run(codes[order], order)

    def _scan_codes(
        self, within: tuple[int, int] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Codes]]:
        codec = self.table_schema.codec
        for batch in self.table.scan(list(codec.names), within=within, with_hidden=True):
            yield batch, codec.codes(batch)

    # a fold

    def carry(self, old: Base) -> None:
        """Carry what finds rows from the base before a fold; call it before anyone reads this.

        It reads the new parts alone. Without it the next reader would read all keys, and take
        rows one by one until they are resident again.
        """
        if old._index is None or not self._fits_index(held=old._index.nbytes):
            return
        places = dict(zip(old.table.part_ids, old.table.spans, strict=True))
        moves: list[tuple[tuple[int, int], int]] = []
        fresh: list[Run] = []
        for part, span in zip(self.table.part_ids, self.table.spans, strict=True):
            if part in places:
                moves.append((places[part], span[0] - places[part][0]))
            else:
                codes = np.concatenate([NOTHING, *(c for _, c in self._scan_codes(span))])
                order = np.argsort(codes, kind="stable")
                fresh.append(Run(codes[order], order + span[0]))
        index, stays = _moved(old._index, moves)
        self._index, self._scans = merge_runs([index, *fresh]), old._scans
        if old.table_schema is not self.table_schema:
            return
        if old._resident is not None:
            self._resident = self._load(old._resident.by_id)
            # What does not fit beside the old rows may fit without them: then reads try again.
            self._misses = 0 if self._resident is None else old._misses
        if not old._cache:
            return
        gone = ~stays
        if self._hidden:
            gone[stays] = ~self.live.has(index.ordinals) & old.live.has(old._index.ordinals[stays])
        self._before, self._before_bytes = old._cache, old._cached_bytes
        self._changed = np.sort(np.concatenate([old._index.codes[gone], *(f.codes for f in fresh)]))

    # shadows

    def positions(self, codes: Codes, keys: Callable[[np.ndarray], list[Key]]) -> np.ndarray:
        """Return the positions, in no order, of the rows with one of some keys.

        Args:
            codes: The codes of the keys, ascending.
            keys: Returns the keys at some indices of `codes`; called only for equal hashed codes.
        """
        if not self.rows or not len(codes):
            return NOTHING
        self._scans += 1
        index = self._key_index() if self._scans > _SCANS_MAX else self._index
        needles, found = (index or self._by_scan(codes)).find(codes)
        if self.table_schema.codec.exact or not len(found):
            return found
        every, back = np.unique(found, return_inverse=True)
        codec = self.table_schema.codec
        stored = codec.keys(self.table.take(every, list(codec.names)))
        pairs = zip(back.tolist(), keys(needles), strict=True)
        return found[np.array([stored[place] == key for place, key in pairs], bool)]

    def _by_scan(self, wanted: Codes) -> Run:
        """Return the index of those rows of base whose codes are wanted; scans its keys once.

        A table of hashed bits keeps nearly all rows out of the exact search: that costs 110 ns a
        row for unsorted keys, the bits 5 ns.
        """
        bits = np.zeros(1 << _FILTER_BITS, bool)
        bits[_slots(wanted)] = True
        codes_found, positions_found, start = [NOTHING], [NOTHING], 0
        for batch, codes in self._scan_codes():
            candidates = np.flatnonzero(bits[_slots(codes)])
            if len(candidates):
                some = codes[candidates]
                place = np.minimum(wanted.searchsorted(some), len(wanted) - 1)
                hit = wanted[place] == some
                codes_found.append(some[hit])
                positions_found.append(candidates[hit] + start)
            start += batch.num_rows
        codes, positions = np.concatenate(codes_found), np.concatenate(positions_found)
        order = np.argsort(codes)
        return Run(codes[order], positions[order])


def _moved(index: Run, moves: Sequence[tuple[tuple[int, int], int]]) -> tuple[Run, np.ndarray]:
    """Return an index of the parts that stay, and which of its entries these are.

    `moves` are the old spans of those parts, and by how much they move.
    """
    spans = sorted(moves)
    starts = np.array([first for (first, _), _ in spans] or [0], np.int64)
    ends = np.array([end for (_, end), _ in spans] or [0], np.int64)
    shifts = np.array([shift for _, shift in spans] or [0], np.int64)
    at = np.maximum(starts.searchsorted(index.ordinals, side="right") - 1, 0)
    stays = (index.ordinals >= starts[at]) & (index.ordinals < ends[at])
    if stays.all() and not shifts.any():
        return index, stays
    return Run(index.codes[stays], (index.ordinals + shifts[at])[stays]), stays


def _holds(codes: Codes, code: int) -> bool:
    at = int(codes.searchsorted(code))
    return at < len(codes) and bool(codes[at] == code)


def _variable_bytes(row: dict[str, object] | None) -> int:
    return sum(len(v) for v in (row or {}).values() if isinstance(v, str | bytes))


def _slots(codes: Codes) -> np.ndarray:
    return (codes.view(np.uint64) * _MIX) >> np.uint64(64 - _FILTER_BITS)


def batches_kept(
    batches: Iterable[pa.RecordBatch], kept: pa.BooleanArray
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a bit in `kept`; the batches are complete and in row order."""
    start = 0
    for batch in batches:
        if start + batch.num_rows > len(kept):  # rows beyond those asked for
            batch = batch.slice(0, len(kept) - start)  # noqa: PLW2901
        mask = kept.slice(start, batch.num_rows)
        start += batch.num_rows
        count = mask.true_count
        if count:
            yield batch if count == batch.num_rows else batch.filter(mask)


def batches_kept_by_position(
    batches: Iterable[pa.RecordBatch], kept: Bits
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a bit in `kept`, from batches with a column of positions."""
    for batch in batches:
        has = kept.has(batch.column(POSITION).to_numpy())
        rest = batch.drop_columns([POSITION])
        yield rest if has.all() else rest.filter(pa.array(has))
