"""Change plan: the changes of one table over a range of seqs, cut into tasks, or counted.

    rows of a reader     its scan, cut as any scan is (`query.scan.scan_plan`), with a mark
    history, attached    groups of parts of the pin that have seqs of the range
    memtables            their versions inline, in pieces of bounded size

The planner reads the seqs of the range, but no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.history_run import HistoryRun, seqs_of, span_of
from siltstone.engine.read.kept import readable
from siltstone.engine.read.view import State
from siltstone.errors import RequestError
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN
from siltstone.formats.types.defaults import plain_of
from siltstone.query.changes.change_feed import (
    Feeds,
    Part,
    Versions,
    WholeTable,
    feed_fields,
    of_versions,
)
from siltstone.query.changes.change_task import ChangeTask, Range, RowMark, op_names, shown
from siltstone.query.scan.scan_plan import TaskFiles, groups, in_hand, plan
from siltstone.query.scan.scan_task import PinnedRows, ScanTask


def plan_changes(
    feeds: Feeds, name: str, since: int, until: int, *, begins: bool, rows_max: int
) -> Iterator[ChangeTask]:
    """Yield the tasks that together return each change with since < _seq <= until once.

    Args:
        feeds: The feeds of the store; `until` is at or below the visible seq of their state.
        name: The name of the table.
        since: The seq before the first change.
        until: The seq of the last change.
        begins: Begin with the rows at `since`, as changes at that seq.
        rows_max: The approximate number of stored rows of a task.

    Raises:
        SnapshotExpiredError, SchemaMismatchError, TableNotFoundError, RequestError: See `Feeds`.
    """
    first: list[WholeTable] = []
    if begins:
        readable(feeds.state, since, feeds.core.readers)
        table = catalogs.find(feeds.state.view.catalog, name, since)
        first = [feeds.whole(table, since, "upsert")]
    feed = feeds.of(name, since, until) if since < until or not begins else None
    table_schema = feed.table_schema if feed else first[0].reader.table_schema
    planner = _ChangePlanner(feeds, name, until, table_schema, rows_max)
    for part in (*first, *(feed.parts if feed else ())):
        yield from planner.tasks(part)


@dataclass(frozen=True, slots=True)
class _ChangePlanner:
    feeds: Feeds
    name: str
    until: int
    table_schema: TableSchema
    rows_max: int

    def tasks(self, part: Part) -> Iterator[ChangeTask]:
        if isinstance(part, WholeTable):
            return self._of_rows(part)
        source = part.source
        if not isinstance(source, HistoryRun):
            return self._in_hand(part)
        if isinstance(source.table, Attached):
            return self._of_attached(source, source.table)
        return self._of_history(source, part)

    def _of_rows(self, part: WholeTable) -> Iterator[ChangeTask]:
        stored = part.stored(self.table_schema)
        tasks = plan(
            self.feeds.core,
            part.reader,
            self.feeds.state.view.record,
            table=self.name,
            seq=part.seq,
            columns=list(dict.fromkeys(name for name in stored if name is not None)),
            filter=None,
            rows_max=self.rows_max,
        )
        fields = feed_fields(self.table_schema)
        if part.is_other:
            fields = plain_of(fields)
        for task in tasks:
            yield ChangeTask(fields, task, tuple(stored), RowMark(part.seq, part.op))

    def _of_attached(self, run: HistoryRun, table: Attached) -> Iterator[ChangeTask]:
        op = op_names(np.array([table.op]))[0].as_py()
        for scan in self._pinned(run, self.table_schema.arrow, (), (0, table.rows)):
            yield self._task(scan, RowMark(table.seq, op))

    def _of_history(self, run: HistoryRun, part: Versions) -> Iterator[ChangeTask]:
        marks = pa.schema([(SEQ_COLUMN, pa.int64()), (OP_COLUMN, pa.int8())])
        fields = pa.schema([*marks, *self.table_schema.arrow])
        for scan in self._pinned(run, fields, tuple(marks.names), span_of(run)):
            yield self._task(scan, Range(part.since, part.until))

    def _pinned(
        self, run: HistoryRun, fields: pa.Schema, marks: tuple[str, ...], span: tuple[int, int]
    ) -> Iterator[ScanTask]:
        stored = (*marks, *run.stored(self.table_schema, self.table_schema.arrow.names))
        files = TaskFiles.of_run(run, stored, self.feeds.state.view.lease)
        for first, end in groups(run.table.spans, self.rows_max):
            rows = min(end, span[1]) - max(first, span[0])
            if rows > 0:
                yield self._scan(fields, files.rows(run.table.pin, first, end), rows)

    def _in_hand(self, part: Versions) -> Iterator[ChangeTask]:
        fields = feed_fields(self.table_schema)
        versions = (shown(arrays, fields) for arrays in of_versions(part, self.table_schema))
        batches = (pa.RecordBatch.from_arrays(arrays, schema=fields) for arrays in versions)
        for piece, rows in in_hand(batches):
            yield self._task(self._scan(fields, piece, rows), None)

    def _scan(self, fields: pa.Schema, source: PinnedRows | bytes, rows: int) -> ScanTask:
        core, names = self.feeds.core, tuple(fields.names)
        return ScanTask(
            str(core.root), core.verify, self.name, self.until, names, None, fields, source, rows
        )

    def _task(self, scan: ScanTask, sign: RowMark | Range | None) -> ChangeTask:
        names = tuple(self.table_schema.arrow.names)
        return ChangeTask(feed_fields(self.table_schema), scan, names, sign)


# counting


def cut(feeds: Feeds, name: str, since: int, until: int, rows_max: int) -> tuple[int, int]:
    """Return the highest seq <= `until` with at most `rows_max` changes, and their number.

    The range has at least one commit, even if that has more changes; then not all are counted.
    It ends where the table has the name: the feed also has changes of seqs at which it has not, and
    maybe none has, the deletes of a former table and what happened to it under another name.
    """
    feed = feeds.of(name, since, until)
    table, _ = feeds.keyed(name, until)
    taken = catalogs.named_from(table, until)
    done, whole_upto, seq, count = 0, since, since, 0
    for part in feed.parts:
        for found, rows in _counts(part):
            end = found if found >= taken else catalogs.named_again(table, name, found)
            if end != seq:
                done, whole_upto, seq, count = done + count, seq, end, 0
            count += rows
            if done + count > rows_max:
                return (whole_upto, done) if done else (seq, count)
    return until, done + count


def begins_at(state: State, name: str) -> int:
    """Return the lowest seq with a readable table and with all changes kept since.

    Raises:
        TableNotFoundError, RequestError: There is no such table, or it is plain.
    """
    table = catalogs.find(state.view.catalog, name)
    if not catalogs.schema_of(table).key:
        raise RequestError(f"{name!r} is a plain table: it has versions, not changes")
    return max(state.view.record.oldest_seq, catalogs.named_from(table, state.visible))


def _counts(part: Part) -> Iterator[tuple[int, int]]:
    """Yield seqs and how many changes they have, in order; a seq may come again."""
    if isinstance(part, WholeTable):
        yield part.seq, part.reader.count()
        return
    source = part.source
    arrays = (
        seqs_of(source)
        if isinstance(source, HistoryRun)
        else (chunk.seqs for chunk in source.chunks_upto(part.until))
    )
    for seqs in arrays:
        inside = seqs[(seqs > part.since) & (seqs <= part.until)]
        found, counts = np.unique(inside, return_counts=True)
        yield from zip(found.tolist(), counts.tolist(), strict=True)
