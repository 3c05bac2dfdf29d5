"""Store: a store that this process opened: as its owner, or as a reader.

What a call does is in the rooms below; here it finds the parts that it needs. See `api.store` for
arguments and errors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import pyarrow as pa

from siltstone.api import results, runs
from siltstone.api.serving import Endpoint, ServeOptions, Service, server_of
from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.arguments import count_of, seconds_from
from siltstone.choices import Durability, Isolation, Missing, Outcome, StagedOp
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.new_table import defined
from siltstone.engine.commit import interrupts
from siltstone.engine.commit.core import SHIPPED_WAIT_S, Core
from siltstone.engine.read.kept import kept_from, readable
from siltstone.engine.read.past import log_entry
from siltstone.engine.read.view import State
from siltstone.engine.write.stage_task import StageTask, begin
from siltstone.errors import (
    ConflictError,
    RequestError,
    SnapshotExpiredError,
    TableExistsError,
    UnavailableError,
)
from siltstone.joined.address import address_of
from siltstone.lance_versions.turns import Turns
from siltstone.local.loop_commits import LoopCommits
from siltstone.local.past.moments import names_given, seq_at, seq_of, seq_of_tag
from siltstone.local.snapshot import LocalSnapshot, seen_by
from siltstone.local.tables import LocalTable
from siltstone.local.transaction import LocalTransaction, WrittenSinceError
from siltstone.maintenance.compaction.compaction import TARGET_ROWS, called
from siltstone.maintenance.compaction.optimize import WORKERS
from siltstone.maintenance.gc.vacuum import GRACE_S
from siltstone.maintenance.merge.merge import ATTEMPTS
from siltstone.maintenance.schedule.upkeep import Ending
from siltstone.open.environment import Env, Storage
from siltstone.open.owner import own_store
from siltstone.open.parts import Owner, follow_store
from siltstone.open.shared import Opened, read, share
from siltstone.options import Options, seconds_of
from siltstone.paths import Place, root_of
from siltstone.process.retry import Retry
from siltstone.process.turns import WAIT_S, TableTurn, TableTurns, check_names
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.telemetry.works import WorkTimes
from siltstone.text.shown import Listing

if TYPE_CHECKING:
    from siltstone.lance_versions.fresh import FreshVersions
    from siltstone.local.statements.running import Running, Written
    from siltstone.local.statements.written import Answer
    from siltstone.query.changes.change_feed import Feeds
    from siltstone.query.changes.change_task import ChangeTask
    from siltstone.query.diff.diff import Diff
    from siltstone.query.diff.tables import DiffOfStates
    from siltstone.query.sql import sql as queries
    from siltstone.query.sql.frames import Variables
    from siltstone.query.sql.writes.statements import Write


_ATTEMPTS = 10


def require_store(root: Path) -> None:
    """Refuse a directory that is no store, where `connect` would create one.

    Raises:
        RequestError, UnsupportedFormatError: It is no store, or of another format; not a byte
            was changed.
    """
    Env().require_store(root)


def warm_up() -> None:
    """Import Lance and plan a first scan, 1-2 s: for a process that reads later, in a thread."""
    Env().warm_up()


class LocalStore(Store):
    """See the module. Any thread."""

    _also_public = frozenset({"options", "store_id", "fresh_versions"})

    def __init__(self, opened: Opened, number: int = 0) -> None:
        """Use `connect`. `number` is that of the handle; without one it is the store's own."""
        self.path, self.options, self._parts = opened.root, opened.options, opened.parts
        self._core = opened.core(number) if number else opened.parts.core
        self._opened, self._number = opened, number

    @classmethod
    def open(
        cls, root: Path, options: Options, *, read_only: bool = False, env: Env | None = None
    ) -> LocalStore:
        """Open a store in an environment; tests bring simulated ones, which are not shared."""
        if env is None:
            return (read if read_only else share)(root, options, cls)
        wire = follow_store if read_only else own_store
        return cls(Opened.alone(root, options, wire(root, options, env)))

    def __repr__(self) -> str:
        if self._core.refusal is not None:
            return f"<Store {self.path}, closed>"
        kind = "read-only" if self.is_read_only else f"epoch {self._core.state().view.record.epoch}"
        return f"<Store {self.path}, {kind}, {len(self.tables())} tables>"

    @property
    def store_id(self) -> str:
        """The store's id, which no other store has, also none that is made at its path later."""
        return self._core.state().view.record.store_id

    def __reduce__(self) -> tuple[Callable[[str, Options], Store], tuple[str, Options]]:
        """Pickle as path and options: what comes back only reads, and never owns the store."""
        return reopen, (str(self.path), self.options)

    @property
    def is_read_only(self) -> bool:
        return self._core.committer is None

    # tables

    def _state(self) -> State:
        """Return what a new snapshot sees.

        Raises:
            ClosedError: The handle is closed, or was inherited by a fork.
        """
        self._core.check()
        return self._core.state()

    def tables(self) -> list[str]:
        return catalogs.names(self._state().view.catalog)

    def __getitem__(self, name: str) -> LocalTable:
        return self.table(catalogs.find(self._state().view.catalog, name).id)

    def table(self, table_id: int) -> LocalTable:
        """Return the table with this id, whatever its name is."""
        spans = self._core.works.spans
        kind = LocalTable if spans is None else spans.kind(LocalTable)
        return kind(self._core, table_id, lambda: self._owner().indexes)

    def create_table(
        self,
        name: str,
        schema: object = None,
        primary_key: str | Sequence[str] = (),
        *,
        data: object = None,
        defaults: object = None,
        exist_ok: bool = False,
    ) -> LocalTable:
        try:
            with self.transaction() as tx:
                tx.create_table(
                    name, schema, primary_key, data=data, defaults=defaults, exist_ok=exist_ok
                )
        except TableExistsError:
            if not exist_ok:
                raise
            with self.transaction() as tx:  # another commit made it meanwhile
                if not tx.has_table(name, defined(schema, defaults), primary_key):
                    raise
        return self[name]

    def drop_table(self, name: str) -> results.Receipt:
        return self._commit(lambda tx: tx.drop_table(name))

    def rename_table(self, name: str, new_name: str) -> results.Receipt:
        return self._commit(lambda tx: tx.rename_table(name, new_name))

    def _commit(self, work: Callable[[LocalTransaction], object]) -> results.Receipt:
        with self.transaction() as tx:
            work(tx)
        assert tx.receipt is not None
        return tx.receipt

    # transactions

    def transaction(
        self,
        *,
        isolation: Isolation = "snapshot",
        durability: Durability = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
        turns: Sequence[str] | None = None,
        read_seq: int | None = None,
    ) -> LocalTransaction:
        taken = () if turns is None else self.take_turns(turns)
        try:
            made = LocalTransaction(
                self._core, isolation=isolation, durability=durability, token=token, claim=claim,
                read_seq=read_seq,
            )  # fmt: skip
        except BaseException:
            self._core.turns.give_up(*taken)
            raise
        made.turns, spans = taken, self._core.works.spans
        if spans is not None:
            made.span = spans.begin("siltstone.transaction")
        if durability == "async":
            owner = self._parts.owner
            assert owner is not None
            try:
                owner.syncer.start()
            except UnavailableError:
                made.rollback()
                raise
        return made

    def take_turns(
        self, names: Sequence[str], wait_s: float = WAIT_S, *, thread: int | None = None
    ) -> tuple[TableTurn, ...]:
        """Take the turns of tables for a transaction that is about to begin.

        Raises:
            RequestError, TableNotFoundError: `names` is no list of names of tables.
        """
        self._core.writer()
        check_names(names)
        catalog = self._state().view.catalog
        for name in names:
            catalogs.find(catalog, name)
        return self._core.turns.take_all(names, wait_s, thread=thread)

    @property
    def _turns(self) -> TableTurns:
        return self._core.turns

    def stage(
        self,
        table: str,
        op: StagedOp | None = None,
        *,
        order_by: str | None = None,
        schema: object = None,
        primary_key: str | Sequence[str] = (),
        missing: Missing = "refuse",
    ) -> StageTask:
        if isinstance(self.path, Place):
            self._core.writer()  # refuses: a reader of a directory may stage files there
        return begin(
            self._core, table, op, order_by,
            schema=schema, primary_key=primary_key, missing=missing,
        )  # fmt: skip

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        with self.transaction() as tx:
            return tx.claim(app, holder, at)

    def claimed(self, app: str) -> tuple[int, str]:
        catalog = self._state().view.catalog
        found = catalogs.app_of(catalog, definitions.check_app(app))
        return catalogs.last_claim(catalog, found), found.holder

    def token_apps(self) -> list[results.TokenApp]:
        return list(self._state().view.catalog.apps)

    def forget_token_app(self, app: str) -> results.Receipt:
        return self._commit(lambda tx: tx.forget_app(app))

    def outcome(self, transaction_id: str) -> Outcome:
        self._core.check()
        return self._parts.outcome(str(transaction_id), spends=True)

    def numbered(self, numbers: Iterator[int]) -> LocalStore:
        """Return the same store, whose next commits have these numbers in their ids."""
        core = replace(self._parts.core, numbers=numbers)
        return LocalStore(Opened.alone(self.path, self.options, replace(self._parts, core=core)))

    def loop_commits(self, under_way: set[str]) -> LoopCommits | None:
        """Return what an event loop commits through, under these ids; None: this store only reads.

        Once for a handle; `LoopCommits.end` comes before its `close`.
        """
        if self.is_read_only:
            return None
        return LoopCommits(self._core, self._parts.reservations, under_way)

    # snapshots and queries

    def snapshot(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> LocalSnapshot:
        state = self._state()
        if sum(x is not None for x in (seq, at, tag)) > 1:
            raise RequestError("a snapshot takes only one of seq, at and tag")
        if isinstance(seq, int) and seq > state.visible:  # another process may show it already
            self._parts.site.manifests.look_now()
            state = self._state()
        wanted = state.visible if seq is None else seq
        if at is not None:
            wanted = seq_at(self._core, state, at)
        if tag is not None:
            wanted = seq_of_tag(state, tag)
        return LocalSnapshot(self._core, state, readable(state, wanted, self._core.readers))

    @property
    def core(self) -> Core:
        """The parts that requests of other Lance clients work with."""
        self._core.check()
        return self._core

    @property
    def tag_turns(self) -> Turns:
        """The turns of statements about the tags of a table."""
        return self._parts.tag_turns

    def fresh_versions(self) -> FreshVersions:
        """Return what makes Lance versions of rows that are not merged, for other clients.

        These are the only files that a read-only store writes, if it is asked for them.
        """
        from siltstone.lance_versions.fresh import FreshVersions  # noqa: PLC0415 - few ask for it

        self._core.check()
        with self._opened.serving:
            if self._parts.fresh is None:
                self._parts.fresh = FreshVersions(self._parts.core)
            return self._parts.fresh

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return self.sql_with(statement, seen_by(caller), parameters)

    def sql_with(
        self, statement: str, variables: Variables, parameters: queries.Parameters = None
    ) -> queries.Result:
        """Run a statement that reads what `variables` returns for a name that no table has."""
        from siltstone.query.sql.writes.parse import write_of  # noqa: PLC0415 - few need it

        write = write_of(statement)
        if write is not None:
            return self._wrote(write, statement, parameters, variables)
        from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

        with self.snapshot() as snapshot:
            return collected(snapshot.read_sql(statement, parameters, variables=variables))

    def write_sql(self, statement: str, parameters: queries.Parameters = None) -> Answer:
        """Run a statement that writes, for a server."""
        from siltstone.local.statements.written import answered  # noqa: PLC0415 - as in `sql_with`

        return answered(self._wrote, statement, parameters)

    def _wrote(
        self, write: Write, statement: str, parameters: queries.Parameters, variables: Variables
    ) -> queries.Result:
        """Run a statement that writes, as one commit."""
        from siltstone.local.statements.definitions import change_index  # noqa: PLC0415
        from siltstone.local.statements.written import result_of  # noqa: PLC0415
        from siltstone.query.sql.frames import read_once  # noqa: PLC0415
        from siltstone.query.sql.writes.checked import checked  # noqa: PLC0415

        self._core.writer()
        variables = read_once(variables)  # it may be run again after a conflict
        checked(statement)
        written = change_index(self, write.statement)
        if written is not None:
            return result_of(write, written, None)
        runs: list[Running] = []

        def work(tx: Transaction) -> tuple[Transaction, Written]:
            assert isinstance(tx, LocalTransaction)
            run, written = tx.run_sql(write, statement, parameters, variables, is_alone=True)
            runs.append(run)
            return tx, written

        try:
            tx, written = self.run(work)
        finally:
            for run in runs:
                run.discard()
        return result_of(write, written, tx.seq)

    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        snapshot = self.snapshot()
        try:
            seen = seen_by(caller)
            return snapshot.read_sql(statement, parameters, snapshot.close, variables=seen)
        except BaseException:
            snapshot.close()
            raise

    def diff(self, a: object, b: object = None, tables: Sequence[str] | None = None) -> Diff:
        from siltstone.query.diff.diff import Diff  # noqa: PLC0415 - few need it

        old, new, counts = self.diff_counts(a, b, tables)
        return Diff(old, new, counts, partial(self.diff_of, a=old, b=new))

    def diff_counts(
        self, a: object, b: object = None, tables: Sequence[str] | None = None
    ) -> tuple[int, int, dict[str, tuple[int, int, int]]]:
        """Return the seqs of a diff, and by name what was added, removed and changed."""
        found = self._states(a, b)
        names = found.names() if tables is None else names_given(tables)
        return found.old, found.new, {name: found.of(name).counts() for name in names}

    def diff_of(self, table: str, a: object, b: object) -> pa.RecordBatchReader:
        """Return the rows of the diff of one table as they are read."""
        return self._states(a, b).of(table).reader()

    def _states(self, a: object, b: object) -> DiffOfStates:
        from siltstone.query.diff.tables import DiffOfStates  # noqa: PLC0415 - as above

        state = self._state()
        old = seq_of(self._core, state, a)
        new = state.visible if b is None else seq_of(self._core, state, b)
        return DiffOfStates(self._core, state, old, new)

    def put_back(
        self, table: str, *, to: object, until: object = None, force: bool = False
    ) -> results.Receipt:
        from siltstone.local.past.put_back import PutBack  # noqa: PLC0415 - as above

        self._core.writer()
        tried: list[PutBack] = []

        def work(tx: Transaction) -> tuple[Transaction, int]:
            assert isinstance(tx, LocalTransaction)
            with tx.putting_back(is_alone=True) as run:
                tried.append(run)
                try:
                    return tx, run.run(table, to, until, force=force)
                except ConflictError as error:
                    raise WrittenSinceError(error) from None

        begin = partial(self.transaction, isolation="serializable")  # of rows that it compares
        try:
            tx, rows = runs.run(begin, self._turns, work, _ATTEMPTS)
        except WrittenSinceError as refused:
            raise refused.error from None
        finally:
            for run in tried:
                run.discard()
        assert tx.receipt is not None
        return msgspec.structs.replace(tx.receipt, rows=rows)

    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]:
        feeds, upto = self._range(since, until)
        return feeds.read(since, upto, tables)

    def _await_seq(self, above: int, wait_s: float) -> int:
        committer = self._core.committer
        if committer is None:
            return super()._await_seq(above, wait_s)
        told = Event()
        with committer.news.heard(told.set):
            if self.durable_seq <= above:
                told.wait(wait_s)
            return self.durable_seq

    def change_tasks(
        self,
        table: str,
        since: int,
        until: int | None = None,
        *,
        begins: bool = False,
        rows_max: int = ROWS_MAX,
        columns_at: int | None = None,
    ) -> list[ChangeTask]:
        from siltstone.query.changes.change_plan import plan_changes  # noqa: PLC0415 - few need it
        from siltstone.query.changes.later_columns import in_columns_of  # noqa: PLC0415 - as above

        feeds, upto = self._range(since, until, rows_max, columns_at)
        tasks = list(plan_changes(feeds, table, since, upto, begins=begins, rows_max=rows_max))
        if columns_at is None:
            return tasks
        return in_columns_of(feeds, table, tasks, upto, columns_at)

    def changes_upto(
        self, table: str, since: int, rows_max: int, until: int | None = None
    ) -> tuple[int, int]:
        from siltstone.query.changes.change_plan import cut  # noqa: PLC0415 - as above

        feeds, upto = self._range(since, until, rows_max)
        return cut(feeds, table, since, upto, rows_max)

    def changes_from(self, table: str) -> int:
        from siltstone.query.changes.change_plan import begins_at  # noqa: PLC0415 - as above

        return begins_at(self._state(), table)

    def _range(
        self, since: int, until: int | None, rows_max: int = 1, columns_at: int | None = None
    ) -> tuple[Feeds, int]:
        """Return the feeds to read changes of, and the sequence number where they end."""
        from siltstone.query.changes.change_feed import Feeds  # noqa: PLC0415 - as above

        state = self._state()
        durable = min(self.durable_seq, state.visible)  # of the state that is read, not of a later
        kept = kept_from(state)
        given = (seq for seq in (until, columns_at) if seq is not None)
        for seq in (since, *given):
            if type(seq) is not int:
                raise RequestError(f"a seq must be an integer; got {seq!r}")
            if seq < 0:
                raise SnapshotExpiredError(f"changes next to seq {seq}", kept, durable)
        if until is not None and until > durable:
            raise SnapshotExpiredError(f"changes until seq {until}", kept, durable)
        if since > durable:
            raise SnapshotExpiredError(f"changes since seq {since}", kept, durable)
        count_of("rows_max", rows_max, 1)
        upto = durable if until is None else until
        if columns_at is not None:
            _refuse_columns_at(columns_at, upto, kept, durable)
        return Feeds(self._core, state), upto

    def log(self, limit: int = 20) -> Listing[results.LogEntry]:
        state = self._state()
        count_of("limit", limit, 0)
        return Listing(log_entry(state, each) for each in self._parts.commits.newest(state, limit))

    def tag(self, name: str, seq: int | None = None, *, lasts: object = None) -> results.Receipt:
        lasts_s = 0 if lasts is None else math.ceil(seconds_of(lasts))
        if lasts is not None and not lasts_s:
            raise RequestError(f"lasts must be a number of seconds above 0; got {lasts!r}")
        wanted = self.durable_seq if seq is None else seq

        return self._tag(name, wanted, lasts_s)

    def _tag(self, name: str, seq: int | None, lasts_s: int) -> results.Receipt:
        """Set or remove a tag, whatever others do to it at the same time."""

        def once() -> results.Receipt:
            return self._commit(lambda tx: tx.tag(name, seq, lasts_s))

        return Retry(ATTEMPTS).run(once)

    def tags(self) -> dict[str, int]:
        return catalogs.store_tags(self._state().view.catalog)

    def untag(self, name: str) -> results.Receipt:
        return self._tag(name, None, 0)

    @property
    def seq(self) -> int:
        return self._state().visible

    @property
    def durable_seq(self) -> int:
        state, committer = self._state(), self._core.committer
        return state.visible if committer is None else committer.durable_seq

    def wait_shipped(self, seq: int | None = None, *, timeout_s: float = SHIPPED_WAIT_S) -> int:
        committer, visible = self._core.writer(), self.seq
        wanted = visible if seq is None else count_of("seq", seq, 0)
        timeout_s = seconds_from("timeout_s", timeout_s)
        self._core.ships()
        if wanted > visible:
            raise RequestError(f"there is no commit at seq {wanted}: the last one is at {visible}")
        if wanted > committer.durable_seq:
            committer.sync()
        return self._core.wait_shipped(wanted, timeout_s=timeout_s)

    # serving others

    def serve_local(self, *, idle_s: float = 60.0) -> Path:
        owner, idle_s = self._owner(), seconds_from("idle_s", idle_s)
        with self._opened.serving:
            if self._parts.endpoint is None:
                self._parts.endpoint = self._endpoint(owner, idle_s)
            self._opened.is_served = True
            return self._parts.endpoint.address

    def share_locally(self) -> None:
        """Let other processes join for as long as a handle is open, without a call of `serve`."""
        is_served = self._opened.is_served
        self.serve_local()
        self._opened.is_served = is_served

    def _endpoint(self, owner: Owner, idle_s: float) -> Endpoint:
        try:
            address = address_of(self._parts.site.files.identity(self.path))
            # Named before it answers: the import takes a second, and who joins waits for it.
            self._parts.announce(address)
            return self._made("serve_local", address, idle_s=idle_s)
        except BaseException as error:
            if owner.ownership.is_held:
                owner.ownership.will_not_serve(str(error))
                self._parts.announce()
            raise

    def serve(
        self, host: str = "127.0.0.1", port: int = 2333, **options: Unpack[ServeOptions]
    ) -> Service:
        self._owner()
        with self._opened.serving:
            if self._parts.service is not None:
                raise RequestError(f"the store is served already, at {self._parts.service.url}")
            made: Service = self._made("serve", host=host, port=port, **options)
            self._parts.service = made
            self._opened.is_served = True
            self._parts.announce()
            return made

    def _made(self, call: str, *arguments: object, **options: object) -> Any:
        """Make a server of this store, with a handle that is not counted: it ends with the store.

        A signal's handler may close the store meanwhile: then nothing else would end the server.
        """
        server = server_of(call)
        self._core.check()
        made = server(LocalStore(self._opened), self._parts, *arguments, **options)
        if self._core.refusal is not None:
            made.close()
            self._core.check()
        return made

    # maintenance

    def checkpoint(self) -> results.Checkpointed:
        owner = self._owner()
        if owner.optimizer.has_left():
            owner.optimizer.take_finished()
        record = owner.checkpointer.checkpoint()
        return results.Checkpointed(record.number, record.flushed_seq)

    def merge(
        self,
        table: str | None = None,
        *,
        attempts: int = ATTEMPTS,
    ) -> results.Merged | results.Deferred:
        owner = self._owner()
        found = catalogs.id_of(self._core.state().view.catalog, table)
        with owner.checkpointer.refreshing():
            result = self._core.works.merge.run(
                lambda: owner.merger.merge(found, attempts=attempts), str
            )
        return called(result, table)

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        workers: int = WORKERS,
    ) -> results.Optimized | results.Deferred:
        owner = self._owner()
        with owner.checkpointer.refreshing():
            found = catalogs.id_of(self._core.state().view.catalog, table)
            result = self._core.works.optimize.run(
                lambda: owner.optimizer.optimize(
                    found, target_rows=target_rows, attempts=attempts, workers=workers
                ),
                str,
            )
        return called(result, table)

    def vacuum(self, dry_run: bool = True, *, grace_s: float = GRACE_S) -> results.Vacuumed:
        return self._owner().vacuum.run(dry_run=dry_run, grace_s=grace_s)

    def verify(
        self, *, deep: bool = False, on_progress: results.Progress | None = None
    ) -> results.Verified:
        return self._storage().verifier().run(deep=deep, on_progress=on_progress)

    def _backups(self) -> WorkTimes:
        return self._core.works.backup

    def _storage(self) -> Storage:
        self._core.check()
        return self._parts.storage

    def status(self) -> results.Status:
        from siltstone.maintenance.schedule.status import status_of  # noqa: PLC0415 - few ask for it

        return status_of(
            self._parts.site,
            self._state(),
            self._parts.counts(),
            memory_bytes_max=self.options.memory_bytes_max,
            parts=self._parts.storage.readers.parts,
        )

    def jobs(self) -> Listing[results.JobStatus]:
        from siltstone.maintenance.schedule.status import jobs_of  # noqa: PLC0415 - as above

        self._core.check()
        return Listing(jobs_of(self._parts.site.jobs))

    def _owner(self) -> Owner:
        self._core.writer()
        owner = self._parts.owner
        assert owner is not None
        owner.ownership.require_in_place()
        return owner

    def close(
        self, upkeep: bool | None = None, *, on_progress: results.Progress | None = None
    ) -> None:
        try:
            ending = Ending.asked(upkeep, on_progress)  # before the handlers are replaced
            with interrupts.DeferredSignals():
                self._close(ending)
        except RequestError:  # of the arguments: nothing was closed
            raise
        except BaseException:  # a signal came before it could wait
            self._close(Ending(upkeep=False))
            raise

    def _close(self, ending: Ending) -> None:
        closed = self._opened.closed
        if self._core.refusal in {None, closed}:  # not in a forked child: nothing there is its own
            self._core.end(closed)
            self._opened.leave(self._number, ending)


def _refuse_columns_at(columns_at: int, until: int, kept: int, durable: int) -> None:
    if columns_at > durable:
        raise SnapshotExpiredError(f"columns at seq {columns_at}", kept, durable)
    if columns_at < until:
        raise RequestError(
            f"changes until seq {until} have the columns of that seq or a later one, not of seq"
            f" {columns_at}"
        )


def reopen(path: str, options: Options) -> LocalStore:
    """Open a store to read it, as a pickled handle comes back."""
    return LocalStore.open(root_of(path, only_reads=True), options, read_only=True)
