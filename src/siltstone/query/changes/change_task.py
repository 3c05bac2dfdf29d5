"""Change task: a part of a change feed, as a value that any process can read by itself.

    rows of a reader     all marked with one seq and one op
    versions             the versions of history in (since, until], with their seqs and ops
    inline versions      versions of memtables, in the form of the feed

It pickles. The scan task inside defines how long it may wait, and its errors
(`query.scan.scan_task`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import aligned
from siltstone.formats.log.group import DELETE
from siltstone.formats.types.defaults import initial_in
from siltstone.query.scan.scan_task import ScanTask


@functools.cache
def _op_names() -> pa.StringArray:
    """Late: the first `pa.array` of Python objects imports pandas, more than a second."""
    return pa.array(["upsert", "delete"])


def op_names(ops: np.ndarray) -> pa.Array:
    """Return the names of ops in the feed."""
    return _op_names().take(pa.array((ops == DELETE).astype(np.int8)))


def shown(arrays: list[pa.Array], fields: pa.Schema) -> list[pa.Array]:
    """Return columns of a feed: a delete has no values, not even initial ones."""
    valued = [place for place, field in enumerate(fields) if initial_in(field) is not None]
    if valued:
        gone = arrays[1].to_numpy(zero_copy_only=False) == "delete"
        at = pa.array(np.arange(len(gone)), pa.int64(), mask=gone)
        for place in valued:
            arrays[place] = arrays[place].take(at)
    return arrays


@dataclass(frozen=True, slots=True)
class RowMark:
    """The `_seq` and `_op` of all rows of a task."""

    seq: int
    op: str

    def columns(self, rows: int) -> list[pa.Array]:
        """Return the two as columns."""
        seqs = pa.array(np.full(rows, self.seq, np.int64))
        return [seqs, pa.repeat(pa.scalar(self.op), rows)]


@dataclass(frozen=True, slots=True)
class Range:
    """The range since < _seq <= until, of versions with their own seqs and ops."""

    since: int
    until: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ChangeTask:
    """Some changes of one table (see the module); plan them with `Store.change_tasks`.

    `stored` are the names in `scan` of the table's columns; None: the column is null. Together the
    tasks of a plan return every change once; `_seq` orders them.
    """

    fields: pa.Schema
    scan: ScanTask
    stored: tuple[str | None, ...]
    sign: RowMark | Range | None

    def __repr__(self) -> str:
        return f"<ChangeTask {self.sign}: {self.scan!r}>"

    @property
    def root(self) -> str:
        """The path of the store."""
        return self.scan.root

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches: `_seq`, `_op` ("upsert" | "delete"), and the table's."""
        return self.fields

    @property
    def rows(self) -> int:
        """The maximum number of changes."""
        return self.scan.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the changes, batch by batch; call it in any process that sees the store's path.

        Raises:
            SnapshotExpiredError: The store no longer keeps the changes of the task.
            CorruptionError, UnavailableError: As in any read.
        """
        return self._shown(self.scan.read())

    def _shown(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = list(self.fields)[2:]
        for batch in batches:
            kept = _within(batch, self.sign) if isinstance(self.sign, Range) else batch
            if kept.num_rows:
                arrays = [*self._marks(kept), *aligned(kept, self.stored, columns)]
                yield pa.RecordBatch.from_arrays(shown(arrays, self.fields), schema=self.fields)

    def _marks(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if isinstance(self.sign, RowMark):
            return self.sign.columns(batch.num_rows)
        ops = batch.column("_op")
        if self.sign is not None:
            ops = op_names(ops.to_numpy())
        return [batch.column("_seq"), ops]


def _within(batch: pa.RecordBatch, sign: Range) -> pa.RecordBatch:
    seqs = batch.column("_seq").to_numpy()
    inside = (seqs > sign.since) & (seqs <= sign.until)
    return batch if inside.all() else batch.filter(pa.array(inside))
