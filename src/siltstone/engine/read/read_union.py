"""Read union: the rows of one keyed table at one seq, from all levels with rows.

    newest of   own writes  >  active up to S > sealed, newest first > history not merged > base
    minus       tombstones

Levels above base are `Source`s in seq order; each is in the union exactly once. Base batches stream
through without their shadowed rows; then follow the newest live rows of the sources. Filters and
columns are pushed down to Lance, but Arrow decides: it filters every row again, in every level.

A filter that names a few keys (`named_keys`), or a short range of them (`key_span`), is no scan:
the rows of those keys are looked up, and then filtered.

Many keys are looked up together where base is cold: a row of it that is in no memory costs hundreds
of microseconds if Lance takes it by itself, and a tenth of that among a thousand others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from siltstone.engine.filter.filters import Filter
from siltstone.engine.filter.named_keys import keys_named
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import Chunk, batch_of
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.kept_batches import batches_kept, batches_kept_by_position
from siltstone.engine.levels.memtable import Found
from siltstone.engine.levels.overlay import Overlay, overlay_of, parts_with_rows
from siltstone.engine.levels.own_rows import OwnRows
from siltstone.engine.order.column_order import ByColumn, ColumnOrder, has_order
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.ordered_rows import OrderedRead, Page, columns_with
from siltstone.engine.read.image_scan import image_for
from siltstone.engine.read.index_use import indexed_columns, prefilter_of
from siltstone.engine.read.read_levels import ReadLevels
from siltstone.errors import RequestError
from siltstone.formats.keys import Key, KeyColumns
from siltstone.process import deadline

EVERYTHING = 1 << 62
KEYS_MAX = 1_024
"""A filter that names more keys is a scan."""
_AS_ROWS_MAX, _COLD_AS_ROWS_MAX = 16_384, 4_096
"""More rows are looked up as columns, which is faster then; from 4,096 on if none is in memory."""
_TOGETHER_MAX = 1_024
_ONE_BY_ONE_MAX = 16
"""So many keys are looked up as rows, and more by their codes: rows may be wide."""
_FEW_KEYS, _ROWS_PER_KEY = 16, 2_048
_MANY_ROWS = 65_536
_FEW_ROWS, _RESIDENT_ROWS_PER_KEY, _CODES_SHARE = 64, 64, 4
"""A range with more rows is a scan; where only their number is asked, one of a share of base."""
_WHOLE_ROW_COLUMNS_MAX = 64
_REMEMBERED_MAX = 256
Row = dict[str, object]
_UNREAD: Row = {}
Order: TypeAlias = KeyRange | ByColumn


class KeyedReader:
    """Reads of one keyed table at one seq, as its schema shows it. Immutable but for memos.

    It reads the sources up to `seq` over base; `own` is read whole, on top.
    """

    __slots__ = (
        "__weakref__",
        "_overlay",
        "_rows",
        "base",
        "levels",
        "own",
        "seq",
        "sources",
        "table_schema",
        "texts",
    )

    def __init__(self, levels: ReadLevels, seq: int, own: OwnRows | None = None) -> None:
        self.levels, self.seq, self.own = levels, seq, own
        self.table_schema, self.sources = levels.table_schema, levels.sources
        self.base, self.texts = levels.base, levels.texts
        self._rows: dict[Key, Row | None] | None = None
        self._overlay: Overlay | None = None

    def at(self, seq: int) -> KeyedReader:
        """Return a reader of the same levels at another seq; each of them has all up to it."""
        return KeyedReader(self.levels, seq)

    def remembering(self, own: OwnRows | None, seq: int) -> KeyedReader:
        """Return the same reader for a transaction at `seq`: with `own`, and a cache of rows read.

        A transaction often reads a row again before it writes it, and the row never changes.
        """
        reader = KeyedReader(self.levels, seq, own)
        if self.table_schema.rows.is_packable:  # nested values are shared by copies of a row
            reader._rows = {} if self._rows is None else self._rows
        return reader

    def get(self, key: Key) -> Row | None:
        """Return the row of `key`, None if it has none.

        Raises:
            RequestError: Python has no value for one in the row.
        """
        try:
            return self.found(key)
        except OverflowError as error:
            raise beyond_python(key, error) from error

    def row_at(self, key: Key, seq: int) -> Row | None:
        """Return the row of `key` at a seq from this one's on, of the same view; no own writes.

        Raises:
            OverflowError: See `beyond_python`.
        """
        for source in reversed(self.sources):
            found = source.find(key, seq)
            if found is not None:
                row = found.row  # made for us alone
                if row is None or found.table_schema is self.table_schema:
                    return row
                return self.table_schema.align_row(row, found.table_schema)
        base = self.base
        row = None if base is None else base.find(key)
        if row is None or base is None:
            return None
        return self.table_schema.align_row(row, base.table_schema)

    def is_at_hand(self, key: Key) -> bool:
        """Say whether `row_at`, or `found`, would answer out of memory."""
        if any(type(each) is HistoryRun and not each.is_at_hand for each in self.sources):
            return False
        return self.base is None or self.base.is_at_hand(key)

    def found(self, key: Key) -> Row | None:
        """Return the row of `key`, own writes included, for the caller alone; None if it has none.

        Raises:
            OverflowError: See `beyond_python`.
        """
        if self.own is not None:
            found = self.own.find(key)
            if found is not None:
                return self._shown(found)
        rows = self._rows
        if rows is None:
            return self.row_at(key, self.seq)
        row = rows.get(key, _UNREAD)
        if row is _UNREAD:
            row = self.row_at(key, self.seq)
            if len(rows) < _REMEMBERED_MAX:
                rows[key] = row
        return None if row is None else dict(row)

    def _shown(self, found: Found) -> Row | None:
        if found.row is None:
            return None
        return self.table_schema.align_row(found.row, found.table_schema)

    def overlay(self) -> Overlay:
        """Return the overlay over base; cached, unless own writes may still change it."""
        if self._overlay is not None:
            return self._overlay
        found = [(source, source.parts(self.seq)) for source in self.sources]
        codec = self.table_schema.codec
        visibility = self.levels.kept.at(
            self.seq, codec, self.base, parts_with_rows(found), bytes_left=self.levels.bytes_left
        )
        if self.own is not None:
            own = self.own.whole()
            found.append((own, own.parts(EVERYTHING)))
            visibility = visibility.at(EVERYTHING, codec, parts_with_rows(found))
        overlay = overlay_of(found, visibility)
        if self.own is None:
            self._overlay = overlay
        return overlay

    def count(self) -> int:
        """Return the number of rows."""
        overlay = self.overlay()
        return overlay.visible.true_count + overlay.rows

    def scan(
        self,
        columns: Sequence[str] | None = None,
        wanted: Filter | None = None,
        *,
        in_any_order: bool = False,
        from_memory: bool = False,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows that `wanted` keeps, with `columns` of the schema.

        Two scans of a reader have the same order, unless one of them may be `in_any_order`.
        `from_memory`: base is read out of memory if it is there, and no index finds the rows; a
        small one always is.
        `limit`: the caller takes no more rows than that; more may come.
        """
        shown = list(self.table_schema.arrow.names if columns is None else columns)
        found = None if wanted is None else self.by_key(shown, wanted)
        if found is not None:
            yield from deadline.checked(found)
            return
        read = columns_with(wanted, shown)
        image = None
        # No image has own writes, and an index is faster.
        if in_any_order and self.own is None and not (wanted and self._by_index(read, wanted)):
            image = image_for(self.levels, self.seq, read, self.scan)
        if image is not None:
            numbers = [self.table_schema.ids[name] for name in read]
            batches = image.batches(numbers, self.table_schema.fields(read))
        else:
            most = None if wanted else limit
            batches = self._scan_levels(read, wanted, most, from_memory=from_memory)
        yield from _kept(deadline.checked(batches), shown, wanted)

    def in_order(
        self,
        order: Order,
        page: Page,
        columns: Sequence[str] | None = None,
        wanted: Filter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a page that `wanted` keeps: of a key range, or all by a column."""
        shown = list(self.table_schema.arrow.names if columns is None else columns)
        read = self._ordered(shown, wanted)
        if isinstance(order, ByColumn):
            return ColumnOrder(read, order).batches(page)
        return read.batches(order, page)

    @property
    def ordered_columns(self) -> tuple[str, ...]:
        """The columns, besides the key, by which rows may be read: those with a btree."""
        columns = self.table_schema.schema.columns
        valued = [column.name for column in columns if column.id in self.levels.valued]
        arrow = self.table_schema.arrow
        return tuple(name for name in valued if has_order(arrow.field(name).type))

    def has_order_of(self, column: str) -> bool:
        """Say whether a column is one of `ordered_columns`, and an index has its order."""
        base = self.base
        if column not in self.ordered_columns or base is None:
            return column in self.ordered_columns
        if self.table_schema.is_unlike(column, base.table_schema):
            return False
        (stored,) = self.table_schema.stored([column], base.table_schema)
        return base.values_in_order(stored) is not None

    @property
    def ordered_key(self) -> tuple[str, ...]:
        """The names of the key columns, if rows are found in their order; else none."""
        return self.table_schema.codec.names if self._ordered((), None).has_order else ()

    def _ordered(self, shown: Sequence[str], wanted: Filter | None) -> OrderedRead:
        doors = self.overlay, self.scan, self.looked_up
        return OrderedRead(self.table_schema, self.base, *doors, shown, wanted)

    def by_key(self, shown: list[str], wanted: Filter) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of a filter that names few keys, or a short range of them; else None.

        A scan with the filter would give the same rows.
        """
        keys = self._named(wanted)
        if keys is not None:
            return _kept(self._rows_of(keys, columns_with(wanted, shown)), shown, wanted)
        base = self.base
        if base is None or not base.rows:
            return None  # no scan is long
        share = _ROWS_PER_KEY if not base.resident_parts else _RESIDENT_ROWS_PER_KEY
        at_most = max(_FEW_ROWS, base.rows // share) if shown else base.rows // _CODES_SHARE
        return self._ordered(shown, wanted).few(at_most)

    def _named(self, wanted: Filter) -> Sequence[Key] | None:
        """Return the keys that a filter names, if to look them up costs less than a scan."""
        base = self.base
        rows = 0 if base is None else base.rows
        at_most = min(KEYS_MAX, max(_FEW_KEYS, rows // _ROWS_PER_KEY))
        keys = keys_named(wanted.push, self.table_schema.codec.names, at_most)
        if keys is None or (base is not None and not base.has_all_keys):
            return None
        return keys

    def _rows_of(self, keys: Sequence[Key], read: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some keys, and maybe others."""
        names = self.table_schema.names
        is_narrow = len(names) <= _WHOLE_ROW_COLUMNS_MAX
        if len(keys) == 1 and is_narrow and self.table_schema.rows.is_packable:
            return iter(self.many(keys).select(read).to_batches())
        return self.looked_up(keys, read)

    def found_by(self) -> frozenset[str] | None:
        """Return the columns by which rows are found if all are in memory: keys and indexed ones.

        None: rows of base are on disk, or all rows are few. Filters of other columns cost less if
        the reader of all rows evaluates them.
        """
        base, indexed = self.base, set[str]()
        rows = sum(source.rows for source in self.sources)
        if base is not None and base.rows:
            if base.in_memory is None:
                return None
            rows, indexed = rows + base.rows, indexed_columns(base.table)
        if rows < _MANY_ROWS:
            return None
        stored = {} if base is None else self._alike(base, self.table_schema.arrow.names)
        found = {name for name, there in stored.items() if there in indexed}
        return frozenset({*found, *self.table_schema.codec.names})

    def _scan_levels(
        self, read: list[str], wanted: Filter | None, limit: int | None, *, from_memory: bool
    ) -> Iterator[pa.RecordBatch]:
        overlay = self.overlay()
        if self.base is not None and self.base.rows:
            from_memory = from_memory or self.base.rows <= _MANY_ROWS
            found = self._in_memory(self.base, overlay, read, wanted) if from_memory else None
            yield from found or self._scan_base(self.base, overlay, read, wanted, limit)
        for source, parts, kept, _ in overlay.levels:
            yield from source.rows_kept(parts, kept, self.table_schema, read)

    def _stored(self, base: Base, read: list[str]) -> dict[str, str]:
        """Return the names that columns have in base, by their names here; without those added."""
        known = zip(read, self.table_schema.stored(read, base.table_schema), strict=True)
        return {name: found for name, found in known if found is not None}

    def _alike(self, base: Base, read: list[str]) -> dict[str, str]:
        """Return `_stored` without the columns that base has in another type: Lance knows that."""
        return self.table_schema.alike(read, base.table_schema)

    def _by_index(self, read: list[str], wanted: Filter) -> bool:
        """Say whether an index of base finds the few rows of a filter: faster than any scan."""
        base = self.base
        return base is not None and prefilter_of(base.table, wanted, self._alike(base, read))[1]

    def _in_memory(
        self, base: Base, overlay: Overlay, read: list[str], wanted: Filter | None
    ) -> Iterator[pa.RecordBatch] | None:
        """Return the visible rows of base out of memory; None: they are not there, or not best."""
        if wanted is not None and self._by_index(read, wanted):
            return None
        resident = base.hear_scan()
        if resident is None:
            return None
        batches = resident.batches([*self._stored(base, read).values()])
        if overlay.visible.true_count < base.rows:
            batches = batches_kept(batches, overlay.visible)
        return self._aligned(batches, base, read)

    def _scan_base(
        self,
        base: Base,
        overlay: Overlay,
        read: list[str],
        wanted: Filter | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        stored = self._stored(base, read)
        alike = self._alike(base, read)
        prefilter, indexed = prefilter_of(base.table, wanted, alike) if wanted else (None, False)
        shadowed = base.rows - overlay.visible.true_count
        batches = base.table.scan(
            list(stored.values()),
            prefilter=prefilter,
            positions=prefilter is not None and bool(shadowed),
            # The shadowed rows may all come first.
            limit=None if limit is None else min(limit + shadowed, base.rows),
            indexed=indexed,
            with_hidden=True,
        )
        if shadowed:
            if prefilter is None:
                batches = batches_kept(batches, overlay.visible)
            else:
                batches = batches_kept_by_position(batches, overlay.visibility.visible)
        return self._aligned(batches, base, read)

    def _aligned(
        self, batches: Iterable[pa.RecordBatch], base: Base, read: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of base with the columns `read`."""
        fields = self.table_schema.fields(read)
        for batch in batches:
            if batch.schema.equals(fields):
                yield batch
            else:
                yield batch_of(
                    self.table_schema.align(batch, base.table_schema, read), fields, batch.num_rows
                )

    def first_existing(self, chunk: Chunk) -> Key | None:
        """Return a key of `chunk` that exists already, None if none does."""
        visibility = self.overlay().visibility
        order = np.argsort(chunk.codes)
        codes = chunk.codes[order]
        for needle in visibility.find(codes)[0].tolist():
            key = chunk.key_at(int(order[needle]))
            if self.table_schema.codec.exact or self.get(key) is not None:
                return key
        if self.base is None or not self.base.rows:
            return None
        positions = self.base.positions(codes, lambda at: chunk.keys(order[at]))
        positions = positions[visibility.visible.has(positions)]
        if not len(positions):
            return None
        names = list(self.base.table_schema.codec.names)
        return self.base.table_schema.codec.keys(self.base.take(positions[:1], names))[0]

    def many(self, keys: Sequence[Key]) -> pa.Table:
        """Return the rows of the keys that have one, in the order of `keys`."""
        if self.table_schema.rows.has_nanosecond_times or len(keys) > self._as_rows_max:
            return self._as_arrow(keys)
        rows: list[Row] = []
        try:
            for start in range(0, len(keys), _TOGETHER_MAX):
                some = keys[start : start + _TOGETHER_MAX]
                together = self._together(some)
                found = (together.get(key) or self.found(key) for key in some)
                rows += [row for row in found if row is not None]
            return pa.Table.from_pylist(rows, schema=self.table_schema.arrow)
        except (OverflowError, ValueError, NotImplementedError):
            # Beyond Python; nanoseconds without pandas; a tensor whose axes change places.
            return self._as_arrow(keys)

    @property
    def _as_rows_max(self) -> int:
        is_cold = self.base is not None and not self.base.resident_parts
        return _COLD_AS_ROWS_MAX if is_cold else _AS_ROWS_MAX

    def rows_that_live(self, keys: Sequence[Key]) -> int:
        """Return how many of some keys, each given once, have a row."""
        if len(keys) <= _ONE_BY_ONE_MAX:
            try:
                return sum(self.found(key) is not None for key in keys)
            except (OverflowError, ValueError):  # as in `many`
                pass
        codec, wanted = self.table_schema.codec, set(keys)
        batches = self.looked_up(keys, list(codec.names))
        return sum(key in wanted for batch in batches for key in codec.keys(batch))

    def _together(self, keys: Sequence[Key]) -> Mapping[Key, Row]:
        """Return the rows of base that are in no memory, of the keys that have none above it."""
        base = self.base
        if base is None or len(keys) == 1 or base.resident_parts:
            return {}
        own, at = self.own, self.seq
        above = keys if own is None else [key for key in keys if own.find(key) is None]
        left = [key for key in above if all(s.find(key, at) is None for s in self.sources)]
        shown = self.table_schema
        found = base.find_many(left).items()
        return {key: shown.align_row(row, base.table_schema) for key, row in found}

    def _as_arrow(self, keys: Sequence[Key]) -> pa.Table:
        """See `many`: for rows that would not be the same as Python values."""
        codec, schema = self.table_schema.codec, self.table_schema.arrow
        rows = pa.Table.from_batches(self.looked_up(keys, schema.names), schema)
        places = {key: place for place, key in enumerate(codec.keys(rows))}
        found = [places[key] for key in keys if key in places]
        try:
            return rows.take(pa.array(found, pa.int64()))
        except pa.ArrowInvalid:  # more than 2 GiB of texts, which Arrow takes as one array
            return pa.concat_tables([rows.slice(0, 0), *(rows.slice(at, 1) for at in found)])

    def looked_up(self, keys: Sequence[Key], read: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some keys, and of others with the same codes, as a scan does."""
        overlay, base = self.overlay(), self.base
        visibility, codec = overlay.visibility, self.table_schema.codec
        codes = codec.codes_of(keys)
        order = np.argsort(codes)
        codes = codes[order]

        def columns_at(at: np.ndarray) -> KeyColumns:
            return codec.columns(codec.batch([keys[i] for i in order[at].tolist()]))

        if base is not None and base.rows:
            found = base.positions(codes, columns_at)
            found = np.sort(found[visibility.visible.has(found)])
            stored = self._stored(base, read)
            if len(found):
                rows = base.take(found, list(stored.values()))
                yield from self._aligned(rows.combine_chunks().to_batches(), base, read)
        places = visibility.find(codes)[1]
        for level in overlay.levels:
            ordinals = np.unique(level.ordinals_of(places))
            if len(ordinals):
                yield from level.source.rows_at(level.parts, ordinals, self.table_schema, read)


def _kept(
    batches: Iterable[pa.RecordBatch], shown: list[str], wanted: Filter | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a filter keeps, with some of their columns."""
    for batch in batches:
        kept = wanted.keep(batch) if wanted else batch
        if kept.num_rows:
            yield kept if len(kept.schema) == len(shown) else kept.select(shown)


def beyond_python(key: Key, error: OverflowError) -> RequestError:
    """Return the error for a row with a value that Python has no form for."""
    return RequestError(
        f"the row {key!r:.80} has a value beyond those of Python ({error}); read it with get_many"
        " or scan, which return Arrow data"
    )
