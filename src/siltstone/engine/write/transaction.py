"""Transaction: the engine's side of one: a frozen view, private changes, one commit for all of it.

    OPEN ──commit──▶ COMMITTED      durable (sync) and visible, all of it at one seq
      └──rollback, error, conflict──▶ ENDED      nothing happened

Nothing shared is touched before `commit`. One thread at a time uses a transaction. What it does to
rows is in `transaction_rows`, for other Lance clients in `lance_versions.version_statements`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from enum import Enum
from typing import Any, Self, get_args
from weakref import ref

from siltstone.choices import Durability, Isolation
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import ReadSet, Receipt, WriteSet, few_rows
from siltstone.engine.filter.filters import Filter
from siltstone.engine.read.kept import keepers, kept_from, readable
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.engine.write.bulk import refuse_later_columns, refuse_other_values
from siltstone.engine.write.keyed_writes import KeyedWrites
from siltstone.engine.write.past_snapshot import PastSnapshot
from siltstone.engine.write.plain_writes import ColumnChange
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.submission import submit
from siltstone.engine.write.transaction_rows import StagingHold, TransactionRows, view_of
from siltstone.errors import (
    BusyError,
    ClosedError,
    FencedError,
    RequestError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
    not_one_of,
)
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, Schema, TableDefinition, Tag
from siltstone.process.context_exits import commit_on_exit
from siltstone.process.turns import NONE_CLOSED, TableClosedError, TableTurn
from siltstone.storage.tables.values import Compacted, InputsMovedError

ISOLATIONS: tuple[str, ...] = get_args(Isolation)
DURABILITIES: tuple[str, ...] = get_args(Durability)

_NOTHING = nullcontext()


class Phase(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ENDED = "ended"


def _check(core: Core, isolation: str, durability: str) -> None:
    """Refuse an isolation or a durability that there is not, or not in this store."""
    if isolation not in ISOLATIONS:
        raise RequestError(not_one_of("isolation", isolation, ISOLATIONS))
    if durability not in DURABILITIES:
        raise RequestError(not_one_of("durability", durability, DURABILITIES))
    if durability == "shipped":
        core.ships()


class EngineTransaction:
    """See the module. A context manager: commits at the end of the block; an error rolls back.

    `catalog` is that of the snapshot with own changes, `view` the snapshot's view, `rows` what was
    read and written, `hold` what keeps staged files from vacuum.
    `after_commit` is called when a commit is done, and must not fail. `unmoved` are the tags that
    it relies on, as it found them. `turns` end with it. A first try of `Store.run` ends where it
    names a table that is `closed`, which `closed_at` has then. `span` is what OpenTelemetry
    shows of it; that of one that a finalizer gives up is not shown.
    """

    span: Any = None

    def __init__(
        self,
        core: Core,
        *,
        isolation: Isolation = "snapshot",
        durability: Durability = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
        read_seq: int | None = None,
    ) -> None:
        """Begin; see `api.store.Store.transaction` for the arguments.

        Raises:
            RequestError: An unknown isolation or durability; a bad token, claim or read seq.
            SnapshotExpiredError: The store does not keep the read seq.
        """
        core.writer()
        _check(core, isolation, durability)
        self.core, self._durability = core, durability
        self._token = None if token is None else definitions.token_of(token)
        if claim is not None:
            definitions.check_claim(claim, self._token)
        self.phase, self._is_over = Phase.OPEN, False
        self.hold = StagingHold(core)
        self.turns: tuple[TableTurn, ...] = ()
        self._number = next(core.transactions.numbers)  # from here on a finalizer may end it
        app = "" if self._token is None else self._token.app
        state = core.transactions.begin(self._number, core.state, app)
        assert isinstance(state, State)
        self.catalog: Catalog = state.view.catalog
        self.past = None if read_seq is None else self._past_at(state, read_seq)
        self.read_seq = state.visible if self.past is None else self.past.seq
        self._app_since: int | None = None
        if app:
            known = catalogs.app_of(self.catalog, app)
            claim = known.claim if claim is None else claim
            self._app_since = known.since if known.is_known else None
        self._claim = claim
        self._reads = ReadSet(checked=state.visible) if isolation == "serializable" else None
        self._changes: list[group.Entry] = []
        self.after_commit: list[Callable[[], None]] = []
        self.unmoved: list[tuple[str, Tag | None]] = []
        self._found: dict[int, TableDefinition] = {}  # both are of `catalog`
        self._named: dict[str, TableDefinition] = {}
        self.rows = TransactionRows(core, state.view, self.read_seq, self._reads, self.hold)
        self.receipt: Receipt | None = None
        self.closed: frozenset[str] = NONE_CLOSED
        self.closed_at = ""
        core.under_way[self._number] = ref(self)
        if core.refusal is not None:  # its handle closed meanwhile, and may not have seen it
            self.rollback()
            core.check()

    def _past_at(self, state: State, read_seq: int) -> PastSnapshot | None:
        """Return the past at which it reads; None: it reads now, as under an applied token."""
        if self.is_applied:
            return None
        try:
            return PastSnapshot.of(self.core, state, read_seq)
        except BaseException:
            self.core.transactions.end(self._number)  # the error may keep this object
            raise

    def __repr__(self) -> str:
        tables = len(catalogs.names(self.catalog))
        return f"<Transaction {self.phase.value}, read seq {self.read_seq}, {tables} tables>"

    def __enter__(self) -> Self:
        self.require_open()
        return self

    __exit__ = commit_on_exit

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Release a transaction that was not ended: it would keep the recent writes for ever."""
        if is_ending():  # modules may be gone, and there is nothing left to keep
            return
        number = getattr(self, "_number", None)  # __init__ may have refused before
        if number is not None and not self._is_over:  # its end may have been interrupted, too
            self.core.under_way.pop(number, None)
            self.give_up()

    def give_up(self) -> None:
        """Roll back without a lock: for a finalizer, and for `close`, in any thread or handler."""
        self.phase = Phase.ENDED
        for turn in self.turns:
            turn.is_over = True
        self.core.transactions.abandon(self._number)
        self.hold.close()

    def require_open(self) -> None:
        """Raise ClosedError if the transaction or its store has ended."""
        if self.core.refusal is not None:
            self.core.check()
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"the transaction is {self.phase.value}; begin a new one")

    @property
    def is_open(self) -> bool:
        """Whether it is neither committed nor rolled back."""
        return self.phase is Phase.OPEN

    # definitions

    @property
    def is_applied(self) -> bool:
        """Whether its token was applied before it began: the commit will return the old receipt."""
        token = self._token
        return token is not None and token.batch <= catalogs.app_of(self.catalog, token.app).batch

    def named(self, name: str) -> TableDefinition:
        """Return the table called `name`; under an applied token also the last one that was.

        Raises:
            TableNotFoundError: No table has that name.
        """
        known = self._named.get(name) if type(name) is str else None
        if known is not None:
            return known
        try:
            found = catalogs.find(self.catalog, name)
        except TableNotFoundError:
            last = catalogs.last_called(self.catalog, name) if self.is_applied else None
            if last is None:
                raise
            found = last
        if self.past is not None:
            self.past.require_name(name)
            self.past.require_same(found)
        self._named[name] = self._found[found.id] = found
        return found

    def definition(self, table_id: int) -> TableDefinition:
        """Return the definition of a table, own changes included."""
        found = self._found.get(table_id)
        if found is not None and self.phase is Phase.OPEN and self.core.refusal is None:
            return found
        self.require_open()
        table = catalogs.by_id(self.catalog, table_id)
        if table is None or not (catalogs.is_alive(table) or self.is_applied):
            raise catalogs.dropped(table_id, table)
        if self.past is not None:
            self.past.require_same(table)
        self._found[table_id] = table
        return table

    def change(self, entry: group.Entry) -> None:
        """Change the catalog as this transaction sees it, and for all with its commit."""
        cross(Failpoint.DDL_BEFORE_PLAN)
        self.rows.readers.clear()
        self._found.clear()
        self._named.clear()
        self.catalog = catalogs.apply(self.catalog, entry, self.read_seq + 1, 0)
        self._changes.append(entry)
        cross(Failpoint.DDL_AFTER_PLAN)

    def note_reads(self, reads: ReadSet) -> None:
        """Count what was read elsewhere at the same seq, if it is serializable."""
        own = self._reads
        if own is None:
            return
        for incarnation, keys in reads.keys.items():
            own.keys.setdefault(incarnation, set()).update(keys)
        for incarnation, predicates in reads.scans.items():
            own.scans.setdefault(incarnation, []).extend(predicates)
        own.versions.update(reads.versions)

    def note_check(self, table: TableDefinition, reader: Reader, wanted: Filter | None) -> None:
        """Let the commit conflict with one that writes a row of `wanted`, in any isolation.

        None: with one that writes any row.
        """
        if self.rows.checks is None:
            now = self.read_seq if self.past is None else self.past.now.visible
            self.rows.checks = self._reads or ReadSet(checked=now)
        self.rows.remember(self.rows.checks, table, reader, (), wanted)

    def note_app(self, claim: int | None, app_since: int | None) -> None:
        """Let the commit be fenced as of what was known of its token's app elsewhere."""
        self._claim, self._app_since = claim, app_since

    def row_writes(self) -> WriteSet:
        """Return what it wrote and read so far, while that is rows of keyed tables alone."""
        return WriteSet(
            number=0,
            read_seq=self.read_seq,
            parts=self.rows.parts(self.catalog),
            token=self._token,
            claim=self._claim,
            app_since=self._app_since,
            reads=self._reads,
        )

    def large_writes(self, bytes_min: int) -> list[KeyedWrites]:
        """Return its writes to each table that has so many bytes of them, a few rows apart."""
        return [each for each in self.rows.keyed_writes.values() if each.nbytes >= bytes_min]

    def let_go(self, writes: Iterable[KeyedWrites]) -> None:
        """Forget writes that are committed otherwise."""
        for each in writes:
            del self.rows.keyed_writes[each.table]

    @contextmanager
    def whole(self) -> Generator[None]:
        """Run a statement of several steps: if it raises, nothing of it is left.

        Its last step alone may write rows of a keyed table that has some of this transaction;
        otherwise the transaction is rolled back.
        """
        self.require_open()
        catalog, lists = self.catalog, (self._changes, self.after_commit, self.unmoved)
        lengths, take_back = [*map(len, lists)], self.rows.saved()
        try:
            yield
        except BaseException:  # a Ctrl-C, too: the caller may catch it, go on and commit
            if self.is_open:
                self.catalog = catalog
                self._found.clear()
                self._named.clear()
                for each, length in zip(lists, lengths, strict=True):
                    del each[length:]
                if not take_back():
                    self.rollback()
            raise

    @property
    def has_written(self) -> bool:
        """Whether it has rows or definitions of its own."""
        return bool(self._changes or self.rows.has_any)

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return catalogs.names(self.catalog)

    def define_table(self, name: str, schema: object, primary_key: str | Sequence[str]) -> None:
        """Create a table; without `primary_key` a plain one."""
        self.require_open()
        other = definitions.named(self.catalog, name) if self.is_applied else None
        if other is not None:
            self.change(group.Drop(other.id))
        number, new_secret = next(self.core.ids), self.core.tables.keys.new_secret
        made = definitions.create(self.catalog, number, name, schema, primary_key, new_secret)
        self.change(made)

    def has_table(self, name: str, schema: object, primary_key: str | Sequence[str]) -> bool:
        """Say whether a table has the name, and the columns and key that are given.

        Raises:
            SchemaMismatchError: It lacks a column, has it with another type, or has another key.
        """
        found = definitions.named(self.catalog, name)
        if found is not None:
            definitions.refuse_other(found, schema, primary_key)
        return found is not None

    def declare_table(self, name: str) -> None:
        """Create a plain table without columns, which its first version brings.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed.
        """
        self.require_open()
        if self.is_applied and catalogs.last_called(self.catalog, name) is not None:
            return  # clients ask where the table lies, and write there
        empty = Schema(id=1, columns=())
        self.change(definitions.create_staged(self.catalog, next(self.core.ids), name, empty))

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        self.require_open()
        if self.is_applied and name not in self.tables():
            return
        table = self.named(name)
        self.change(group.Drop(table.id))
        self.rows.forget(table.id)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        self.require_open()
        if self.is_applied and definitions.is_renamed(self.catalog, name, new_name):
            return
        entry = definitions.rename(self.catalog, name, new_name)
        self.named(name)  # which refuses what was another table at the seq of the reads
        self.change(entry)

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Tag a sequence number for `lasts_s` seconds (0: for ever); None removes the tag.

        Raises:
            RequestError: The name, the seq or the time is not allowed.
            SnapshotExpiredError: The store does not keep the seq, or it is in the future.
        """
        definitions.check_tag(name, lasts_s)
        self.set_tag(name, seq, lasts_s)

    def set_tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """As `tag`, under a name as the catalog has it: that of a tag of one table, too."""
        self.require_open()
        self.unmoved.append((name, catalogs.tag_of(view_of(self.rows).catalog, name)))
        if seq is None:
            self.change(group.Tagged(name, None))
            return
        if not self.is_applied:  # else nothing is tagged
            self._keep(seq, is_followed=lasts_s > 0)
        self.change(group.Tagged(name, seq, lasts_s))

    def _keep(self, seq: int, *, is_followed: bool) -> None:
        """Keep a seq from vacuum until the commit that tags it."""
        state = State(view_of(self.rows), self.read_seq)
        readable(state, seq, self.core.readers)
        is_in_time = seq >= state.view.record.oldest_seq
        lease = self.core.readers.keep(seq) if is_in_time else None
        if lease is not None:
            self.hold.keep_past(lease)
            return
        keeper = next(keepers(state, seq, is_followed=is_followed), None)
        if keeper is None:  # perhaps since the snapshot
            raise SnapshotExpiredError(f"seq {seq}", kept_from(state), state.visible)
        self.unmoved.append((keeper.name, keeper))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app; see `api.transaction.Transaction.claim`."""
        definitions.check_app(app)
        entry = definitions.claim(self.catalog, app, holder, at)
        if entry is not None and self.is_applied:
            # A number that is not committed may become that of the next claim by another holder.
            found = catalogs.app_of(self.catalog, app)
            raise FencedError(holder or "(unnamed)", found.holder or found.claim, app=app)
        if entry is not None:
            self.change(entry)
        return catalogs.app_of(self.catalog, app).claim

    def forget_app(self, app: str) -> None:
        """Forget a token app; see `api.store.Store.forget_token_app`.

        A transaction of it that begins meanwhile is fenced when it commits (`app_since`).
        """
        entry = definitions.forget_app(self.catalog, app)
        if self.core.transactions.has_app(app):
            raise BusyError(
                f"a transaction of app {app!r} is open, and its batch would be a new one; end it,"
                " then forget the app"
            )
        self.change(entry)

    def truncate(self, table: TableDefinition) -> None:
        """Start the table anew, without rows."""
        self.change(group.Truncate(table.id, next(self.core.ids)))
        self.rows.forget(table.id)

    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        """Commit staged rows with this transaction; see `api.transaction.Transaction.attach`."""
        with self.whole():
            return self._attached(stage, staged, overwrite=overwrite)

    def _attached(self, stage: StageTask, staged: Sequence[Staged], *, overwrite: bool) -> int:
        if not isinstance(stage, StageTask):
            raise RequestError(f"a job must be a result of `stage`; got {stage!r:.80}")
        if self.is_applied:
            return 0
        table = None if stage.creates else self.definition(stage.table_id)
        staged_us = stage.started_us(self.core.files, self.core.root, staged)
        self.hold.keep(staged_us)
        self.hold.names_since(staged_us)
        cross(Failpoint.ATTACH_BEFORE_PLAN)
        if table is None:
            table = self._created(stage)
        elif overwrite:
            table = self._widened(table, stage.schema)
            refuse_other_values(table, stage)
            self.truncate(table)
            table = self.definition(stage.table_id)
        else:
            table = self._widened(table, stage.schema)
            refuse_later_columns(table, stage)
        rows = self.rows.attach(table, stage, staged)
        cross(Failpoint.ATTACH_AFTER_PLAN)
        return rows

    def _created(self, stage: StageTask) -> TableDefinition:
        """Create the table for which rows were staged."""
        table_id = next(self.core.ids)
        self.change(definitions.create_staged(self.catalog, table_id, stage.table, stage.schema))
        return self.definition(table_id)

    def _widened(self, table: TableDefinition, staged: Schema) -> TableDefinition:
        """Add the columns for which rows were staged and that the table lacks.

        Raises:
            SchemaMismatchError: Other columns came since.
        """
        added = [column for column in staged.columns if column.id >= table.next_column]
        for column in added:
            given = table_schema_of(staged).arrow.field(column.name)
            entry, field = definitions.add_field(table, given)
            self.rows.alter(table, entry.schema, ColumnChange(add=[field]))
            self.change(entry)
            table = self.definition(table.id)
        # Ids of columns and schemas count up: another change may have taken those of the job.
        same = [each.schema for each in table.schemas if each.schema.id == staged.id]
        if any(schema != staged for schema in same):
            raise SchemaMismatchError(
                f"the columns of {catalogs.name_of(table)!r} changed since the rows were staged,"
                " which add some; stage them again"
            )
        return table

    def compact(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> None:
        """Let a plain table go on with what an optimize made of some of its files.

        Nothing else is done to it in this transaction. `began_us` is when the first was begun.

        Raises:
            InputsMovedError: The table has not those files any more: it changed, or is gone.
        """
        living = filter(catalogs.is_alive, self.catalog.tables)
        table = next((t for t in living if catalogs.incarnation_of(t).id == incarnation), None)
        if table is None:
            raise InputsMovedError
        self.hold.keep()
        self.hold.names_since(began_us)
        self.rows.plain(table).compact(compacted)

    # the end

    def commit(self) -> Receipt:
        """Commit; return the receipt (with the old one for a token that was applied before).

        Raises:
            ConflictError: Another commit won; run the transaction again.
            RequestError, FencedError, BusyError, UnavailableError: Refused; nothing happened.
            InDoubtError, PoisonedError: See `Committer.commit`.
            NotShippedError: It is committed, and not known to be in the bucket.
        """
        self._leave()
        try:
            spans = self.core.works.spans
            if spans is None or self.span is None:
                receipt = self._commit()
            else:
                receipt = spans.within(self.span, self._commit)
        except BaseException:
            self.finish(None)
            raise
        self.finish(receipt)
        if self._durability == "shipped":
            self.core.wait_shipped(receipt.seq, receipt)
        return receipt

    def begin_commit(self) -> WriteSet | Receipt | None:
        """Begin a commit that others make in a group, and end with `finish`; errors as of `commit`.

        Returns what they commit; a receipt if there is nothing to write, and it has ended. None:
        it has more than a few rows, or more to do than that, and is open: `commit` does it.
        """
        if self.span is not None or self._durability == "shipped":  # its commit is its own
            return None
        rows, hold = self.rows, self.hold
        if self._changes or self._token or self.unmoved or rows.plain_writes or rows.has_bulk:
            return None
        if not (self._reads is rows.checks is self.past is hold.past is None):
            return None
        if any(writes.own.few is None for writes in rows.keyed_writes.values()):
            return None
        self._leave()
        made: WriteSet | Receipt | None = None
        try:
            made = self._write_set()
        finally:
            if not isinstance(made, WriteSet):
                self.finish(made)
        return made

    def commit_alone(self, made: WriteSet) -> Receipt:
        """Commit what `begin_commit` returned and a group did not; then it is for `finish`."""
        return submit(self.core, lambda: made, (), view_of(self.rows))

    def finish(self, receipt: Receipt | None) -> None:
        """End after its commit, as its receipt says; None: it was refused, or is in doubt."""
        if receipt is None:
            self._end()
            return
        self.receipt = receipt  # before all that may fail
        self._end()
        self.phase = Phase.COMMITTED
        for call in self.after_commit:
            call()

    def _leave(self) -> None:
        """Let nothing else be done to it: its commit begins."""
        self.require_open()
        if self.closed_at:  # its work caught the error, and may have left a part out
            raise TableClosedError(self.closed_at)
        if self.core.under_way.pop(self._number, None) is None:  # its handle closes just now
            self.core.check()
            raise ClosedError("the transaction ends; begin a new one")
        self.phase = Phase.ENDED

    def _commit(self) -> Receipt:
        past, plain, view = self.hold.past, self.rows.plain_writes, view_of(self.rows)
        if past is None and not plain:  # rows alone: most transactions
            return submit(self.core, self._write_set, (), view)
        dirty = [writes for writes in plain.values() if writes.versions.steps]
        kept = _NOTHING if past is None else self.core.until_known(past.pop_all())
        with kept, self.core.staging.held(w.table for w in dirty):
            return submit(self.core, self._write_set, dirty, view)

    def _write_set(self) -> WriteSet | Receipt:
        """Return what to commit; a receipt if there is nothing to write."""
        parts, reads = self.rows.parts(self.catalog), self._reads or self.rows.checks
        names_files = self.rows.names_files()
        if not parts and not self._changes and self._token is None:
            return Receipt(self.read_seq, 0)  # a read-only transaction is serial at its snapshot
        if self.past is not None:
            self.past.check(parts, self._changes, reads)
        rows = nbytes = 0
        for part in parts:
            rows, nbytes = rows + part.rows, nbytes + part.nbytes
        has_rows_alone = not (self._changes or self._token or names_files or self.unmoved)
        return WriteSet(
            number=next(self.core.numbers),
            read_seq=self.read_seq if self.past is None else self.past.now.visible,
            parts=parts,
            changes=self._changes,
            token=self._token,
            claim=self._claim,
            app_since=self._app_since,
            reads=reads,
            # What names files is durable before they are let go.
            is_sync=self._durability != "async" or names_files,
            rows=rows,
            nbytes=nbytes,
            staged_us=self.hold.oldest_us() if names_files else None,
            unmoved=self.unmoved,
            planned=self.catalog if has_rows_alone else None,
            few=few_rows(parts) if has_rows_alone and self._reads is None else None,
        )

    def rollback(self) -> None:
        """End without a trace; a second call does nothing."""
        self.core.under_way.pop(self._number, None)
        if self.phase is Phase.OPEN:
            self.phase = Phase.ENDED
        self._end()

    def _end(self) -> None:
        self.core.transactions.end(self._number)
        self.hold.close()
        self.rows.end()
        self.past = None  # as the rows: its caller may keep it
        if self.turns:
            self.core.turns.give_up(*self.turns)
        if self.span is not None:
            self.span.end()
        self._is_over = True
