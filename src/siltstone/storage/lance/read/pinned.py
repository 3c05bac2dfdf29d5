"""Pinned table: reads of one version of one Lance dataset, through a handle opened at its pin.

Positions are those of its `LanceVersion`.
No lock: nothing changes after construction but memos, and those only from absent to present.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import CorruptionError, RequestError
from siltstone.formats.bits import Bits
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.types import blobs
from siltstone.process import deadline
from siltstone.process.shares import LanceShares
from siltstone.storage.lance.files.errors import OffsetOverflow, is_overflow, is_panic
from siltstone.storage.lance.files.parts import Part
from siltstone.storage.lance.files.point_reads import PointReads
from siltstone.storage.lance.read.pinned_search import LanceSearch
from siltstone.storage.lance.read.version import LanceVersion
from siltstone.storage.tables import staging
from siltstone.storage.tables.values import POSITION, WORN_RATIO, PartId, Segment, Span
from siltstone.units import require

_ADDRESS = "_rowaddr"
_BATCH_ROWS_MIN, _BATCH_ROWS_MAX = 64, 262_144
_COMPRESSION = 4
_SESSIONS_MAX, _SESSION_ROWS_MAX = 2, 256
"""Of rows of so many parts, and so many, each part's are taken by its session."""
# How far a scan runs ahead of its reader; the bytes are a share of the memory (`shares`). At a URL
# they alone are the bound: with two parts a scan had 4 requests under way where Lance has 19.
_BATCHES_AHEAD, _PARTS_AHEAD, _PARTS_AHEAD_FAR = 4, 2, 64
# Of a filter that finds nothing Lance gives no batch before the end. So a scan that must have ended
# by then is done in pieces, each of so many bytes of files (a part at least): a second, or less.
PIECE_BYTES = 256 << 20
_POSITION_FIELD = pa.field(POSITION, pa.int64(), nullable=False)


class LancePinned:
    """See `tables.PinnedTable`.

    Args:
        version: The version, as it was opened.
        shares: How far a scan reads ahead, and how large its batches are.
    """

    def __init__(self, version: LanceVersion, *, shares: LanceShares) -> None:
        self.version, self.dataset, self.pin = version, version.dataset, version.pin
        self.schema, self.hidden, self.rows = version.schema, version.hidden, version.rows
        self.parts, self.fragments = version.parts, version.fragments
        self._batch_bytes = shares.batch
        is_far = version.data.reach is not None
        self._ahead = {
            "batch_readahead": _BATCHES_AHEAD,
            "fragment_readahead": _PARTS_AHEAD_FAR if is_far else _PARTS_AHEAD,
            "io_buffer_size": shares.read_ahead_far if is_far else shares.read_ahead,
        }
        self._is_reordered = any(part.start != part.lance_start for part in self.parts)
        self._points = PointReads(version.data.sessions, self.fragments)
        self._sampled: dict[str, pa.ChunkedArray[Any]] = {}
        self._blobs = blobs.names_of(self.schema)

    @property
    def part_ids(self) -> list[PartId]:
        """See `tables.PinnedTable.part_ids`: the id of the fragment, the names of its files."""
        hiding = [self.hidden.path_of(part.number) for part in self.parts]
        pairs = zip(self.parts, hiding, strict=True)
        return [PartId(p.number, tuple(x for x in p.paths if x != own)) for p, own in pairs]

    @property
    def live(self) -> Bits:
        """See `tables.PinnedTable.live`."""
        return self.version.live

    @property
    def spans(self) -> list[tuple[int, int]]:
        """See `tables.PinnedTable.spans`."""
        return self.version.spans

    @property
    def worn(self) -> list[tuple[int, int]]:
        """See `tables.PinnedTable.worn`."""
        worn = [p for p in self.parts if p.rows and p.stored - p.rows >= WORN_RATIO * p.stored]
        return [part.span for part in worn]

    @property
    def segments(self) -> list[Segment]:
        """See `tables.PinnedTable.segments`."""
        return self.version.segments

    def check_again(self, within: tuple[int, int]) -> None:
        """See `tables.PinnedTable.check_again`."""
        self.version.check_again(part for part in self.parts if part.is_within(within))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        prefilter: str | pc.Expression | None = None,
        seqs: tuple[int, int] | None = None,
        positions: bool = False,
        limit: int | None = None,
        within: tuple[int, int] | None = None,
        indexed: bool = False,
        with_hidden: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """See `tables.PinnedTable.scan`; wrong columns are refused here, not at the first batch."""
        if self.pin.hidden and not with_hidden:
            return self._scan_live(
                columns, positions, limit, prefilter=prefilter, within=within, indexed=indexed
            )
        self.version.know(columns)
        wanted = range(len(self.parts)) if seqs is None else self._within(*seqs)
        offset: int | None = None
        if within is not None:
            around = [i for i in wanted if self.parts[i].is_around(within)]
            if around:
                offset, rows = within[0] - self.parts[around[0]].start, within[1] - within[0]
                limit, prefilter = min(rows, rows if limit is None else limit), None
            wanted = around or [i for i in wanted if self.parts[i].is_within(within)]
        self.version.check(wanted)
        is_whole = prefilter is None and offset is None and len(wanted) == len(self.parts)
        addresses = positions and not is_whole
        is_indexed = prefilter is not None and indexed and self.version.has_sound_indexes
        options: dict[str, Any] = {
            "columns": None if columns is None else list(columns),
            "filter": prefilter,
            "use_scalar_index": is_indexed,
            "limit": limit,
            "offset": offset,
            "scan_in_order": True,
            "with_row_address": addresses,
            **self._as_bytes,
            **self._ahead,
        }
        batches = self._batches(wanted, options)
        if not positions:
            return batches
        return self._positioned(batches) if addresses else self._counted(batches)

    def _scan_live(
        self, columns: Sequence[str] | None, positions: bool, limit: int | None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Scan without the hidden rows."""
        names = self.schema.names if columns is None else columns
        batches = self.scan(names, positions=True, with_hidden=True, **options)
        return self._seen(batches, positions, limit)

    def _seen(
        self, batches: Iterator[pa.RecordBatch], positions: bool, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        left = self.rows if limit is None else limit
        for batch in batches:
            is_live = self.live.has(batch.column(POSITION).to_numpy())
            kept = batch if is_live.all() else batch.filter(pa.array(is_live))
            kept = kept.slice(0, left)
            left -= kept.num_rows
            if kept.num_rows:
                yield kept if positions else kept.drop_columns([POSITION])
            if not left:
                return

    def sample(self, columns: Sequence[str]) -> pa.Table:
        """See `tables.PinnedTable.sample`."""
        missing = [name for name in columns if name not in self._sampled]
        if missing:
            some = staging.spread(self.rows)
            found = self.take(some[self.live.has(some)] if self.pin.hidden else some, missing)
            self._sampled.update(zip(missing, found.columns, strict=True))
        return pa.table([self._sampled[name] for name in columns], names=list(columns))

    def take(self, positions: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """See `tables.PinnedTable.take`."""
        wanted = np.asarray(positions, dtype=np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self.rows:
            raise RequestError(f"positions {wanted.min()}..{wanted.max()} of {self.rows} rows")
        self.version.know(columns)
        names = self.schema.names if columns is None else list(columns)
        if not names:
            return pa.table({"_": pa.nulls(len(wanted))}).select([])
        if not len(wanted):
            return pa.schema([self.schema.field(name) for name in names]).empty_table()
        if len(wanted) == 1 and self._blobs.isdisjoint(names):
            return self._taken_one(int(wanted[0]), names)
        held = self._holding(wanted)
        self.version.check(held)
        if self._are_for_sessions(wanted, held, names):
            return self._taken_few(wanted, held.tolist(), names)
        # Lance is asked in ascending order, each row once: it reads every page once.
        unique, back = np.unique(self._lance_offsets(wanted), return_inverse=True)
        with self.version.data.reading(self.pin.folder):
            table = self._taken(unique, names)
        ascending = len(unique) == len(wanted) and bool((back[1:] > back[:-1]).all())
        return table if ascending else table.take(pa.array(back, pa.int64()))

    def _are_for_sessions(self, wanted: np.ndarray, held: np.ndarray, names: list[str]) -> bool:
        """Say whether rows are few, side by side as a rule, and of whole parts: as a key range."""
        if len(held) > _SESSIONS_MAX or len(wanted) > _SESSION_ROWS_MAX:
            return False
        is_whole = all(self.parts[at].rows == self.parts[at].stored for at in held.tolist())
        return is_whole and self._blobs.isdisjoint(names) and bool((np.diff(wanted) > 0).all())

    def _taken_few(self, wanted: np.ndarray, held: list[int], names: list[str]) -> pa.Table:
        """Return ascending rows of some parts; a session takes half of what a take does."""
        found: list[pa.Table] = []
        with self.version.data.reading(self.pin.folder):
            for index in held:
                first, end = self.parts[index].span
                low, high = wanted.searchsorted((first, end)).tolist()
                found.append(self._points.take(index, (wanted[low:high] - first).tolist(), names))
        return found[0] if len(found) == 1 else pa.concat_tables(found)

    def _taken_one(self, position: int, names: list[str]) -> pa.Table:
        index = bisect_right(self._first_positions, position) - 1
        part = self.parts[index]
        self.version.check((index,))
        with self.version.data.reading(self.pin.folder):
            if part.rows == part.stored:
                return self._points.take(index, [position - part.start], names)
            # Another client deleted rows: only the dataset counts the live ones alone.
            return self.dataset.take([position - part.start + part.lance_start], columns=names)

    def _taken(self, offsets: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Return rows where Lance counts them; of blobs it takes their places alone."""
        if self._blobs.isdisjoint(names):
            return self._taken_whole(offsets, list(names))
        others = [name for name in names if name not in self._blobs]
        found = self._taken_whole(offsets, others) if others else None
        columns: list[Any] = []
        for name in names:
            if name in others and found is not None:
                columns.append(found.column(name))
            else:
                values = self.dataset.read_blobs(name, indices=offsets.tolist())
                columns.append(pa.array([value for _, value in values], pa.large_binary()))
        return pa.table(columns, schema=pa.schema([self.schema.field(name) for name in names]))

    def _taken_whole(self, offsets: np.ndarray, names: list[str]) -> pa.Table:
        """Return rows; in halves if they are more bytes than Arrow counts in one batch."""
        try:
            return self.dataset.take(offsets, columns=names)
        except Exception as error:
            if len(offsets) == 1 or not is_overflow(error):
                raise
        middle = len(offsets) // 2
        halves = [self._taken_whole(some, names) for some in np.split(offsets, [middle])]
        return pa.concat_tables(halves)

    @property
    def _as_bytes(self) -> dict[str, Any]:
        """What makes a scan read blobs as bytes: else Lance gives their places in the files."""
        return {"blob_handling": "all_binary"} if self._blobs else {}

    def _holding(self, positions: np.ndarray) -> np.ndarray:
        """Return the indexes, into `parts`, of the fragments that hold these rows; ascending."""
        held = np.searchsorted(self._starts, positions, side="right") - 1
        return np.flatnonzero(np.bincount(held))

    def _lance_offsets(self, positions: np.ndarray) -> np.ndarray:
        """Return where Lance counts the rows at `positions`."""
        if not self._is_reordered:
            return positions
        index = np.searchsorted(self._starts, positions, side="right") - 1
        shift = np.array([part.lance_start - part.start for part in self.parts], dtype=np.int64)
        return positions + shift[index]

    def fragment_of(self, part: Part, *, is_checked: bool = False) -> Any:
        """Return Lance's handle of a part; `is_checked`: after a check of its files.

        Raises:
            CorruptionError: A file is damaged.
        """
        index = self.parts.index(part)
        if is_checked:
            self.version.check([index])
        return self.fragments[index]

    def surviving(self, parts: Iterable[int], dropped: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, all columns, except those at `dropped` (ascending)."""
        for index in parts:
            part = self.parts[index]
            gone = np.searchsorted(dropped, part.span)
            if gone[1] - gone[0] == part.rows:
                continue
            self.version.check([index])
            options = {"fragments": [self.fragments[index]], "scan_in_order": True, "filter": None}
            start = part.start
            for batch in self._stream({**options, **self._as_bytes, **self._ahead}):
                low, high = np.searchsorted(dropped, [start, start + batch.num_rows])
                keep = np.ones(batch.num_rows, dtype=bool)
                keep[dropped[low:high] - start] = False
                start += batch.num_rows
                yield batch if low == high else batch.filter(pa.array(keep))
            if start != part.span[1]:
                raise CorruptionError(
                    self.version.where, None, f"fragment {part.number} lacks rows"
                )

    @cached_property
    def _batch_rows(self) -> int:
        """Return how many rows a batch has: many, as each costs 10 us, but bounded in bytes.

        Of 10 M rows a narrow scan in batches of Lance's default 8,192 takes 28 ms, of 65,536 16 ms;
        and while a thread writes, each batch waits for the interpreter's lock.
        """
        stored = sum(file.size for file in self.files.values())
        row_bytes = _COMPRESSION * stored // max(1, self.rows)
        least = 1 if self._blobs else _BATCH_ROWS_MIN
        return max(least, min(_BATCH_ROWS_MAX, self._batch_bytes // max(1, row_bytes)))

    @property
    def files(self) -> dict[str, InventoryFile]:
        """The data files of the pin by their paths."""
        return self.version.files

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.array([part.start for part in self.parts], dtype=np.int64)

    @cached_property
    def _first_positions(self) -> list[int]:
        """The same for one search at a time, which keeps the interpreter lock."""
        return [part.start for part in self.parts]

    def _within(self, low: int, high: int) -> list[int]:
        """Return the fragments that may hold a row with low < _seq <= high."""
        return [
            index
            for index, part in enumerate(self.parts)
            if all(self.files[path].may_hold(low, high) for path in part.paths)
        ]

    def _batches(self, wanted: Sequence[int], options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Return the batches of a scan of parts; a filter is looked at here."""
        if len(wanted) < len(self.parts) or self._is_reordered:
            options["fragments"] = [self.fragments[index] for index in wanted]
        with self.version.data.reading(self.pin.folder):
            self.dataset.scanner(**options)
        if not wanted:
            return iter(())
        if deadline.is_set() and options["filter"] is not None and not options["use_scalar_index"]:
            return self._in_pieces(wanted, options)
        return self._stream(options)

    def _in_pieces(
        self, wanted: Iterable[int], options: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a scan of parts, and look at the deadline between any two pieces."""
        left = options["limit"]
        for piece in gathered(wanted, self._bytes_of, PIECE_BYTES):
            deadline.check()
            fragments = [self.fragments[index] for index in piece]
            for batch in self._stream(options | {"fragments": fragments, "limit": left}):
                left = None if left is None else left - batch.num_rows
                yield batch
            if left == 0:
                return

    def _bytes_of(self, index: int) -> int:
        return sum(self.files[path].size for path in self.parts[index].paths)

    def _stream(self, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a scan; smaller ones if Arrow cannot count the bytes of one.

        `_batch_rows` is made of the stored sizes, and texts may be stored on a thousandth.
        """
        given = 0
        while True:
            try:
                for batch in self._read(options, given):
                    given += batch.num_rows
                    yield batch
            except OffsetOverflow:
                if self._batch_rows == 1:
                    raise
                self._batch_rows = max(1, self._batch_rows // 16)
            else:
                return

    def _read(self, options: dict[str, Any], skipped: int) -> Iterator[pa.RecordBatch]:
        # One block around all batches: entering one for each costs a tenth of a narrow scan. What
        # the consumer raises does not come through here.
        wanted = options["filter"]
        with self.version.data.reading(self.pin.folder):
            scanner = self.dataset.scanner(**options, batch_size=self._batch_rows)
            reader = scanner.to_reader() if wanted is None else self._filtered(scanner, wanted)
            try:
                for batch in deadline.checked(reader):
                    if skipped < batch.num_rows:
                        yield batch.slice(skipped) if skipped else batch
                    skipped = max(0, skipped - batch.num_rows)
            finally:
                reader.close()

    def _filtered(self, scanner: Any, wanted: object) -> Any:
        """Start a scan. If Lance cannot plan its filter, even without an index, say so.

        It says of such a filter what it says of damage.
        """
        try:
            return scanner.to_reader()
        except BaseException as error:
            if not (isinstance(error, Exception) or is_panic(error)) or self._takes(wanted):
                raise
            raise RequestError(
                f"{self.version.where}: Lance does not accept the filter"
                f" {str(wanted)[:200]!r}: {error}"
            ) from error

    def _takes(self, wanted: object) -> bool:
        try:
            self.dataset.scanner(filter=wanted, use_scalar_index=False).to_reader().close()
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            return False
        return True

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add the positions of a scan that gives every row: half the cost of row addresses."""
        start = 0
        for batch in batches:
            end = start + batch.num_rows
            yield batch.append_column(_POSITION_FIELD, pa.array(np.arange(start, end)))
            start = end

    def _positioned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index(_ADDRESS)
            address = batch.column(at).to_numpy(zero_copy_only=False).view(np.int64)
            position = pa.array(self.version.addresses.positions(address))
            yield batch.remove_column(at).append_column(_POSITION_FIELD, position)

    @property
    def search(self) -> LanceSearch:
        """See `tables.PinnedTable.search`."""
        return self._search

    @cached_property
    def _search(self) -> LanceSearch:
        return LanceSearch(self.version, self)


def parts_with(table: LancePinned, spans: Iterable[Span]) -> list[Part]:
    """Return the parts with these spans, which the version must have."""
    wanted = set(spans)
    parts = [part for part in table.parts if part.span in wanted]
    require(len(parts) == len(wanted), f"{sorted(wanted)} are not all parts of {table.pin.path}")
    return parts
