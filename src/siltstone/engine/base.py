"""Base: the merged rows of one keyed table, one pinned version, with what finds rows in it.

    key index    codes in ascending order and their positions: made at the first point read, if it
                 fits `index_bytes_max`; else a point read is a filtered scan
    positions    which rows of base the keys of a chunk shadow: found once per (pin, chunk)
    row cache    rows read by key, as dicts, at most `CACHED_ROWS_MAX`
    resident     all columns as Arrow, after `_MISSES_MIN` misses of the cache, if they fit the same
                 bound: a row then costs 3 us, taken from Lance 500

Nothing here ever changes an answer: a pin is immutable, the rest are memos of it.

Lock: one, held while the key index or positions are made, so that they are made once; reads of
what is there take none.
"""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.chunk import Chunk
from siltstone.engine.shape import Shape
from siltstone.formats.keys import Codes, Key, KeyCodec
from siltstone.formats.rows import from_storage_values, value_getter
from siltstone.storage.tables import POSITION, PinnedTable

CACHED_ROWS_MAX = 100_000
_CACHE_BYTES_MAX = 64 << 20
_ROW_BYTES_FLOOR = 400
_INDEX_ROW_BYTES = 16
_FILTER_BITS = 22
_SCANS_MAX = 4
_MISSES_MIN = 64
_SPARSE = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)
NOTHING = np.zeros(0, np.int64)


class Base:
    """One pinned base (see the module). `shape` is the schema that the base was written with."""

    def __init__(
        self,
        opened: Callable[[], PinnedTable],
        shape: Shape,
        *,
        rows: int,
        index_bytes_max: int,
        taken: Callable[[], int] = lambda: 0,
    ) -> None:
        """Open lazily: `opened` is asked once, at the first read; `rows` is the pin's count.

        `taken` says how many of the `index_bytes_max` all bases hold already. The row cache gets a
        quarter of them.
        """
        self._opened: Callable[[], PinnedTable] = functools.cache(opened)
        self.shape, self.rows = shape, rows
        self._index_bytes_max, self._taken = index_bytes_max, taken
        self._lock = threading.Lock()
        self._index: tuple[Codes, np.ndarray] | None = None
        self._scans = 0
        self._shadowed: weakref.WeakKeyDictionary[Chunk, np.ndarray] = weakref.WeakKeyDictionary()
        self._cache: dict[Key, dict[str, object] | None] = {}
        self._row_bytes = max(_ROW_BYTES_FLOOR, 120 * len(shape.names))
        cache_bytes_max = min(_CACHE_BYTES_MAX, index_bytes_max // 4)
        self._cached_max = min(CACHED_ROWS_MAX * self._row_bytes, cache_bytes_max)
        self._cached_bytes = 0
        self._misses = 0
        self._resident: _Resident | None = None

    @property
    def table(self) -> PinnedTable:
        """The pinned dataset."""
        return self._opened()

    @property
    def nbytes(self) -> int:
        """About how many bytes the key index, the cached positions and rows hold."""
        index = 0 if self._index is None else self._index[0].nbytes + self._index[1].nbytes
        index += self._cached_bytes + (0 if self._resident is None else self._resident.nbytes)
        return index + sum(array.nbytes for array in list(self._shadowed.values()))

    # point reads

    def find(self, key: Key) -> dict[str, object] | None:
        """Return the row of `key` as Python values by the names of `shape`, None if it has none."""
        cached = self._cache.get(key, self)
        if cached is not self:
            return cached  # type: ignore[return-value]
        row = self._find(key)
        if not self.shape.rows.is_packable:
            return row  # a nested value may be changed by whoever gets it
        size = self._row_bytes + _variable_bytes(row)
        if self._cached_bytes + size > self._cached_max:
            self._cache, self._cached_bytes = {}, 0  # drop all at once: no lock, bounded
        if size <= self._cached_max:
            self._cached_bytes += size
            self._cache[key] = row
        return row

    def _find(self, key: Key) -> dict[str, object] | None:
        if not self.rows:
            return None
        codec = self.shape.codec
        index = self._key_index()
        if index is None:
            return self._find_by_scan(key)
        codes, positions = index
        code = codec.code(key)
        low = int(codes.searchsorted(code))
        resident = self._rows_in_memory()
        while low < len(codes) and codes[low] == code:
            if resident is not None:
                found = resident.row(int(positions[low]))
                if codec.exact or resident.key(codec, int(positions[low])) == key:
                    return found
                low += 1
                continue
            rows = self.table.take(positions[low : low + 1], self.shape.arrow.names)
            if codec.exact or codec.keys(rows)[0] == key:
                return rows.to_pylist()[0]
            low += 1
        return None

    def _find_by_scan(self, key: Key) -> dict[str, object] | None:
        codec = self.shape.codec
        parts: Sequence[object] = (key,) if len(codec.names) == 1 else key  # type: ignore[assignment]
        tests = [
            pc.field(name) == from_storage_values([part], kind)[0]
            for name, part, kind in zip(codec.names, parts, codec.user_types, strict=True)
        ]
        wanted = functools.reduce(operator.and_, tests)
        for batch in self.table.scan(self.shape.arrow.names, prefilter=wanted):
            for offset, found in enumerate(codec.keys(batch)):
                if found == key:
                    return batch.slice(offset, 1).to_pylist()[0]
        return None

    def _rows_in_memory(self) -> _Resident | None:
        """Return all rows as Arrow if they are there, or are worth it now and fit."""
        if self._resident is None and self._misses <= _MISSES_MIN:
            self._misses += 1
            if self._misses > _MISSES_MIN and self.shape.rows.is_packable:
                with self._lock:
                    self._resident = self._resident or self._load()
        return self._resident

    def _load(self) -> _Resident | None:
        left = self._index_bytes_max - self._taken()
        batches: list[pa.RecordBatch] = []
        for batch in self.table.scan(self.shape.arrow.names):
            left -= batch.nbytes
            if left < 0:
                return None
            batches.append(batch)
        return _Resident(pa.Table.from_batches(batches).combine_chunks()) if batches else None

    def _key_index(self) -> tuple[Codes, np.ndarray] | None:
        if self._index is None and self._fits_index():
            with self._lock:
                if self._index is None:
                    self._index = self._make_index()
        return self._index

    def _fits_index(self) -> bool:
        wanted = self.rows * _INDEX_ROW_BYTES
        return wanted <= self._index_bytes_max and wanted + self._taken() <= self._index_bytes_max

    def _make_index(self) -> tuple[Codes, np.ndarray]:
        parts = [codes for _, codes in self._scan_codes()]
        codes = np.concatenate(parts) if parts else NOTHING
        if len(codes) > 1 and (codes[1:] >= codes[:-1]).all():
            return codes, np.arange(len(codes), dtype=np.int64)
        order = np.argsort(codes)
        return codes[order], order

    def _scan_codes(self) -> Iterator[tuple[pa.RecordBatch, Codes]]:
        codec = self.shape.codec
        for batch in self.table.scan(list(codec.names)):
            yield batch, codec.codes(batch)

    # shadows

    def shadowed(self, chunks: Sequence[Chunk], seq: int) -> np.ndarray:
        """Return the positions, ascending, whose keys the chunks write at a seq <= `seq`."""
        whole = [chunk for chunk in chunks if len(chunk.seqs) and int(chunk.seqs[-1]) <= seq]
        found = self._cached_positions(whole)
        for chunk in chunks:
            if len(chunk.seqs) and int(chunk.seqs[0]) <= seq < int(chunk.seqs[-1]):
                count = int(np.searchsorted(chunk.seqs, seq, "right"))
                found.append(self.positions([_prefix(chunk, count)])[0])
        return union(found, self.rows)

    def _cached_positions(self, chunks: Sequence[Chunk]) -> list[np.ndarray]:
        missing = [chunk for chunk in chunks if chunk not in self._shadowed]
        if missing:
            with self._lock:
                missing = [chunk for chunk in missing if chunk not in self._shadowed]
                for chunk, positions in zip(missing, self.positions(missing), strict=True):
                    self._shadowed[chunk] = positions
        return [self._shadowed[chunk] for chunk in chunks]

    def positions(self, chunks: Sequence[Chunk]) -> list[np.ndarray]:
        """Return for each chunk the positions in base of its keys, in no order."""
        if not chunks:
            return []
        if not self.rows:
            return [NOTHING for _ in chunks]
        codes = np.concatenate([chunk.codes for chunk in chunks])
        owners = np.repeat(np.arange(len(chunks)), [len(chunk.codes) for chunk in chunks])
        order = np.argsort(codes, kind="stable")
        codes, owners = codes[order], owners[order]
        self._scans += 1
        if self._index is None and self._scans > _SCANS_MAX and self._fits_index():
            self._index = self._make_index()
        if self._index is not None:
            needles, positions = self._by_index(codes)
        else:
            needles, positions = self._by_scan(codes)
        found = _by_owner(codes, owners, needles, positions, len(chunks))
        return found if self.shape.codec.exact else self._verified(chunks, found)

    def _by_index(self, wanted: Codes) -> tuple[Codes, np.ndarray]:
        codes, positions = self._index  # type: ignore[misc]
        unique = np.unique(wanted)
        low = codes.searchsorted(unique, "left")
        high = codes.searchsorted(unique, "right")
        counts = high - low
        starts = np.repeat(low - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        places = starts + np.arange(int(counts.sum()))
        return np.repeat(unique, counts), positions[places]

    def _by_scan(self, wanted: Codes) -> tuple[Codes, np.ndarray]:
        """Scan the keys of base once.

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
        return np.concatenate(codes_found), np.concatenate(positions_found)

    def _verified(self, chunks: Sequence[Chunk], found: list[np.ndarray]) -> list[np.ndarray]:
        """Keep the positions whose keys the chunk really has: a hashed code is only a filter."""
        every = np.unique(np.concatenate(found))
        if not len(every):
            return found
        codec = self.shape.codec
        taken = codec.keys(self.table.take(every, list(codec.names)))
        key_at = dict(zip(every.tolist(), taken, strict=True))
        kept: list[np.ndarray] = []
        for chunk, positions in zip(chunks, found, strict=True):
            own = set(chunk.keys(np.arange(len(chunk.codes)))) if len(positions) else set()
            real = (key_at[position] in own for position in positions.tolist())
            kept.append(positions[np.fromiter(real, bool, len(positions))])
        return kept


def _variable_bytes(row: dict[str, object] | None) -> int:
    return sum(len(v) for v in (row or {}).values() if isinstance(v, str | bytes))


class _Resident:
    """All rows of a base as Arrow, by position. Immutable."""

    __slots__ = ("_getters", "_table", "nbytes")

    def __init__(self, table: pa.Table) -> None:
        self._table, self.nbytes = table, table.nbytes
        self._getters = {
            name: value_getter(cast("pa.Array", table.column(name).chunk(0)))
            for name in table.schema.names
        }

    def row(self, position: int) -> dict[str, object]:
        """Return one row as Python values."""
        return {name: get(position) for name, get in self._getters.items()}

    def key(self, codec: KeyCodec, position: int) -> Key:
        """Return one row's key, as a storage value."""
        return codec.keys(self._table.slice(position, 1))[0]


def _prefix(chunk: Chunk, count: int) -> Chunk:
    return Chunk(
        chunk.start,
        chunk.batch.slice(0, count),
        chunk.shape,
        chunk.codes[:count],
        chunk.seqs[:count],
        chunk.ops[:count],
    )


def _slots(codes: Codes) -> np.ndarray:
    return (codes.view(np.uint64) * _MIX) >> np.uint64(64 - _FILTER_BITS)


def _by_owner(
    codes: Codes, owners: np.ndarray, needles: Codes, positions: np.ndarray, count: int
) -> list[np.ndarray]:
    """Share out hits (code, position) among the chunks that hold the code; `codes` ascends."""
    low = codes.searchsorted(needles, "left")
    counts = codes.searchsorted(needles, "right") - low
    starts = (
        np.repeat(low - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        if len(low)
        else NOTHING
    )
    places = starts + np.arange(int(counts.sum())) if len(low) else NOTHING
    found_owner, found = owners[places], np.repeat(positions, counts)
    return [found[found_owner == index] for index in range(count)]


def union(found: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Return all positions, ascending, each once: by a bit per row where they are many."""
    found = [positions for positions in found if len(positions)]
    if not found:
        return NOTHING
    if sum(len(positions) for positions in found) < rows // _SPARSE:
        return np.unique(np.concatenate(found))
    bits = np.zeros(rows, bool)
    for positions in found:
        bits[positions] = True
    return np.flatnonzero(bits)


def keep_mask(shadowed: np.ndarray, rows: int) -> pa.BooleanArray:
    """Return for each of `rows` whether it is not shadowed, as Arrow bits to slice per batch."""
    bits = np.ones(rows, bool)
    bits[shadowed] = False
    return pa.array(bits)


def batches_kept(
    batches: Iterable[pa.RecordBatch], shadowed: np.ndarray, mask: pa.BooleanArray
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, which come in row order and whole, without the shadowed rows.

    `mask` is `keep_mask(shadowed, rows)`.
    """
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        low, high = shadowed.searchsorted((start, end))
        yield batch if low == high else batch.filter(mask.slice(start, batch.num_rows))
        start = end


def batches_kept_by_position(
    batches: Iterable[pa.RecordBatch], shadowed: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, which carry their rows' positions, without the shadowed rows."""
    for batch in batches:
        positions = batch.column(POSITION).to_numpy()
        place = np.minimum(shadowed.searchsorted(positions), max(len(shadowed) - 1, 0))
        hit = shadowed[place] == positions if len(shadowed) else np.zeros(len(positions), bool)
        kept = batch.drop_columns([POSITION])
        yield kept.filter(pa.array(~hit)) if hit.any() else kept
