"""Change task: a part of a change feed, as a value that any process can read by itself.

    rows of a reader     all of them marked with one seq and one op
    versions             what history holds of (since, until], with the seqs and ops that lie there
    versions in hand     of memtables, as the feed shows them

It pickles; the scan task inside says how long it may wait, and what it raises
(`query.scan.scan_task`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from siltstone.query.changes.change_feed import op_names
from siltstone.query.scan.scan_task import ScanTask


@dataclass(frozen=True, slots=True)
class RowMark:
    """What all rows of a task have in `_seq` and `_op`."""

    seq: int
    op: str


@dataclass(frozen=True, slots=True)
class Range:
    """Of versions that carry their seqs and ops: those with since < _seq <= until count."""

    since: int
    until: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ChangeTask:
    """Some changes of one table (see the module); plan them with `Store.change_tasks`.

    `stored` is what `scan` calls each column of the table; None: it is null. Together the tasks of
    a plan give every change once; what orders them is `_seq`.
    """

    fields: pa.Schema
    scan: ScanTask
    stored: tuple[str | None, ...]
    sign: RowMark | Range | None

    def __repr__(self) -> str:
        return f"<ChangeTask {self.sign}: {self.scan!r}>"

    @property
    def root(self) -> str:
        """Where the store is."""
        return self.scan.root

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches: `_seq`, `_op` ("upsert" | "delete"), and the table's."""
        return self.fields

    @property
    def rows(self) -> int:
        """How many changes there are at most."""
        return self.scan.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the changes, batch by batch; call it in any process that sees the store's path.

        Raises:
            SnapshotExpiredError: The task came later than the store keeps what it names.
            CorruptionError, UnavailableError: As of any read.
        """
        return self._shown(self.scan.read())

    def _shown(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = _within(batch, self.sign) if isinstance(self.sign, Range) else batch
            if kept.num_rows:
                columns = [*self._marks(kept), *self._columns(kept)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.fields)

    def _marks(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if isinstance(self.sign, RowMark):
            seqs = pa.array(np.full(batch.num_rows, self.sign.seq, np.int64))
            return [seqs, pa.repeat(pa.scalar(self.sign.op), batch.num_rows)]
        ops = batch.column("_op")
        if self.sign is not None:
            ops = op_names(ops.to_numpy())
        return [batch.column("_seq"), ops]

    def _columns(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        for name, index in zip(self.stored, range(2, len(self.fields)), strict=True):
            kind = self.fields.field(index).type
            yield pa.nulls(batch.num_rows, kind) if name is None else batch.column(name)


def _within(batch: pa.RecordBatch, sign: Range) -> pa.RecordBatch:
    seqs = batch.column("_seq").to_numpy()
    inside = (seqs > sign.since) & (seqs <= sign.until)
    return batch if inside.all() else batch.filter(pa.array(inside))
