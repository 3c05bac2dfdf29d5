"""Attached rows: a dataset of staged rows, seen as a history in which every row has one seq.

A bulk commit writes its rows before it has a seq, so they have none on disk. Reads add the seq of
the frame that named them as a constant. The checkpoint writes few rows into history with it; of
many its record names the files. Those have key runs, so no index of them is made in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.formats.log.group import UPSERT
from siltstone.formats.manifest import Pin
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN
from siltstone.storage.tables.keys.key_places import PinnedKeys
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION

_ROW_BYTES = 64
_RUN_BYTES_MIN = 1 << 20


def run_bytes(rows: int) -> int:
    """Return the bytes that a run of some rows counts towards the next checkpoint.

    It is the index of what the checkpoint copies into history; a load that has key runs has none,
    and should be in a record soon, for a merge. A short run counts too: each run is one more level
    for every read.
    """
    return max(_RUN_BYTES_MIN, _ROW_BYTES * rows)


class Attached:
    """What a history run needs of a `PinnedTable`, with constant `_seq` and `_op`. Immutable."""

    def __init__(
        self, table: PinnedTable, seq: int, op: int, keys: Callable[[], PinnedKeys] | None = None
    ) -> None:
        """`keys` opens the key runs of the table, if it has some; asked once, when needed."""
        self._table, self.seq, self.op = table, seq, op
        has_runs = keys is not None and op == UPSERT and bool(table.pin.runs)
        self._open_keys = functools.cache(keys) if has_runs and keys is not None else None
        self._constants = {
            SEQ_COLUMN: pa.scalar(seq, pa.int64()),
            OP_COLUMN: pa.scalar(op, pa.int8()),
        }

    @property
    def pin(self) -> Pin:
        """The version that holds the rows."""
        return self._table.pin

    @property
    def has_runs(self) -> bool:
        """Whether it may have key runs; nothing is read to tell."""
        return self._open_keys is not None

    @property
    def runs(self) -> PinnedKeys | None:
        """The key runs, if they find every row; None: an index in memory has to.

        Raises:
            CorruptionError: The foot of a run is damaged.
        """
        found = None if self._open_keys is None else self._open_keys()
        return found if found is not None and found.is_whole else None

    @property
    def schema(self) -> pa.Schema:
        """The stored columns and the two constant ones."""
        constants = [pa.field(name, value.type) for name, value in self._constants.items()]
        return pa.schema([*self._table.schema, *constants])

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._table.rows

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """See `tables.PinnedTable.spans`."""
        return self._table.spans

    def scan(
        self, columns: Sequence[str], *, seqs: tuple[int, int], positions: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """See `tables.PinnedTable.scan`; `seqs` skips nothing: all rows have the one seq."""
        del seqs
        stored = [name for name in columns if name not in self._constants]
        for batch in self._table.scan(stored, positions=positions):
            yield self._with_constants(batch, [*columns, POSITION] if positions else columns)

    def scan_stored(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield stored columns of all rows, without the constant ones."""
        return self._table.scan(columns)

    def _with_constants(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        arrays = [
            pa.repeat(self._constants[name], batch.num_rows)
            if name in self._constants
            else batch.column(name)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))

    def take(self, positions: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """See `tables.PinnedTable.take`."""
        taken = self._table.take(
            positions, [name for name in columns if name not in self._constants]
        )
        for name in columns:
            if name in self._constants:
                taken = taken.append_column(name, pa.repeat(self._constants[name], len(positions)))
        return taken.select(list(columns))
