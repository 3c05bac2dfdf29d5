"""Read union: the rows of one keyed table at one seq, out of every level that holds some.

    newest of   own writes  >  active up to S > sealed, newest first > history not merged > base
    minus       tombstones

Levels above base are `Source`s in seq order; each is in the union exactly once. Base batches stream
through with the shadowed rows dropped, then come the newest live rows of the sources. Filters and
columns reach Lance, but Arrow decides: every row is filtered again, in every level alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from siltstone.engine.base import Base, batches_kept, batches_kept_by_position, keep_mask, union
from siltstone.engine.chunk import Chunk, Newest, batch_of, keys_at
from siltstone.engine.filtering import Filter
from siltstone.engine.memtable import Found
from siltstone.engine.shape import Shape
from siltstone.formats.keys import Key

EVERYTHING = 1 << 62
_REMEMBERED_MAX = 256
Row = dict[str, object]


class Source(Protocol):
    """A level above base: row versions of one table over some seqs."""

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...

    def find(self, key: Key, seq: int) -> Found | None: ...

    def newest(self, seq: int) -> Newest: ...

    def rows_at(
        self, newest: Newest, ordinals: np.ndarray, shape: Shape, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]: ...

    def chunks_upto(self, seq: int) -> Iterable[Chunk]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """What a read lays over base: live rows per source, and the base rows they shadow."""

    live: tuple[tuple[Source, Newest, np.ndarray], ...]
    shadowed: np.ndarray
    masks: list[pa.BooleanArray] = field(default_factory=list)

    def mask(self, rows: int) -> pa.BooleanArray:
        """Return for each of the `rows` of base whether it is not shadowed; made once."""
        if not self.masks:
            self.masks.append(keep_mask(self.shadowed, rows))
        return self.masks[0]

    @property
    def rows(self) -> int:
        """How many live rows the sources give."""
        return sum(len(ordinals) for _, _, ordinals in self.live)


class KeyedReader:
    """Reads of one keyed table at one seq, as `shape` shows it. Immutable but for a memo."""

    __slots__ = ("_overlay", "base", "lease", "own", "rows", "seq", "shape", "sources")

    def __init__(
        self,
        shape: Shape,
        sources: Sequence[Source],
        base: Base | None,
        seq: int,
        own: Source | None = None,
        lease: object = None,
    ) -> None:
        """Read `sources` (oldest first) up to `seq` over `base`; `own` is read whole, on top.

        `lease` keeps the files of all that is read for as long as this, or a scan of it, lives.
        """
        self.shape, self.base, self.seq, self.own = shape, base, seq, own
        self.lease = lease
        self.sources = tuple(sources)
        self._overlay: Overlay | None = None
        self.rows: dict[Key, Row | None] | None = None

    def remembering(self, own: Source | None = None) -> KeyedReader:
        """Return the same reader for one transaction: with `own` on top, and a memo of rows read.

        What a transaction read before it writes it is asked for twice, and never changes.
        """
        reader = KeyedReader(self.shape, self.sources, self.base, self.seq, own, self.lease)
        if self.shape.rows.is_packable:  # nested values are shared by copies of a row
            reader.rows = {} if self.rows is None else self.rows
        return reader

    def get(self, key: Key) -> Row | None:
        """Return the row of `key`, None if it has none."""
        if self.own is not None:
            found = self.own.find(key, EVERYTHING)
            if found is not None:
                return self._shown(found)
        rows = self.rows
        if rows is None:
            return self._get(key)
        if key not in rows and len(rows) < _REMEMBERED_MAX:
            rows[key] = self._get(key)
        row = rows[key] if key in rows else self._get(key)
        return None if row is None else dict(row)

    def _get(self, key: Key) -> Row | None:
        for source in reversed(self.sources):
            found = source.find(key, self.seq)
            if found is not None:
                return self._shown(found)
        if self.base is None:
            return None
        row = self.base.find(key)
        return None if row is None else self.shape.align_row(row, self.base.shape)

    def _shown(self, found: Found) -> Row | None:
        return None if found.row is None else self.shape.align_row(found.row, found.shape)

    def _levels(self) -> list[tuple[Source, int]]:
        own = [] if self.own is None else [(self.own, EVERYTHING)]
        return [*((source, self.seq) for source in self.sources), *own]

    def overlay(self) -> Overlay:
        """Return what lies over base; kept, unless own writes may still come."""
        if self._overlay is not None:
            return self._overlay
        levels = [(source, source.newest(seq)) for source, seq in self._levels()]
        levels = [(source, newest) for source, newest in levels if len(newest.codes)]
        live = tuple(
            (source, newest, ordinals)
            for source, newest, ordinals in _unshadowed(levels, self.shape)
            if len(ordinals)
        )
        shadowed = np.zeros(0, np.int64)
        if self.base is not None and levels:
            found = [
                self.base.shadowed(newest.chunks, EVERYTHING if newest.seq is None else newest.seq)
                for _, newest in levels
            ]
            shadowed = union(found, self.base.rows)
        overlay = Overlay(live, shadowed)
        if self.own is None:
            self._overlay = overlay
        return overlay

    def count(self) -> int:
        """Return how many rows there are."""
        overlay = self.overlay()
        base = 0 if self.base is None else self.base.rows
        return base - len(overlay.shadowed) + overlay.rows

    def scan(
        self, columns: Sequence[str] | None = None, wanted: Filter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows that `wanted` keeps, with `columns` of the shape."""
        shown = list(self.shape.arrow.names if columns is None else columns)
        read = shown + ([n for n in sorted(wanted.columns) if n not in shown] if wanted else [])
        overlay = self.overlay()
        for batch in self._scan_levels(overlay, read, wanted):
            kept = wanted.keep(batch) if wanted else batch
            if kept.num_rows:
                yield kept if len(read) == len(shown) else kept.select(shown)

    def _scan_levels(
        self, overlay: Overlay, read: list[str], wanted: Filter | None
    ) -> Iterator[pa.RecordBatch]:
        if self.base is not None and self.base.rows:
            yield from self._scan_base(self.base, overlay, read, wanted)
        for source, newest, ordinals in overlay.live:
            yield from source.rows_at(newest, ordinals, self.shape, read)

    def _scan_base(
        self, base: Base, overlay: Overlay, read: list[str], wanted: Filter | None
    ) -> Iterator[pa.RecordBatch]:
        ids = {column.name: column.id for column in self.shape.schema.columns}
        stored = {n: base.shape.names[ids[n]] for n in read if ids[n] in base.shape.names}
        prefilter = wanted.prefilter(stored) if wanted else None
        shadowed = overlay.shadowed
        batches = base.table.scan(
            list(stored.values()),
            prefilter=prefilter,
            positions=prefilter is not None and len(shadowed) > 0,
        )
        if len(shadowed):
            if prefilter is None:
                batches = batches_kept(batches, shadowed, overlay.mask(base.rows))
            else:
                batches = batches_kept_by_position(batches, shadowed)
        fields = self.shape.fields(read)
        for batch in batches:
            if batch.schema.equals(fields):
                yield batch
            else:
                yield batch_of(self.shape.align(batch, base.shape, read), fields, batch.num_rows)

    def first_existing(self, chunk: Chunk) -> Key | None:
        """Return a key of `chunk` that lives already, None if none does."""
        overlay = self.overlay()
        for _, newest, ordinals in overlay.live:
            codes = newest.codes[np.isin(newest.ordinals, ordinals)]
            for hit in np.flatnonzero(np.isin(chunk.codes, codes)).tolist():
                key = chunk.key_at(hit)
                if self.shape.codec.exact or self.get(key) is not None:
                    return key
        if self.base is None or not self.base.rows:
            return None
        positions = np.setdiff1d(self.base.positions([chunk])[0], overlay.shadowed)
        if not len(positions):
            return None
        names = list(self.base.shape.codec.names)
        return self.base.shape.codec.keys(self.base.table.take(positions[:1], names))[0]

    def many(self, keys: Sequence[Key]) -> pa.Table:
        """Return the rows of the keys that have one, in the order of `keys`."""
        rows = [row for row in map(self.get, keys) if row is not None]
        return pa.Table.from_pylist(rows, schema=self.shape.arrow)


def _unshadowed(
    levels: Sequence[tuple[Source, Newest]], shape: Shape
) -> list[tuple[Source, Newest, np.ndarray]]:
    """Return for each level, oldest first, the ordinals of live rows that no later one hides."""
    found: list[tuple[Source, Newest, np.ndarray]] = []
    seen: list[Newest] = []
    for source, newest in reversed(levels):
        hidden = np.zeros(len(newest.codes), bool)
        for later in seen:
            hidden |= _hidden(newest, later, is_exact=shape.codec.exact)
        ordinals = np.sort(newest.ordinals[newest.is_live & ~hidden])
        found.append((source, newest, ordinals))
        seen.append(newest)
    return found[::-1]


def _hidden(newest: Newest, later: Newest, *, is_exact: bool) -> np.ndarray:
    """Say for each key of `newest` whether `later` has it too; equal hashed codes are verified."""
    place = np.minimum(later.codes.searchsorted(newest.codes), len(later.codes) - 1)
    hit = later.codes[place] == newest.codes
    if is_exact or not hit.any():
        return hit
    keys = keys_at(newest.chunks, newest.ordinals[hit])
    others = keys_at(later.chunks, later.ordinals[place[hit]])
    if keys != others:  # two keys share a code: ask for each among all keys of the later level
        every = set(keys_at(later.chunks, later.ordinals))
        hit[hit] = [key in every for key in keys]
    return hit
