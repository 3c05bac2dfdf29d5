"""Attached rows: a dataset of staged rows, seen as a history in which every row has one seq.

A bulk commit writes its rows before it has a seq, so they have none on disk. Reads add the seq of
the frame that named them as a constant; the checkpoint writes them into history with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.formats.manifest import Pin
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION

_ROW_BYTES = 64
_RUN_BYTES_MIN = 1 << 20


def run_bytes(rows: int) -> int:
    """Return the bytes that a run of some rows counts towards the next checkpoint: its index.

    A short run counts too: each run is one more level for every read.
    """
    return max(_RUN_BYTES_MIN, _ROW_BYTES * rows)


class Attached:
    """What a history run needs of a `PinnedTable`, with constant `_seq` and `_op`. Immutable."""

    def __init__(self, table: PinnedTable, seq: int, op: int) -> None:
        self._table, self.seq, self.op = table, seq, op
        self._constants = {
            SEQ_COLUMN: pa.scalar(seq, pa.int64()),
            OP_COLUMN: pa.scalar(op, pa.int8()),
        }

    @property
    def pin(self) -> Pin:
        """The version that holds the rows."""
        return self._table.pin

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
