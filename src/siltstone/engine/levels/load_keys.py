"""Load keys: what finds the rows of an attached load by key, its key runs.

    load         a dataset of rows with one seq; each key once; none of its rows is hidden
    run          sorted codes beside its files, on disk (`storage.tables.keys.key_runs`)
    in memory    a cache of pages, shared with the bases; nothing for each row

The runs are written when the load is attached, and go when it goes. A load without them (a delete,
a small one) is indexed in memory, as other history is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.chunk import Slice, SortedKeys
from siltstone.engine.levels.origin import Origin
from siltstone.errors import SiltstoneError
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.keys import Codes, Key, KeyCodec, KeyColumns, KeysAt
from siltstone.storage.tables.keys.key_places import PinnedKeys
from siltstone.telemetry.notices import NoticeLog

_BLOCK_ROWS = 131_072
_log = NoticeLog(__name__)


class LoadKeys(msgspec.Struct, frozen=True, eq=False):
    """The key runs of one load, which cover all its rows. Immutable; threads may share it.

    `by_key`: of a small load, once asked for, its keys in order (`order.level_order`); else empty.
    """

    table: Attached
    table_schema: TableSchema
    runs: PinnedKeys
    by_key: list[SortedKeys] = msgspec.field(default_factory=list)

    def find(self, key: Key) -> int | None:
        """Return the position of the row of a key; None: it has none here."""
        codec = self.table_schema.codec
        for position in self.runs.find(codec.code(key)):
            if codec.exact or codec.keys_of(self.keys_at(np.array([position]))) == [key]:
                return position
        return None

    def keys_at(self, positions: np.ndarray) -> KeyColumns:
        """Return the keys of the rows at some positions."""
        codec = self.table_schema.history_codec
        return codec.columns(self.table.take(positions, list(codec.names)))

    def blocks(self) -> Iterator[tuple[Codes, KeysAt]]:
        """Yield the codes of all keys in blocks, ascending in each, and their keys.

        Exact codes ascend from block to block, too, so that a search in other runs reads each page
        once. Hashed ones are made of the keys, which are read in row order.
        """
        codec = self.table_schema.history_codec
        if codec.exact:
            yield from ((codes, no_keys) for codes, _ in self.runs.ordered())
            return
        stored = self.table.scan_stored(list(codec.names))
        for batches in gathered(stored, attrgetter("num_rows"), _BLOCK_ROWS):
            batch = pa.concat_batches(batches)  # pyright: ignore[reportAttributeAccessIssue]
            codes = codec.codes(batch)
            order = np.argsort(codes)

            yield codes[order], partial(_keys_of, codec, batch, order)


class LoadSlice(msgspec.Struct, frozen=True, eq=False):
    """All rows of a load, as `Slice` is those of others; equal origins have equal rows."""

    origin: Origin
    rows: int
    keys: LoadKeys


Part: TypeAlias = Slice | LoadSlice


class FiledCodes:
    """The codes of a load's keys, in its key runs: what recent writes remember of it.

    A search reads pages, so it is not for each key of each commit: only for those of a transaction
    that began before the load was committed. Immutable.
    """

    __slots__ = ("_runs", "rows")

    def __init__(self, runs: PinnedKeys, rows: int) -> None:
        self._runs, self.rows = runs, rows

    def __len__(self) -> int:
        """Return the number of codes."""
        return self.rows

    def has(self, wanted: Codes) -> np.ndarray:
        """Say for each of some codes, in any order, whether the load has it.

        All, if the runs cannot be read: who asks is refused, and runs again after the load.
        """
        order = np.argsort(wanted)
        found = np.zeros(len(wanted), bool)
        try:
            needles, _ = self._runs.find_many(wanted[order])
        except SiltstoneError as error:
            _log.warning("%s; its keys count as written, all of them", error)
            return np.ones(len(wanted), bool)
        found[order[needles]] = True
        return found

    def common(self, other: FiledCodes) -> int | None:
        """Return a code that another load has, too, or 0 if that cannot be read; None: none."""
        try:
            for codes, _ in other._runs.ordered():
                hit = self.has(codes)
                if hit.any():
                    return int(codes[np.flatnonzero(hit)[0]])
        except SiltstoneError as error:
            _log.warning("%s; its keys count as written, all of them", error)
            return 0
        return None


def _keys_of(
    codec: KeyCodec, rows: pa.RecordBatch, order: np.ndarray, at: np.ndarray
) -> KeyColumns:
    return codec.columns(rows.take(pa.array(order[at], pa.int64())))


def no_keys(at: np.ndarray) -> KeyColumns:
    """Stand for the keys of exact codes, which nobody asks for."""
    raise RuntimeError(f"exact codes need no keys; asked for {len(at)}")
