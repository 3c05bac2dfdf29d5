"""Put back: what some commits did to a table is undone, by rows of a new commit.

    to ◀── the commits that are undone, (to, until] ──▶ until ◀── what others wrote since ──▶ now

A row that changed in (to, until] gets what it had at `to`; all other rows stay. If it is not what
it was at `until` any more, somebody has written it since, and the call refuses, or with `force`
puts it back, too. Without `until` one commit is undone, the only one that wrote the table since
`to`; if there are more, who calls must say which are meant.

A table that was dropped is made again, with the columns and rows of `to`. A plain table has no keys
to tell rows apart by: all of it gets the rows of `to`, so any later commit is one of others.

Rows of a call that is a commit of its own are staged from `STAGED_BYTES_MIN` on, in two passes:
what is deleted, and what is upserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.arguments import flag_of
from siltstone.choices import StagedOp
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.committer import FRAME_BYTES_MAX
from siltstone.engine.commit.core import Core
from siltstone.engine.read.past import writes_since
from siltstone.engine.read.view import State
from siltstone.engine.write.stage_task import Staged, StageTask, begin
from siltstone.errors import ConflictError, LimitError, RequestError
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import Schema, TableDefinition
from siltstone.formats.types.widening import in_type
from siltstone.local.past.moments import seq_of
from siltstone.query.diff.table_diff import NEW, OLD, TwoStates, as_structs
from siltstone.query.diff.tables import DiffOfStates
from siltstone.query.diff.values import differing

STAGED_BYTES_MIN = 64 << 20
_KEYS_SHOWN, _SEQS_SHOWN = 5, 8


class _ManyRowsError(Exception):
    """The rows are to be staged."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """See the module. `is_alone`: the call is all of its transaction. One thread.

    `state` is what the transaction reads without its own writes; `has_written`: it has some.
    """

    tx: Transaction
    core: Core
    state: State
    has_written: bool
    is_alone: bool
    staged: list[tuple[StageTask, list[Staged]]] = field(
        default_factory=list[tuple[StageTask, list[Staged]]]
    )

    def run(self, name: str, to: object, until: object, *, force: bool) -> int:
        """Put a table back; return how many rows were written.

        Raises:
            TableNotFoundError: No table had the name at `to`.
            SnapshotExpiredError: A moment is not kept, or in the future.
            RequestError: A moment is none, or `until` is before `to`; another table has the name
                now, or it has other columns.
            ConflictError: It would undo what others wrote since, and `force` does not say so.
            LimitError: The rows are more than a transaction holds.
        """
        flag_of("force", force)
        first = seq_of(self.core, self.state, to)
        table = catalogs.find(self.state.view.catalog, name, first)
        last, later = self._last(name, table, first, until, force=force)
        if last == first:
            return 0
        if name not in self.tx.tables():
            return self._made_again(name, table, first, last, later, force=force)
        now = self.tx[name]
        self._require_same(name, table, first, now)
        if not now.primary_key:
            self._refuse_later(name, later, last, force=force)
            return cast("Any", now).overwrite(self._scan(table, first))
        is_checked = later or self.has_written
        return self._rows_back(now, first, last, is_checked=is_checked, force=force)

    # what is undone

    def _last(
        self, name: str, table: TableDefinition, first: int, until: object, *, force: bool
    ) -> tuple[int, bool]:
        """Return the last commit that is undone, and whether others may have come after it."""
        wrote = writes_since(self.state, table, first, self.core.commits.touched(self.state, first))
        if until is not None:
            last = seq_of(self.core, self.state, until)
            if last < first:
                raise RequestError(f"until (seq {last}) is before to (seq {first})")
            return last, wrote is None or any(seq > last for seq in wrote)
        if force:
            return self.state.visible, False
        if wrote is None:
            raise self._conflict(
                name, "*", first, self.state.visible,
                f"the store no longer knows which commits wrote {name!r} since seq {first}: say"
                " until= the last one that you mean to undo, or force=True for all of them",
            )  # fmt: skip
        if len(wrote) > 1:
            shown = ", ".join(map(str, wrote[:_SEQS_SHOWN]))
            more = ", ..." if len(wrote) > _SEQS_SHOWN else ""
            raise self._conflict(
                name, "*", first, wrote[-1],
                f"{len(wrote)} commits wrote {name!r} since seq {first} ({shown}{more}), and some"
                f" may be of others: say until={wrote[0]} to undo the first one alone, until= the"
                " last one that you mean, or force=True for all of them",
            )  # fmt: skip
        return (wrote[0] if wrote else first), False

    def _refuse_later(self, name: str, later: bool, last: int, *, force: bool) -> None:
        if later and not force:
            raise self._conflict(
                name, "*", last, self.state.visible,
                f"{name!r} was written after seq {last}, and without a key its rows are put back"
                " all together: force=True undoes those commits, too",
            )  # fmt: skip

    @staticmethod
    def _conflict(name: str, key: object, since: int, written: int, text: str) -> ConflictError:
        return ConflictError(name, cast("Any", key), since, written, explained=text)

    def _require_same(
        self, name: str, table: TableDefinition, first: int, now: TransactionTable
    ) -> None:
        """Refuse a table that is another one than at `first`, or has other columns."""
        if now.id != table.id:
            raise RequestError(
                f"another table is called {name!r} now than at seq {first}: rename it, and call"
                " this again"
            )
        then = catalogs.schema_of(table, first)
        present = catalogs.schema_of(cast("Any", self.tx).definition(now.id))
        if _columns(then) != _columns(present) or then.key != present.key:
            raise RequestError(
                f"the columns of {name!r} are others than at seq {first}, and only rows are put"
                f" back: write those that you need with sql(), which reads the table of then as"
                f" `{name} at (version => {first})`"
            )

    def _scan(self, table: TableDefinition, seq: int) -> pa.RecordBatchReader:
        reader = self.core.readers.open(self.state.view, table, seq)
        schema = reader.table_schema
        return pa.RecordBatchReader.from_batches(schema.arrow, reader.scan())

    # a table that is gone

    def _made_again(
        self, name: str, table: TableDefinition, first: int, last: int, later: bool, *, force: bool
    ) -> int:
        if table.dropped is not None and table.dropped > last:
            self._refuse_later(name, later, last, force=force)
        if table.dropped is None:
            found = catalogs.name_of(table)
            why = "was dropped in this transaction" if found == name else f"is called {found!r} now"
            raise RequestError(f"{name!r} {why}: rename it back, and call this again")
        schema = table_schema_of(catalogs.schema_of(table, first))
        key = () if schema.keys is None else schema.keys.names
        if not key:
            made = self.tx.create_table(name, schema.shown)
            return cast("Any", made).append(self._scan(table, first))
        try:
            held = pa.Table.from_batches(self._held(iter(self._scan(table, first))), schema.arrow)
        except _ManyRowsError:
            task = begin(self.core, name, "insert", schema=schema.shown, primary_key=key)
            self._stage(task, self._scan(table, first))
            return self._attached()
        return cast("Any", self.tx.create_table(name, schema.shown, key)).insert(held)

    # rows by their keys

    def _rows_back(
        self, now: TransactionTable, first: int, last: int, *, is_checked: bool, force: bool
    ) -> int:
        two = DiffOfStates(self.core, self.state, first, last).by_key(now.name)
        if is_checked and two.fields.field(OLD).type != two.fields.field(NEW).type:
            raise RequestError(
                f"the columns of {now.name!r} changed from seq {first} to {last}, and back: say"
                " until= another seq"
            )

        def parts() -> Iterator[pa.RecordBatch]:
            for batch in two.batches():
                yield self._due(now, two, batch, last, force=force) if is_checked else batch

        key = pa.schema([now.schema.field(name) for name in now.primary_key])
        try:
            due = list(self._held(parts()))
        except _ManyRowsError:
            return self._stage_both(now, parts, key)
        gone = pa.Table.from_batches([_gone(batch, key) for batch in due], key)
        rows = pa.Table.from_batches([_rows(batch, now.schema) for batch in due], now.schema)
        if gone.num_rows:
            cast("Any", now).delete(gone)
        if rows.num_rows:
            cast("Any", now).upsert(rows)
        return gone.num_rows + rows.num_rows

    def _due(
        self,
        now: TransactionTable,
        two: TwoStates,
        batch: pa.RecordBatch,
        last: int,
        *,
        force: bool,
    ) -> pa.RecordBatch:
        """Return the rows of a diff that are not yet what they were.

        Raises:
            ConflictError: One was written after `last`, and `force` does not say so.
        """
        codec = two.codec
        assert codec is not None
        keys = pa.Table.from_batches([batch.select(list(codec.names))])
        found = as_structs(cast("Any", now).get_many(keys), batch, codec, NEW)
        is_due = differing(batch.column(OLD), found)
        written = np.flatnonzero(is_due & differing(batch.column(NEW), found))
        if len(written) and not force:
            raise self._written_since(now.name, keys, codec, written, last)
        return batch.filter(pa.array(is_due))

    def _written_since(
        self, name: str, keys: pa.Table, codec: KeyCodec, at: np.ndarray, last: int
    ) -> ConflictError:
        some = codec.keys(keys.take(at[:_KEYS_SHOWN]))
        shown = ", ".join(f"{name}[{codec.to_user(key)!r}]" for key in some)
        more = "" if len(at) <= _KEYS_SHOWN else ", ..."
        key = codec.to_user(some[0])
        return self._conflict(
            name, key, last, self.state.visible,
            f"{shown}{more} changed after seq {last}: to put the table back would undo that, too;"
            " force=True does so",
        )  # fmt: skip

    def _held(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows as long as they are few.

        Raises:
            LimitError: They are many, and not of a commit of their own.
        """
        nbytes, most = 0, STAGED_BYTES_MIN if self.is_alone else FRAME_BYTES_MAX
        for batch in batches:
            nbytes += batch.nbytes
            if nbytes > most and self.is_alone:
                raise _ManyRowsError
            if nbytes > most:
                raise LimitError(
                    f"more than {most} bytes of rows are put back: do it by itself, with put_back()"
                    " of the store",
                    most,
                )
            yield batch

    # many rows

    def _stage_both(
        self, now: TransactionTable, parts: Callable[[], Iterator[pa.RecordBatch]], key: pa.Schema
    ) -> int:
        fields = now.schema
        gone = (_gone(batch, key) for batch in parts())
        rows = (_rows(batch, fields) for batch in parts())
        for op, schema, batches in (("delete", key, gone), ("upsert", fields, rows)):
            task = begin(self.core, now.name, cast("StagedOp", op))
            self._stage(task, pa.RecordBatchReader.from_batches(schema, batches))
        return self._attached()

    def _stage(self, task: StageTask, rows: pa.RecordBatchReader) -> None:
        pieces = list[Staged]()
        self.staged.append((task, pieces))
        pieces.append(task.run(rows))

    def _attached(self) -> int:
        """Attach all that is staged: no row of the table is read after it."""
        return sum(self.tx.attach(task, pieces) for task, pieces in self.staged)

    def discard(self) -> None:
        """Delete what is left of staged rows, after the commit or without it."""
        for task, staged in self.staged:
            task.discard(staged)
        self.staged.clear()


def _columns(schema: Schema) -> dict[str, object]:
    """Return what each name stands for: with a key a column by its id, as a diff has them."""
    return {each.name: each.id if schema.key else each.type for each in schema.columns}


def _rows(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    """Return the old rows of a diff, whole."""
    found = batch.filter(batch.column(OLD).is_valid())
    old_rows = cast("pa.StructArray", found.column(OLD))
    names = [each.name for each in old_rows.type]
    old = dict(zip(names, old_rows.flatten(), strict=True))
    shown = {name: old[name] if name in old else found.column(name) for name in fields.names}
    # A type may have been widened since.
    typed = [in_type(column, fields.field(name).type) for name, column in shown.items()]
    return pa.RecordBatch.from_arrays(typed, schema=fields)


def _gone(batch: pa.RecordBatch, key: pa.Schema) -> pa.RecordBatch:
    """Return the keys of a diff that had no row."""
    found = batch.filter(batch.column(OLD).is_null())
    return pa.RecordBatch.from_arrays([found.column(name) for name in key.names], schema=key)
