"""Changes: every row version of the keyed tables over a range of seqs, in seq order.

The versions come from un-flushed memtables and from history, which keeps every version; a bulk load
that went straight to base is read from the base version of its seq.

The store keeps versions and definitions from one seq on (`kept_from`). A range that ends or begins
below it is refused, even at a tag, because the changes in between are not known. Seq 0 is special:
a feed from 0 is for a consumer that has nothing yet. If the table is older than `kept_from`, the
feed begins with the rows of one seq, with `_op` "snapshot": the lowest seq from which all versions
are known.

The feed follows the table's name, even if the table was dropped or renamed in between: applied to a
copy of the table with that name at `since`, it gives a copy of the table with that name at `until`.
If the name passed from one table to another (a drop and a creation, or renames), the feed has a
delete for each key of the former table at the seq at which that table lost the name, and all rows
of a renamed table at the seq at which it took the name. A truncate appears as deletes, too. If no
table has the name at `until`, there is no feed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, aligned, table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.kept import FOREVER, kept_from
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.errors import RequestError, SchemaMismatchError, SnapshotExpiredError
from siltstone.formats.manifest import Incarnation, TableDefinition
from siltstone.formats.types.defaults import plain_of
from siltstone.query.changes.change_task import RowMark, op_names, shown


def refuse_range(state: State, since: int, until: int) -> None:
    """Check a range of changes.

    Raises:
        RequestError: It is not 0 <= since <= until.
        SnapshotExpiredError: It ends below `kept_from`, or begins there and not at 0.
    """
    if not 0 <= since <= until:
        raise RequestError(f"changes from seq {since} to {until}: 0 <= since <= until is needed")
    kept = kept_from(state)
    if until < kept:
        raise SnapshotExpiredError(f"changes until seq {until}", kept, state.visible)
    if 0 < since < kept:
        raise SnapshotExpiredError(f"changes since seq {since}", kept, state.visible)


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All rows of a reader, as changes at one seq with one op.

    A delete has only the keys, all else is null. `is_other`: the reader has another table, whose
    column ids do not apply; columns are matched by name.
    """

    reader: Reader
    seq: int
    op: str
    is_other: bool = False

    def stored(self, table_schema: TableSchema) -> list[str | None]:
        """Return the reader's name of each column of the feed; None: the column is null."""
        names = self.reader.table_schema.names
        return [
            None
            if self.op == "delete" and column.id not in table_schema.schema.key
            else column.name
            if self.is_other
            else names.get(column.id)
            for column in table_schema.schema.columns
        ]


@dataclass(frozen=True, slots=True)
class Versions:
    """The row versions of one source with since < _seq <= until."""

    source: Source
    since: int
    until: int


Part = WholeTable | Versions


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The changes of one name: its columns at the end, and its parts in seq order, lazily."""

    table_schema: TableSchema
    parts: Iterator[Part]


def feed_fields(table_schema: TableSchema) -> pa.Schema:
    """Return the columns of a feed: `_seq`, `_op`, and the table's.

    Only the key is never null: deletes have no values, nor had rows of before NOT NULL.
    """
    marks = [pa.field("_seq", pa.int64()), pa.field("_op", pa.string())]
    key = table_schema.codec.names
    columns = [field.with_nullable(field.name not in key) for field in table_schema.arrow]
    return pa.schema([*marks, *columns])


@dataclass(frozen=True, slots=True)
class Feeds:
    """The change feeds of all tables of a store in one state."""

    core: Core
    state: State

    def read(
        self, since: int, until: int, tables: Sequence[str] | None
    ) -> dict[str, pa.RecordBatchReader]:
        """Return per keyed table its versions with since < _seq <= until; `_seq`, `_op`, columns.

        Raises:
            SnapshotExpiredError: The store no longer keeps versions above `since` (not 0) or up to
                `until`.
            SchemaMismatchError: The name passed to a table with another key: start again from 0.
            TableNotFoundError, RequestError: There is no such table at `until`, it is plain, or the
                range is invalid.
        """
        refuse_range(self.state, since, until)
        if not isinstance(tables, Iterable | None):
            raise RequestError(f"tables must be a list of names; got {tables!r:.80}")
        names = [tables] if isinstance(tables, str) else tables
        if names is None:
            every = [t for t in self.state.view.catalog.tables if catalogs.is_alive(t, until)]
            names = [catalogs.name_of(t, until) for t in every if catalogs.schema_of(t, until).key]
        return {name: _read(self.of(name, since, until)) for name in names}

    def of(self, name: str, since: int, until: int) -> ChangeFeed:
        """Return the feed of one table by name; see `read`."""
        refuse_range(self.state, since, until)
        table, table_schema = self.keyed(name, until)
        taken = catalogs.named_from(table, until)
        gone: list[Part] = []
        had_name = catalogs.is_alive(table, since) and catalogs.name_of(table, since) == name
        if 0 < since < taken and not had_name:
            gone = self._gone(since, name, table_schema)
            if table.created < taken:
                gone.append(self.whole(table, taken, "upsert"))
                since = taken
        return ChangeFeed(table_schema, itertools.chain(gone, self._versions(table, since, until)))

    def keyed(self, name: str, seq: int) -> tuple[TableDefinition, TableSchema]:
        """Return the table that has a name at `seq`, and its columns then.

        Raises:
            TableNotFoundError, RequestError: There is no such table, or it is plain.
        """
        table = catalogs.find(self.state.view.catalog, name, seq)
        table_schema = table_schema_of(catalogs.schema_of(table, seq))
        if table_schema.keys is None:
            raise RequestError(f"{name!r} is a plain table: it has versions, not changes")
        return table, table_schema

    def whole(self, table: TableDefinition, seq: int, op: str) -> WholeTable:
        """Return the rows at `seq`, as changes at that seq."""
        return WholeTable(self.core.readers.open(self.state.view, table, seq), seq, op)

    def _versions(self, table: TableDefinition, since: int, until: int) -> Iterator[Part]:
        """Return the versions of one table; from seq 0, first its rows where their past is gone."""
        first: list[Part] = []
        if not since and table.created <= kept_from(self.state):
            first, since = self._beginning(table)
        spans = _spans(table, since, until)
        for step, _ in spans:
            trimmed = self.state.view.levels[step.id].storage.history_from
            if max(since, step.seq - 1) < trimmed:
                raise SnapshotExpiredError(
                    f"changes since seq {since}", trimmed, self.state.visible
                )
        return itertools.chain(first, self._of_spans(table, spans, since, until))

    def _beginning(self, table: TableDefinition) -> tuple[list[Part], int]:
        """Return the rows that a feed from nothing begins with, and their seq.

        History may reach further back than definitions do: a tag asked for it. Of one life of the
        table, without a load in it, the definition at the oldest kept seq is enough: columns go by
        id, and what was dropped before has no column in the feed.
        """
        view, kept = self.state.view, kept_from(self.state)
        step = catalogs.incarnation_of(table, kept)
        begin = view.levels[step.id].storage.history_from
        is_one_life = step.seq <= begin or (not begin and step.seq == table.created)
        is_loaded = any(begin < load.seq <= kept for load in step.versions)
        if begin < kept and is_one_life and not is_loaded:
            if not begin:
                return [], 0
            with contextlib.suppress(SnapshotExpiredError):  # the record of the tag was lost
                reader = self.core.readers.open(view, table, begin, defined_at=kept)
                return [WholeTable(reader, begin, "snapshot")], begin
        return [self.whole(table, kept, "snapshot")] if kept else [], kept

    def _gone(self, since: int, name: str, table_schema: TableSchema) -> list[Part]:
        """Return a delete for each key, living at `since`, of the table that had the name then."""
        former = catalogs.called(self.state.view.catalog, name, since)
        if former is None:
            return []
        was = table_schema_of(catalogs.schema_of(former, since))
        if was.keys is None:
            return []  # a plain table has no feed, so there is no copy by it
        lost = catalogs.named_until(former, since)
        if key_types(was) != key_types(table_schema):
            raise SchemaMismatchError(
                f"changes of {name!r} since seq {since}: at seq {lost} the table lost its name, and"
                f" the one that has it now has the key {key_types(table_schema)}, not"
                f" {key_types(was)}; empty the copy and read the changes since seq 0"
            )
        reader = self.core.readers.open(self.state.view, former, since)
        return [WholeTable(reader, lost, "delete", is_other=True)]

    def _of_spans(
        self,
        table: TableDefinition,
        spans: Sequence[tuple[Incarnation, int]],
        since: int,
        until: int,
    ) -> Iterator[Part]:
        for step, end in spans:
            yield from self._of_levels(table, step, since, min(until, end - 1))
            if end <= until:  # a truncate, as what it does to who follows: every key is deleted
                reader = self.core.readers.open(self.state.view, table, end - 1)
                yield WholeTable(reader, end, "delete")

    def _of_levels(
        self, table: TableDefinition, step: Incarnation, since: int, until: int
    ) -> Iterator[Part]:
        view, readers = self.state.view, self.core.readers
        for load in step.versions:  # the first thing that ever happened to its incarnation
            if since < load.seq <= until:
                written = table_schema_of(catalogs.schema_of(table, load.seq))
                yield WholeTable(readers.plain(written, load.pin, view.lease), load.seq, "upsert")
        levels, upto = view.levels[step.id], min(until, view.record.flushed_seq)
        runs = readers.history(table, levels.storage, since, upto, view.lease)
        for source in (*runs, *levels.sealed, levels.active):
            if not isinstance(source, HistoryRun) or (source.low < until and since < source.high):
                yield Versions(source, since, until)


def key_types(table_schema: TableSchema) -> dict[str, pa.DataType]:
    """Return the types of the key's columns by their names; of a keyed table."""
    return {name: table_schema.arrow.field(name).type for name in table_schema.codec.names}


def _spans(table: TableDefinition, since: int, until: int) -> list[tuple[Incarnation, int]]:
    """Return the incarnations that live in (since, until], each with the seq that truncated it.

    One that was truncated in the commit that made it never had a row that anybody could see.
    """
    steps = [step for step in table.incarnations if step.seq <= until]
    ends = [*(step.seq for step in steps[1:]), FOREVER]
    return [(s, e) for s, e in zip(steps, ends, strict=True) if e > max(since, s.seq)]


# the rows of a part


def _read(feed: ChangeFeed) -> pa.RecordBatchReader:
    fields = feed_fields(feed.table_schema)
    batches = (
        pa.RecordBatch.from_arrays(shown(arrays, fields), schema=fields)
        for part in feed.parts
        for arrays in _rows(part, feed.table_schema)
    )
    return pa.RecordBatchReader.from_batches(fields, batches)


def _rows(part: Part, table_schema: TableSchema) -> Iterator[list[pa.Array]]:
    if isinstance(part, Versions):
        yield from of_versions(part, table_schema)
        return
    mark, stored = RowMark(part.seq, part.op), part.stored(table_schema)
    # What another table lacks has no initial value.
    fields = plain_of(table_schema.arrow) if part.is_other else table_schema.arrow
    for batch in part.reader.scan():
        columns = aligned(batch, stored, fields)
        yield [*mark.columns(batch.num_rows), *columns]


def of_versions(part: Versions, table_schema: TableSchema) -> Iterator[list[pa.Array]]:
    """Yield the versions of a part as columns of the feed."""
    for chunk in part.source.chunks_upto(part.until):
        low, high = np.searchsorted(chunk.seqs, (part.since, part.until), "right").tolist()
        if low < high:
            batch, names = chunk.batch.slice(low, high - low), table_schema.arrow.names
            columns = table_schema.align(batch, chunk.table_schema, names)
            yield [pa.array(chunk.seqs[low:high]), op_names(chunk.ops[low:high]), *columns]
