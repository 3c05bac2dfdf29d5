"""Image: some narrow columns of all rows of one table at one seq, in memory.

    slots    rows, numbered from 0 in the order in which their keys came
    runs     the sorted codes of the keys, each with its slot; a key keeps its slot, even if it is
             deleted meanwhile
    blocks   the values of `BLOCK_ROWS` slots each, column by column; and which slots live

An image is what an ordinary scan at its seq returns, in another order, so where its rows lie (base,
history, memtables) does not matter to it. The image of a later seq follows from it and the row
versions since: they are scattered over copies of the blocks that they touch. All values are
immutable: a reader gets the arrays of the blocks themselves.

Only tables with exact codes (see `formats.keys`) have images: other codes would have to be compared
by keys, which an image does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.levels.chunk import Chunk, Run, batch_of, codes_of, merge_runs, run_of, tier
from siltstone.engine.levels.load_keys import no_keys
from siltstone.formats.keys import Codes, KeyCodec, newest_rows
from siltstone.formats.log.group import UPSERT
from siltstone.formats.types.widening import in_type
from siltstone.units import require

_NO_INITIALS: Mapping[int, pa.Array] = {}

BLOCK_ROWS = 65_536
SLOTS_MAX = 1 << 31
_WIDTH_MAX = 16
_DEAD_SHARE_MAX = 0.125
_DEAD_MIN = 4096


def is_narrow(kind: pa.DataType) -> bool:
    """Return whether values of a type have a fixed width of at most 16 bytes."""
    is_plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return (is_plain or pa.types.is_fixed_size_binary(kind)) and 0 < kind.bit_width <= (
        8 * _WIDTH_MAX
    )


class Cells(msgspec.Struct, frozen=True, eq=False):
    """The values of one column, as numbers or bytes of its width; `valid`: None if none is null."""

    values: np.ndarray
    valid: np.ndarray | None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)

    def chosen(self, places: np.ndarray) -> Cells:
        """Return a copy of the cells at some places, or of those with a bit."""
        return Cells(self.values[places], None if self.valid is None else self.valid[places])

    def cut(self, span: slice) -> Cells:
        """Return a copy of adjacent cells."""
        valid = None if self.valid is None else self.valid[span].copy()
        return Cells(self.values[span].copy(), valid)

    def written(self, count: int, places: np.ndarray, new: Cells) -> Cells:
        """Return a copy with `count` cells, of which those at `places` are `new`.

        Others have read these cells: they are never changed.
        """
        values = _grown(self.values, count)
        values[places] = new.values
        if self.valid is None and new.valid is None:
            return Cells(values, None)
        valid = _grown(_all_valid(self), count)
        valid[places] = _all_valid(new)
        return Cells(values, None if valid.all() else valid)

    def array(self, kind: pa.DataType) -> pa.Array:
        """Return the cells as Arrow; without a copy, but for bools."""
        values = (
            np.packbits(self.values, bitorder="little")
            if pa.types.is_boolean(kind)
            else self.values
        )
        valid = None if self.valid is None else np.packbits(self.valid, bitorder="little")
        buffers = [None if valid is None else _buffer(valid), _buffer(values)]
        return pa.Array.from_buffers(kind, len(self.values), buffers)


def _buffer(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(values.view(np.uint8).data)


def cells_of(array: pa.Array) -> Cells:
    """Return an array of a narrow type as cells; they share its memory."""
    kind, count = array.type, len(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    data = array.buffers()[1]
    if data is None or not count:
        return Cells(np.zeros(count, _dtype(kind)), valid)
    width = _dtype(kind).itemsize
    values = np.frombuffer(cast("Any", data), _dtype(kind), count, array.offset * width)
    return Cells(values, valid)


class Block(msgspec.Struct, frozen=True, eq=False):
    """The cells of `count` slots, column by column; `live`: None if all of them live."""

    count: int
    columns: tuple[Cells, ...]
    live: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        lives = 0 if self.live is None else self.live.nbytes
        return sum(cells.nbytes for cells in self.columns) + lives

    @property
    def rows(self) -> int:
        """The number of live slots."""
        return self.count if self.live is None else int(np.count_nonzero(self.live))

    def written(
        self, count: int, places: np.ndarray, new: Sequence[Cells], gone: np.ndarray
    ) -> Block:
        """Return the block with `new` cells at `places`, and without the rows at `gone`."""
        pairs = zip(self.columns, new, strict=True)
        columns = tuple(old.written(count, places, cells) for old, cells in pairs)
        if self.live is None and not len(gone):
            return Block(count, columns)
        live = _grown(np.ones(self.count, bool) if self.live is None else self.live, count)
        live[places] = True
        live[gone] = False
        return Block(count, columns, None if live.all() else live)


class Image(msgspec.Struct, frozen=True, eq=False):
    """See the module. `kinds` are the types of its columns by their ids, in the order of cells."""

    seq: int
    kinds: Mapping[int, pa.DataType]
    runs: tuple[Run, ...]
    blocks: tuple[Block, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(each.nbytes for each in (*self.runs, *self.blocks))

    @property
    def slots(self) -> int:
        """The number of slots."""
        return sum(block.count for block in self.blocks)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(block.rows for block in self.blocks)

    def at(
        self,
        seq: int,
        codec: KeyCodec,
        added: Sequence[Chunk],
        initials: Mapping[int, pa.Array] = _NO_INITIALS,
    ) -> Image:
        """Return the image at `seq`; `added` are all row versions since, in seq order.

        `initials`: the values of columns in rows from before they were added, by their ids.
        """
        require(seq >= self.seq, f"an image at seq {self.seq} does not show seq {seq}")
        if not added:
            return Image(seq, self.kinds, self.runs, self.blocks)
        codes, ops = codes_of(added), np.concatenate([chunk.ops for chunk in added])
        newest = newest_rows(codec, codes, no_keys)
        is_upsert = ops[newest] == UPSERT
        slots, run = self._slots_for(codes[newest], is_upsert)
        upserts = newest[is_upsert]
        nulls = {number: pa.nulls(1, cast("Any", kind)) for number, kind in self.kinds.items()}
        cells = [
            _added(added, number, in_type(initials.get(number, null), null.type)).chosen(upserts)
            for number, null in nulls.items()
        ]
        gone = slots[~is_upsert]
        blocks = self._scattered(slots[is_upsert], cells, gone[gone >= 0])
        runs = _tiered((*self.runs, run)) if len(run.codes) else self.runs
        found = Image(seq, self.kinds, runs, blocks)
        return found.compacted() if found.is_sparse else found

    def _slots_for(self, codes: Codes, is_upsert: np.ndarray) -> tuple[np.ndarray, Run]:
        """Return the slots of some keys, -1 for a deleted one that has none; and the new slots."""
        slots = np.full(len(codes), -1, np.int64)
        for run in self.runs:  # a key is in one of them at most
            needles, found = run.find(codes)
            slots[needles] = found
        fresh = np.flatnonzero((slots < 0) & is_upsert)
        first = self.slots
        require(first + len(fresh) < SLOTS_MAX, "an image has too many slots")
        slots[fresh] = np.arange(first, first + len(fresh))
        return slots, Run(codes[fresh], slots[fresh].astype(np.int32))

    def _scattered(
        self, slots: np.ndarray, cells: Sequence[Cells], gone: np.ndarray
    ) -> tuple[Block, ...]:
        order = np.argsort(slots)
        slots, gone = slots[order], np.sort(gone)
        total = max(self.slots, int(slots[-1]) + 1 if len(slots) else 0)
        blocks = [*self.blocks]
        while len(blocks) * BLOCK_ROWS < total:
            blocks.append(Block(0, tuple(map(_none, self.kinds.values()))))
        for number in np.unique(np.concatenate((slots, gone)) // BLOCK_ROWS).tolist():
            start = number * BLOCK_ROWS
            ends = (start, start + BLOCK_ROWS)
            low, high = slots.searchsorted(ends)
            first, end = gone.searchsorted(ends)
            new = [each.chosen(order[low:high]) for each in cells]
            blocks[number] = blocks[number].written(
                min(BLOCK_ROWS, total - start),
                slots[low:high] - start,
                new,
                gone[first:end] - start,
            )
        return tuple(blocks)

    @property
    def is_sparse(self) -> bool:
        """Return whether many slots have no row any more."""
        slots = self.slots
        return slots - self.rows > max(_DEAD_MIN, _DEAD_SHARE_MAX * slots)

    def compacted(self) -> Image:
        """Return the same rows without slots that have none."""
        live = np.concatenate(
            [np.ones(b.count, bool) if b.live is None else b.live for b in self.blocks]
        )
        moved = (np.cumsum(live) - 1).astype(np.int32)
        run = merge_runs(self.runs)
        kept = live[run.ordinals]
        run = Run(run.codes[kept], moved[run.ordinals[kept]])
        columns = [
            _joined([block.columns[place] for block in self.blocks]).chosen(live)
            for place in range(len(self.kinds))
        ]
        return Image(self.seq, self.kinds, (run,), _cut(int(live.sum()), columns))

    def batches(self, numbers: Sequence[int], fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of some ids, named and typed as `fields`."""
        ids = [*self.kinds]
        places = [ids.index(number) for number in numbers]
        kinds = [*self.kinds.values()]
        for block in self.blocks:
            rows = block.rows
            if not rows:
                continue
            arrays = [block.columns[place].array(kinds[place]) for place in places]
            if block.live is not None:
                mask = pa.array(block.live)
                arrays = [array.filter(mask) for array in arrays]
            yield batch_of(arrays, fields, rows)


def image_of(
    seq: int,
    codec: KeyCodec,
    kinds: Mapping[int, pa.DataType],
    batches: Iterable[tuple[Codes, Sequence[pa.Array]]],
) -> Image:
    """Return the image of rows: their codes, each key once, and the columns of `kinds`."""
    require(codec.exact, "an image needs exact codes")
    codes: list[Codes] = []
    cells: list[list[Cells]] = [[] for _ in kinds]
    for found, arrays in batches:
        codes.append(found)
        for column, array in zip(cells, arrays, strict=True):
            column.append(cells_of(array))
    count = sum(map(len, codes))
    require(count < SLOTS_MAX, "an image has too many slots")
    run = run_of(np.concatenate(codes) if codes else np.zeros(0, np.int64), 0)
    run = Run(run.codes, run.ordinals.astype(np.int32))
    paired = zip(cells, kinds.values(), strict=True)
    columns = [_joined(column) if column else _none(kind) for column, kind in paired]
    return Image(seq, dict(kinds), (run,), _cut(count, columns))


def _cut(count: int, columns: Sequence[Cells]) -> tuple[Block, ...]:
    """Return the cells as blocks with memory of their own."""
    blocks: list[Block] = []
    for start in range(0, count, BLOCK_ROWS):
        span = slice(start, min(count, start + BLOCK_ROWS))
        blocks.append(Block(span.stop - start, tuple(each.cut(span) for each in columns)))
    return tuple(blocks)


def _added(added: Sequence[Chunk], number: int, initial: pa.Array) -> Cells:
    """Return a column of some chunks, by its id; the initial value where a chunk lacks it."""
    found: list[Cells] = []
    for chunk in added:
        name, count = chunk.table_schema.names.get(number, ""), len(chunk.codes)
        if name in chunk.batch.schema.names:
            found.append(cells_of(in_type(chunk.batch.column(name), initial.type)))
        else:
            found.append(cells_of(initial.take(np.zeros(count, np.int64))))
    return _joined(found)


def _joined(parts: Sequence[Cells]) -> Cells:
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([part.values for part in parts])
    if all(part.valid is None for part in parts):
        return Cells(values, None)
    return Cells(values, np.concatenate([_all_valid(part) for part in parts]))


def _tiered(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Merge the newest runs of like size: few runs to ask, and the run of all rows stays."""
    while (window := tier(runs)) is not None:
        first, last = window
        runs = (*runs[:first], merge_runs(runs[first:last]), *runs[last:])
    return runs


def _all_valid(cells: Cells) -> np.ndarray:
    return np.ones(len(cells.values), bool) if cells.valid is None else cells.valid


def _grown(values: np.ndarray, count: int) -> np.ndarray:
    """Return a copy with zeros behind it, `count` values in all."""
    if len(values) == count:
        return values.copy()
    return np.concatenate((values, np.zeros(count - len(values), values.dtype)))


def _none(kind: pa.DataType) -> Cells:
    return Cells(np.zeros(0, _dtype(kind)), None)


def _dtype(kind: pa.DataType) -> np.dtype:
    size = 1 if pa.types.is_boolean(kind) else kind.bit_width // 8
    return np.dtype(f"u{size}" if size in {1, 2, 4, 8} else f"V{size}")


def bytes_of(images: Iterable[Image]) -> int:
    """Return the bytes of some images; what they share counts once."""
    return sum({id(e): e.nbytes for i in images for e in chain(i.runs, i.blocks)}.values())
