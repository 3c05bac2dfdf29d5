"""Replay: builds a view from a manifest record and the frames above it.

It applies the same entries in the same order as the commits did, so it gets the same catalog and
row versions. Only the layout of the memtables differs: many rows at once go into one chunk, which
makes replay fast; few go where their commits would put them, which keeps a follower's reads fast.
Replay writes nothing. The caller shows the view only when every frame in it is durable.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.commit_log import CommitLog
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.levels.attached import run_bytes
from siltstone.engine.levels.memtable import TAIL_ROWS_MAX, Memtable, append_batch
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import (
    Levels,
    View,
    new_levels,
    with_attached,
    with_entry,
    with_load,
    with_token,
)
from siltstone.errors import InvariantError
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, Record
from siltstone.formats.rows import Row, UnfitError
from siltstone.units import require

_CHUNK_ROWS = 65_536
_MISFITS = (pa.ArrowException, ArithmeticError, TypeError, ValueError, UnfitError)
_WRITES = (group.RowsEntry, group.Batch, group.Attach, group.Advance, group.Compact)


def view_of(record: Record, lease: object, readers: Readers) -> View:
    """Return the view of a record without the log: all commits up to its `flushed_seq`."""
    catalog = record.catalog
    levels: dict[int, Levels] = {}
    stored = {storage.incarnation: storage for storage in record.keyed}
    for table in catalog.tables:
        schema = catalogs.schema_of(table)
        for step in table.incarnations if schema.key else ():
            storage = stored.get(step.id)
            if storage is None:
                fresh = new_levels(catalog, step.id, step.seq)
                require(fresh is not None, f"incarnation {step.id} of a keyed table has no levels")
                assert fresh is not None
                levels[step.id] = fresh
                continue
            seqs = (storage.merged_seq, record.flushed_seq)
            levels[step.id] = Levels(
                storage,
                readers.history(table, storage, *seqs, lease),
                (),
                Memtable(table_schema_of(schema)),
                readers.base(table, storage),
            )
    return View(record, lease, catalog, levels, (), CommitLog(record.flushed_seq + 1), 1)


class Replayer:
    """Applies frames to a view. One thread."""

    def __init__(self, view: View, readers: Readers) -> None:
        self.view, self._readers = view, readers
        self.last_seq, self.last_time_us = view.record.flushed_seq, view.record.last_time_us
        self.nbytes = 0
        self._pending: dict[int, _Pending] = {}
        self._schemas: tuple[Catalog | None, dict[tuple[int, int], TableSchema]] = None, {}

    def apply(self, first_seq: int, payload: bytes | memoryview) -> None:
        """Apply one frame; commits at or below the view's last seq are skipped."""
        head, blobs = group.decode(payload)
        self.nbytes += len(payload)
        for index, member in enumerate(head.members):
            seq = first_seq + index
            if seq <= self.last_seq:
                continue
            require(seq == self.last_seq + 1, f"seq {seq} follows seq {self.last_seq} in the log")
            self._apply_member(member, blobs, head.epoch, seq, head.time_us + index)
            self.last_seq, self.last_time_us = seq, head.time_us + index

    def finish(self) -> View:
        """Return the view with all applied frames."""
        self._flush()
        return self.view

    def _apply_member(
        self, member: group.Member, blobs: list[pa.Buffer], epoch: int, seq: int, time_us: int
    ) -> None:
        incarnations: list[int] = []
        for entry in member.entries:
            if isinstance(entry, group.RowsEntry):
                self._apply_rows(entry, seq)
            elif isinstance(entry, group.Batch):
                self._apply_batch(entry, blobs[entry.blob], seq)
            elif isinstance(entry, group.Attach):
                self._apply_attach(entry, seq)
            else:
                self._apply_change(entry, seq, time_us)
            if isinstance(entry, _WRITES):
                incarnations.append(entry.incarnation)
        if member.token is not None:
            self.view = with_token(self.view, member.token, seq, member.rows)
        self.view.log.append(
            time_us, epoch, member.number, member.token, tuple(incarnations), member.rows
        )

    def _apply_change(self, entry: group.Entry, seq: int, time_us: int) -> None:
        self._flush()
        self.view = with_entry(self.view, entry, seq, time_us)
        if isinstance(entry, group.Advance):
            levels = self.view.levels.get(entry.incarnation)
            if levels is not None:
                table = catalogs.owner_of(self.view.catalog, entry.incarnation)
                table_schema = table_schema_of(catalogs.schema_of(table, seq))
                base = self._readers.base_of(entry.pin, table_schema)
                self.view = with_load(self.view, entry, seq, base)

    def _apply_attach(self, entry: group.Attach, seq: int) -> None:
        self._flush_one(entry.incarnation)
        table_schema = self._table_schema(entry.incarnation, entry.schema)
        opened = self._readers.pinned(entry.pin)
        self.nbytes += run_bytes(entry.rows)
        keys = self._readers.keys
        self.view = with_attached(self.view, entry, seq, opened, table_schema, keys)

    def _table_schema(self, incarnation: int, schema_id: int) -> TableSchema:
        catalog, known = self._schemas
        if catalog is not self.view.catalog:  # a follower asks for the same one at each commit
            known = {}
            self._schemas = self.view.catalog, known
        found = known.get((incarnation, schema_id))
        if found is None:
            table = catalogs.owner_of(self.view.catalog, incarnation)
            found = table_schema_of(catalogs.schema_by_id(table, schema_id))
            known[incarnation, schema_id] = found
        return found

    def _apply_rows(self, entry: group.RowsEntry, seq: int) -> None:
        pending = self._pending.get(entry.incarnation)
        if pending is None or pending.schema != entry.schema:
            self._flush_one(entry.incarnation)
            table_schema = self._table_schema(entry.incarnation, entry.schema)
            pending = self._pending[entry.incarnation] = _Pending(table_schema)
        pending.add(entry, seq)
        if len(pending.rows) >= _CHUNK_ROWS:
            self._flush_one(entry.incarnation)

    def _apply_batch(self, entry: group.Batch, blob: pa.Buffer, seq: int) -> None:
        self._flush_one(entry.incarnation)
        table_schema = self._table_schema(entry.incarnation, entry.schema)
        batch = pa.ipc.read_record_batch(blob, batch_fields(table_schema, entry.op))
        codes = table_schema.codec.codes(batch)
        append_batch(
            self.view.levels[entry.incarnation].active, table_schema, batch, codes, entry.op, seq
        )

    def _flush(self) -> None:
        for incarnation in list(self._pending):
            self._flush_one(incarnation)

    def _flush_one(self, incarnation: int) -> None:
        pending = self._pending.pop(incarnation, None)
        if pending is None or not pending.rows:
            return
        active = self.view.levels[incarnation].active
        try:
            pending.write(active)
        except _MISFITS as error:
            table = catalogs.name_of(catalogs.owner_of(self.view.catalog, incarnation))
            raise InvariantError(
                f"the log has rows of table {table!r}, of seq {pending.first_seq} to"
                f" {pending.last_seq}, that do not fit its columns: {error}"
            ) from error
        active.merge_runs()  # a follower has nobody else to do it


class _Pending:
    """Rows of one table and schema that become one chunk, or the tail, of a memtable."""

    __slots__ = ("_ops", "_seqs", "_table_schema", "rows", "schema")

    def __init__(self, table_schema: TableSchema) -> None:
        self._table_schema, self.schema = table_schema, table_schema.id
        self.rows: list[Row] = []
        self._seqs: list[int] = []
        self._ops: list[int] = []

    def add(self, entry: group.RowsEntry, seq: int) -> None:
        rows, deletes = entry.upserts, entry.deletes
        self.rows += rows
        for key in deletes:
            self.rows.append(self._table_schema.delete_row(key))
        self._seqs += [seq] * (len(rows) + len(deletes))
        self._ops += [group.UPSERT] * len(rows) + [group.DELETE] * len(deletes)

    @property
    def first_seq(self) -> int:
        return self._seqs[0]

    @property
    def last_seq(self) -> int:
        return self._seqs[-1]

    def write(self, memtable: Memtable) -> None:
        codec = self._table_schema.rows
        if len(self.rows) <= TAIL_ROWS_MAX and codec.is_checkable:
            # As their commits left them: an array of Arrow would import pandas.
            codec.check_stored(self.rows)
            memtable.append_few(self._table_schema, self.rows, self._ops, self._seqs)
            return
        batch = codec.to_batch(self.rows)
        memtable.append_versions(
            self._table_schema,
            batch,
            self._table_schema.codec.codes(batch),
            np.array(self._seqs, np.int64),
            np.array(self._ops, np.int8),
        )


def batch_fields(table_schema: TableSchema, op: int) -> pa.Schema:
    """Return the columns of a batch in the log: of a delete only the key, in key order."""
    if op == group.UPSERT:
        return table_schema.arrow
    return pa.schema(
        [table_schema.arrow.field(name).with_nullable(True) for name in table_schema.codec.names]
    )
