"""Transaction: one snapshot over all tables, private changes on top, one commit for all of it.

    OPEN ──commit──▶ COMMITTED      durable (sync) and visible, all of it at one seq
      └──rollback, error, conflict──▶ ENDED      nothing happened

Nothing shared is touched before `commit`. One thread at a time uses a transaction.

The file is long because all that a transaction may hold is read in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import Self
from weakref import ref

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Part, ReadSet, Receipt, WriteSet
from siltstone.engine.filter.filters import Filter, TextFilter
from siltstone.engine.read import table_versions
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader, plain_folder
from siltstone.engine.read.since import changed_since
from siltstone.engine.read.table_versions import TableVersion, TableVersions
from siltstone.engine.read.view import State, storage_folder
from siltstone.engine.write.bulk import BulkWrites
from siltstone.engine.write.keyed_writes import KeyedWrites
from siltstone.engine.write.plain_writes import PlainWrites
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.submission import submit
from siltstone.engine.write.transaction_table import TransactionTable
from siltstone.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    RequestError,
    TableNotFoundError,
    UnavailableError,
)
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import group
from siltstone.formats.keys import Key
from siltstone.formats.manifest import Catalog, TableDefinition
from siltstone.storage.lance.external.version_import import staged_manifest
from siltstone.storage.tables.jobs import Begun
from siltstone.storage.tables.tables import (
    Compacted,
    ImportedVersion,
    InputsMovedError,
    StagedVersion,
)

ISOLATIONS = ("snapshot", "serializable")
DURABILITIES = ("sync", "async")


class Phase(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ENDED = "ended"


class Transaction:
    """See the module. A context manager: commits at the end of the block, or rolls back."""

    def __init__(
        self,
        core: Core,
        *,
        isolation: str = "snapshot",
        durability: str = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
    ) -> None:
        """Begin; `token` is (app, batch): the commit is applied once, however often it is tried.

        If it was applied before (`is_applied`), the same statements succeed again: a table that was
        created is created anew, empty, for this transaction alone, and what is dropped, renamed or
        altered already is left as it is. All of it is forgotten, and the commit returns the old
        receipt. What is read is the store of now, and rows must fit its tables.

        `claim` is what claiming the app gave: the commit is fenced if another claim followed it.
        By default only a claim after this moment fences it.

        Raises:
            RequestError: An unknown isolation or durability, a token or a claim that is none.
        """
        core.writer()
        if isolation not in ISOLATIONS:
            raise RequestError(f"isolation is one of {ISOLATIONS}, not {isolation!r}")
        if durability not in DURABILITIES:
            raise RequestError(f"durability is one of {DURABILITIES}, not {durability!r}")
        self._core, self._is_sync = core, durability == "sync"
        self._token = None if token is None else definitions.token_of(token)
        definitions.check_claim(claim, self._token)
        self.phase = Phase.OPEN
        self._number, state = core.transactions.begin(core.writer().current)
        assert isinstance(state, State)
        self._view, self.read_seq = state.view, state.visible
        self._catalog: Catalog = state.view.catalog
        if claim is None and self._token is not None:
            claim = catalogs.app_of(self._catalog, self._token.app).claim
        self._claim = claim
        self._reads = ReadSet(checked=self.read_seq) if isolation == "serializable" else None
        self._changes: list[group.Entry] = []
        self._keyed: dict[int, KeyedWrites] = {}
        self._plain: dict[int, PlainWrites] = {}
        self._bulk: dict[int, BulkWrites] = {}
        self._readers: dict[int, Reader] = {}
        self._found: dict[int, TableDefinition] = {}
        self._staging = ExitStack()
        self._begun: Begun | None = None
        self._staged_us: int | None = None
        self.receipt: Receipt | None = None
        core.under_way[self._number] = ref(self)
        if core.refusal is not None:  # its handle closed meanwhile, and may not have seen it
            self.rollback()
            core.check()

    def __repr__(self) -> str:
        tables = len(self._keyed) + len(self._plain)
        return f"<Transaction {self.phase.value}, read seq {self.read_seq}, {tables} tables>"

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.phase is not Phase.OPEN:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def __del__(self) -> None:
        """Let go of a transaction that nobody ended: it would keep the recent writes for ever."""
        number = getattr(self, "_number", None)  # __init__ may have refused before
        if number is not None and self.phase is Phase.OPEN:
            self._core.under_way.pop(number, None)
            self.give_up()

    def give_up(self) -> None:
        """Roll back without a lock: for a finalizer, and for `close`, in any thread or handler."""
        self.phase = Phase.ENDED
        self._core.transactions.abandon(self._number)
        self._staging.close()

    def _require_open(self) -> None:
        self._core.check()
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"the transaction is {self.phase.value}; begin a new one")

    @property
    def seq(self) -> int:
        """The seq of the commit (of the snapshot, if it wrote nothing); after the commit only."""
        if self.receipt is None:
            raise RequestError("the transaction has no seq before it is committed")
        return self.receipt.seq

    # tables

    def __getitem__(self, name: str) -> TransactionTable:
        """Return the table called `name`, as this transaction sees it.

        Raises:
            TableNotFoundError: There is none.
        """
        self._require_open()
        return TransactionTable(self, self._named(name).id)

    def _named(self, name: str) -> TableDefinition:
        """Return the table called `name`; under an applied token also the last one that was.

        Raises:
            TableNotFoundError: There is none.
        """
        try:
            return catalogs.find(self._catalog, name)
        except TableNotFoundError:
            found = catalogs.last_called(self._catalog, name) if self.is_applied else None
            if found is None:
                raise
            return found

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return catalogs.names(self._catalog)

    def create_table(
        self, name: str, schema: object, primary_key: str | Sequence[str] = ()
    ) -> TransactionTable:
        """Create a table; without `primary_key` a plain one.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed; a bad schema or key.
        """
        self._require_open()
        other = definitions.giving_up(self._catalog, name) if self.is_applied else None
        if other is not None:
            self._change(other)
        entry = definitions.create(self._catalog, self._core.ids.take(), name, schema, primary_key)
        self._change(entry)
        return self[name]

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        self._require_open()
        if self.is_applied and name not in self.tables():
            return
        table = catalogs.find(self._catalog, name)
        self._change(group.Drop(table.id))
        self._forget(table.id)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        self._require_open()
        if self.is_applied and definitions.is_renamed(self._catalog, name, new_name):
            return
        self._change(definitions.rename(self._catalog, name, new_name))

    # versions, for other clients of Lance

    def versions(self, name: str) -> TableVersions:
        """Return a table as other Lance clients see it in this transaction.

        Raises:
            TableNotFoundError: There is none.
        """
        found = self._versions(name)
        self._core.unite(found.folder)
        return found

    def _versions(self, name: str) -> TableVersions:
        self._require_open()
        table = self._named(name)
        if catalogs.schema_of(table).key:
            at = self._core.readers
            return table_versions.of_keyed(table, self.read_seq + 1, self._view, at)[0]
        writes = self._plain.get(table.id)
        return table_versions.of_plain(
            table, self.read_seq + 1, () if writes is None else writes.versions.steps
        )

    def declare_table(self, name: str) -> None:
        """Create a plain table without columns, which its first version brings.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed.
        """
        self._require_open()
        if self.is_applied and catalogs.last_called(self._catalog, name) is not None:
            return  # clients ask where it lies: there they write
        self._change(definitions.declare(self._catalog, self._core.ids.take(), name))

    def begin_versions(self, name: str) -> None:
        """Give a plain table that has columns its first version, empty, if it has none."""
        self.plain(self.table(self[name].id)).begin()

    def import_version(self, name: str, given: StagedVersion) -> TableVersion:
        """Take over a version that another Lance client staged on the newest one seen here.

        The same manifest a second time is the same version.

        Raises:
            ConflictError: There is another version of that number; the staged one stays inert.
            RequestError: It does not follow, or is no whole version; nothing was changed.
        """
        seen = self._versions(name)
        if seen.is_keyed:
            table_versions.refuse_keyed(name)
        staged = staged_manifest(self._core.root, seen.folder, given)
        known = seen.find(given.version)
        if known is not None and known.pin.path == staged.pin_path(self._core.root):
            return known
        # A client that lost looks for the winner where readers of the plain path do.
        if seen.committed:
            self._core.tables.names.show(seen.folder, seen.pins, is_whole=True)
        table_versions.check_built_on(seen, given.version, self._core.tables)
        table_versions.check_next(seen, given.version, self.read_seq)
        cross(Failpoint.TAKE_BEFORE_PLAN)
        table = self._named(name)
        writes = self.plain(table)
        taken = writes.versions.imported(given)
        table_versions.check_taken(seen, taken)
        table_versions.check_kept(seen, taken, self._core.tables.reader)
        self._names_staged(self._oldest_us(taken))
        entry = definitions.reshaped(table, taken.schema)
        writes.go_on(
            taken.pin, writes.table_schema if entry is None else table_schema_of(entry.schema)
        )
        if entry is not None:
            self._change(entry)
        cross(Failpoint.TAKE_AFTER_PLAN)
        return TableVersion(given.version, taken.pin, 0)

    def _keep_staged(self) -> None:
        """Keep what is staged from now on from vacuum, for as long as the transaction is open.

        Held first, then asked what is condemned, as in `Core.submit`: what comes after is newer.
        """
        if self._begun is None:
            begun = self._core.begun()
            self._staging.enter_context(self._core.hold(begun.first_us))
            self._begun = replace(begun, above_us=max(begun.above_us, self._core.gc_horizon_us()))

    def _names_staged(self, since_us: int) -> None:
        """Note that it names files that were staged elsewhere, the first of them at `since_us`."""
        self._staged_us = since_us if self._staged_us is None else min(self._staged_us, since_us)

    def _oldest_staged_us(self) -> int:
        """Return when the oldest file was written that it may name."""
        assert self._begun is not None
        started_us = self._begun.started_us(self._core.now_us)
        return started_us if self._staged_us is None else min(started_us, self._staged_us)

    def _oldest_us(self, taken: ImportedVersion) -> int:
        """Return when the oldest file was written that `taken` adds: a client staged it, not we."""
        files, root = self._core.files, self._core.root
        try:
            return min(int(files.mtime(root / path) * 1e6) for path in taken.added)
        except OSError as error:
            raise UnavailableError(f"{root}: cannot look at staged files: {error}") from error

    def hide_versions(self, name: str, first: int, end: int) -> int:
        """List the versions [first, end) to clients no more; return how many there were.

        Raises:
            RequestError: The newest one is among them, or the table has a key.
        """
        seen = self.versions(name)
        if seen.is_keyed:
            table_versions.refuse_keyed(name)
        gone = [v for v in seen.versions if first <= v.number < end and not v.is_hidden]
        if self.is_applied:
            return len(gone)
        if seen.newest in gone:
            raise RequestError(f"version {end - 1} of {name!r} is the newest: it cannot be deleted")
        if gone:
            table = catalogs.find(self._catalog, name)
            self._change(group.Hide(catalogs.incarnation_of(table).id, first, end))
        return len(gone)

    def _change(self, entry: group.Entry) -> None:
        cross(Failpoint.DDL_BEFORE_PLAN)
        self._readers.clear()
        self._found.clear()
        self._catalog = catalogs.apply(self._catalog, entry, self.read_seq + 1, 0)
        self._changes.append(entry)
        cross(Failpoint.DDL_AFTER_PLAN)

    # what a TransactionTable asks

    @property
    def is_applied(self) -> bool:
        """Whether its token was applied before it began: the commit will return the old receipt."""
        token = self._token
        return token is not None and token.batch <= catalogs.app_of(self._catalog, token.app).batch

    @property
    def is_strict(self) -> bool:
        """Whether it is serializable, so that what it reads is noted."""
        return self._reads is not None

    def table(self, table_id: int) -> TableDefinition:
        """Return the definition of a table, own changes included."""
        self._require_open()
        found = self._found.get(table_id)
        if found is not None:
            return found
        table = catalogs.by_id(self._catalog, table_id)
        if table is None or not (catalogs.is_alive(table) or self.is_applied):
            raise TableNotFoundError(f"#{table_id}" if table is None else catalogs.name_of(table))
        self._found[table_id] = table
        return table

    def keyed(self, table: TableDefinition) -> KeyedWrites:
        """Return the private writes of a keyed table.

        Raises:
            RequestError: It is a plain table.
        """
        self._refuse_bulk(table)
        writes = self._keyed.get(table.id)
        if writes is None:
            table_schema = table_schema_of(catalogs.schema_of(table))
            if table_schema.keys is None:
                raise RequestError(
                    f"{catalogs.name_of(table)!r} is a plain table: append, overwrite, delete_where"
                )
            incarnation = catalogs.incarnation_of(table)
            writes = self._keyed[table.id] = KeyedWrites(table.id, incarnation.id, table_schema)
            reader = self._readers.get(table.id)
            if isinstance(reader, KeyedReader):
                self._readers[table.id] = reader.remembering(writes.memtable)
        return writes

    def plain(self, table: TableDefinition) -> PlainWrites:
        """Return the private versions of a plain table.

        Raises:
            RequestError: It is a keyed table.
        """
        writes = self._plain.get(table.id)
        if writes is None:
            schema = catalogs.schema_of(table)
            name = catalogs.name_of(table)
            if schema.key:
                raise RequestError(f"{name!r} has a key: insert, upsert, update or delete rows")
            self._keep_staged()
            incarnation = catalogs.incarnation_of(table)
            version = catalogs.version_of(incarnation)
            writes = self._plain[table.id] = PlainWrites(
                table.id,
                incarnation.id,
                plain_folder(version.pin)
                if version is not None
                else storage_folder(catalogs.name_of(table, incarnation.seq), incarnation.id),
                table_schema_of(schema),
                None if version is None else version.pin,
                self._core.tables,
            )
        return writes

    def reader(self, table: TableDefinition) -> Reader:
        """Return the reader of a table over the snapshot and own writes."""
        self._refuse_bulk(table)
        plain = self._plain.get(table.id)
        if plain is not None:
            return self._core.readers.plain(plain.table_schema, plain.versions.pin)
        found = self._readers.get(table.id)
        if found is None:
            found = self._readers[table.id] = self._open(table)
        return found

    def _open(self, table: TableDefinition) -> Reader:
        own = self._keyed.get(table.id)
        reader = self._core.readers.open(
            self._view,
            table,
            self.read_seq,
            own=None if own is None else own.memtable,
            defined_at=self.read_seq + 1,
        )
        if isinstance(reader, KeyedReader):
            return reader.remembering(None if own is None else own.memtable)
        return reader

    def note(
        self, table: TableDefinition, reader: Reader, keys: Sequence[Key], wanted: Filter | None
    ) -> None:
        """Remember what a serializable transaction reads: `keys`, or else a scan of `wanted`."""
        reads = self._reads
        if reads is None:
            return
        step = catalogs.incarnation_of(table)
        if step.seq > self.read_seq:
            return  # made by this transaction: nobody else can have written to it
        incarnation = step.id
        if isinstance(reader, PlainReader):
            version = catalogs.version_of(step, self.read_seq)  # not the staged one of own writes
            reads.versions[incarnation] = 0 if version is None else version.pin.version
        elif keys:
            reads.keys.setdefault(incarnation, set()).update(keys)
        else:
            # The check reads by the schema of the snapshot: a predicate over own columns is opaque.
            is_own = table.schemas[-1].seq > self.read_seq
            is_text = isinstance(wanted, TextFilter)
            predicate = wanted.predicate if is_text and not is_own else None
            reads.scans.setdefault(incarnation, []).append(predicate)

    def alter(
        self,
        table: TableDefinition,
        entry: group.Alter,
        *,
        rename: dict[str, str],
        drop: list[str],
        add: list[pa.Field],
    ) -> None:
        """Change the columns of a table."""
        self._refuse_bulk(table)
        table_schema = table_schema_of(entry.schema)
        if table_schema.keys is None:
            self.plain(table).alter(table_schema, rename=rename, drop=drop, add=add)
        self._change(entry)
        own = self._keyed.get(table.id)
        if own is not None:
            own.rename_shape(table_schema)

    def truncate(self, table: TableDefinition) -> None:
        """Start the table anew, without rows."""
        self._change(group.Truncate(table.id, self._core.ids.take()))
        self._forget(table.id)

    def _forget(self, table_id: int) -> None:
        for writes in (self._keyed, self._plain, self._bulk):
            writes.pop(table_id, None)

    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        """Commit staged rows with this transaction; return how many, each key once.

        For reads in the transaction they are not there yet, so it may neither read nor write the
        rows of a keyed table besides. Several jobs of one table follow each other: a later row
        counts over an earlier one. With `overwrite` the table is truncated first: the one that the
        rows were staged for, whatever it is called by now.

        Raises:
            DuplicateKeyError: Equal keys and no `order_by`, or an insert over a key that lives.
            RequestError: The job was discarded or vacuumed; pieces of another one, or twice; an
                insert behind another job of the table.
            SchemaMismatchError: A column was renamed or dropped since the rows were staged.
        """
        self._require_open()
        if self.is_applied:
            return 0
        table = self.table(stage.table_id)
        self._keep_staged()
        core = self._core
        self._names_staged(stage.started_us(core.files, core.root, staged))
        cross(Failpoint.ATTACH_BEFORE_PLAN)
        if overwrite:
            self.truncate(table)
            table = self.table(stage.table_id)
        if not catalogs.schema_of(table).key:
            writes = self.plain(table)
            files = stage.joined(core.files, core.root, staged)
            return writes.attach(stage.folder, stage.pin, files)
        own = self._keyed.get(table.id)
        if own is not None and own.memtable.rows:
            raise RequestError(f"{catalogs.name_of(table)!r} has rows of this transaction already")
        bulk = self._bulk.get(table.id) or BulkWrites(self._core, self._view)
        is_new = catalogs.incarnation_of(table).seq > self.read_seq
        reader = None if is_new or bulk.parts else self.reader(table)
        assert reader is None or isinstance(reader, KeyedReader)
        rows = bulk.add(table, stage, staged, reader)
        if rows:
            self._bulk[table.id] = bulk
        cross(Failpoint.ATTACH_AFTER_PLAN)
        return rows

    def _refuse_bulk(self, table: TableDefinition) -> None:
        if table.id in self._bulk:
            name = catalogs.name_of(table)
            raise RequestError(f"{name!r} has staged rows in this transaction; use another one")

    def changed_since(
        self, table_id: int, since: int, own: Sequence[tuple[int, int]] = ()
    ) -> tuple[str, int]:
        """Return what a table is called, and the first seq after `since` at which it changed.

        For who read it at `since` in another process and overwrites it: whatever comes after this
        snapshot conflicts with the overwrite anyway. Under an applied token nothing changed.

        Args:
            table_id: The table, whatever it is called.
            since: A seq, not above that of the snapshot.
            own: First and last seqs of commits that do not count.

        Returns:
            The seq is 0 if it did not change, `since.UNKNOWN` if the store keeps no word of it.

        Raises:
            TableNotFoundError: It was dropped.
            RequestError: `since` is in the future.
        """
        table = self.table(table_id)
        if self.is_applied:
            return catalogs.name_of(table), 0
        if since > self.read_seq:
            raise RequestError(f"seq {since} is in the future: the store is at seq {self.read_seq}")
        state = State(self._view, self.read_seq)
        touched = self._core.touched(state, since)
        return catalogs.name_of(table), changed_since(state, table, since, own, touched)

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Name a seq, for so many seconds (0: for ever), or (None) forget the name."""
        if seq is None or not lasts_s:
            self._change(group.Tagged(name, seq))
        else:
            self._change(group.Keep(name, seq, lasts_s))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app: users with an older claim are fenced from this commit on.

        Raises:
            FencedError: `holder` had claimed it, and another one after that; with `at`: the app
                is not the holder's, and its claim is `at` or above. Under an applied token: it is
                not the holder's any more, or nobody knows, as the claim had none.
        """
        definitions.check_app(app)
        entry = definitions.claim(self._catalog, app, holder, at)
        if entry is not None and self.is_applied:
            # A number that is not committed may become that of whoever claims the app next.
            found = catalogs.app_of(self._catalog, app)
            raise FencedError(holder or "of nobody", found.holder or found.claim, app=app)
        if entry is not None:
            self._change(entry)
        return catalogs.app_of(self._catalog, app).claim

    def compact(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> None:
        """Let a plain table go on with what an optimize made of some of its files.

        Nothing else is done to it in this transaction. `began_us` is when the first was begun.

        Raises:
            InputsMovedError: The table has not those files any more: it changed, or is gone.
        """
        living = filter(catalogs.is_alive, self._catalog.tables)
        table = next((t for t in living if catalogs.incarnation_of(t).id == incarnation), None)
        if table is None:
            raise InputsMovedError
        self._keep_staged()
        self._names_staged(began_us)
        self.plain(table).compact(compacted)

    # the end

    def commit(self) -> Receipt:
        """Commit; return the receipt (with the old one for a token that was applied before).

        Raises:
            ConflictError: Another commit won; run the transaction again.
            RequestError, FencedError, BusyError, UnavailableError: Refused; nothing happened.
            InDoubtError, PoisonedError: See `Committer.commit`.
        """
        self._require_open()
        if self._core.under_way.pop(self._number, None) is None:  # its handle closes just now
            self._core.check()
            raise ClosedError("the transaction ends; begin a new one")
        self.phase = Phase.ENDED
        try:
            self.receipt = self._commit()
        finally:
            self._end()
        self.phase = Phase.COMMITTED
        self._show()
        return self.receipt

    def _show(self) -> None:
        """Let clients find the versions that they just made; late, and never a failed commit."""
        for writes in self._plain.values():
            if writes.is_foreign and self._has_committed(writes):
                cross(Failpoint.SHOW_BEFORE_LINK)
                with suppress(UnavailableError):
                    steps = writes.versions.steps
                    self._core.tables.names.show(plain_folder(steps[0]), steps)
                cross(Failpoint.SHOW_AFTER_LINK)

    def _has_committed(self, writes: PlainWrites) -> bool:
        """Say whether a frame names its versions: with a token the receipt may be an older one."""
        table = catalogs.by_id(self._core.state().view.catalog, writes.table)
        known = () if table is None else catalogs.versions_of(table, writes.incarnation)
        return any(version.pin == writes.versions.pin for version in reversed(known))

    def _commit(self) -> Receipt:
        dirty = [writes for writes in self._plain.values() if writes.versions.steps]
        with self._core.staging.held(writes.table for writes in dirty):
            return submit(self._core, self._write_set, dirty, self._view)

    def _write_set(self) -> WriteSet | Receipt:
        """Return what to commit; a receipt if there is nothing to write."""
        parts: list[Part] = [part for bulk in self._bulk.values() for part in bulk.parts]
        for writes in self._keyed.values():
            table = catalogs.by_id(self._catalog, writes.table)
            if table is not None:
                parts += writes.parts(table_schema_of(catalogs.schema_of(table)))
        for plain in self._plain.values():
            parts += plain.parts()
        moves = any(plain.versions.steps for plain in self._plain.values())
        names_files = bool(self._bulk) or moves
        if not parts and not self._changes and self._token is None:
            return Receipt(self.read_seq, 0)  # a read-only transaction is serial at its snapshot
        return WriteSet(
            number=next(self._core.numbers),
            read_seq=self.read_seq,
            parts=parts,
            changes=self._changes,
            token=self._token,
            claim=self._claim,
            reads=self._reads,
            # What names files is durable before they are let go.
            is_sync=self._is_sync or names_files,
            rows=sum(part.rows for part in parts),
            nbytes=sum(part.nbytes for part in parts),
            staged_us=self._oldest_staged_us() if names_files else None,
        )

    def rollback(self) -> None:
        """End without a trace; a second time does nothing."""
        self._core.under_way.pop(self._number, None)
        if self.phase is Phase.OPEN:
            self.phase = Phase.ENDED
        self._end()

    def _end(self) -> None:
        self._core.transactions.end(self._number)
        self._staging.close()


def run(
    begin: Callable[[], Transaction], work: Callable[[Transaction], object], attempts: int
) -> object:
    """Run `work(tx)` in a transaction and commit; again after a ConflictError, `attempts` times.

    Raises:
        ConflictError: The last attempt lost too.
    """
    if attempts < 1:
        raise RequestError(f"attempts is at least 1, not {attempts}")
    for left in range(attempts - 1, -1, -1):
        tx = begin()
        try:
            with tx:
                result = work(tx)
        except ConflictError:
            if not left:
                raise
        else:
            return result
    raise AssertionError
