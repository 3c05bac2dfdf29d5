"""Store: the public door. It holds no logic of its own; `wiring` makes the parts of an open store.

    connect ─▶ own ─▶ claim an epoch ─▶ replay the log ─▶ open           (the owner)
            ├▶ follow the chain and the log                              (read_only=True)
            └▶ ask the owner, through its socket                         (join=True; `joined`)

Maintenance that needs no open store is in `beside`. The file is long because every public call of a
store is here, with its bounds and errors; each is a few lines.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar, cast, overload

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.commit import interrupts
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.read.moment import refuse_future, time_us_of
from siltstone.engine.read.past import LogEntry, log_entry
from siltstone.engine.read.view import State
from siltstone.engine.write.stage_task import StageTask, begin
from siltstone.engine.write.transaction import Transaction, run
from siltstone.errors import OwnedError, RequestError, SnapshotExpiredError, UnavailableError
from siltstone.formats.manifest import Record
from siltstone.handles import Snapshot, Table
from siltstone.joined.address import address_of
from siltstone.joined.places import is_url
from siltstone.maintenance.backup.backup import BackedUp, Backuper, Progress
from siltstone.maintenance.compaction.compaction import TARGET_ROWS
from siltstone.maintenance.compaction.compaction_job import Optimized, called
from siltstone.maintenance.compaction.optimize import WORKERS
from siltstone.maintenance.gc.vacuum import GRACE_S, Vacuumed
from siltstone.maintenance.merge.merge import ATTEMPTS, Deferred, Merged
from siltstone.maintenance.repair.external_appends import Adopted, Adopter
from siltstone.maintenance.repair.quarantine import Quarantine
from siltstone.maintenance.repair.repair_plan import Repaired
from siltstone.maintenance.repair.verify import Verified
from siltstone.maintenance.schedule.status import JobStatus, Status, jobs_of, status_of
from siltstone.opened import Opened, read, share
from siltstone.options import Options, resolve, seconds_of
from siltstone.paths import MEMORY, root_of
from siltstone.query.changes.change_feed import changes, kept_from, readable
from siltstone.query.changes.change_plan import begins_at, cut, plan_changes
from siltstone.query.changes.change_task import ChangeTask
from siltstone.query.fresh import FreshVersions
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.storage.manifest.manifest_store import ATTEMPTS_MAX, random_token
from siltstone.storage.tables.jobs import Jobs
from siltstone.wiring import (
    Carers,
    Endpoint,
    Env,
    Owner,
    Parts,
    Service,
    carers,
    follow_store,
    own_store,
)

if TYPE_CHECKING:
    from siltstone.joined.store import JoinedStore
    from siltstone.query.sql import sql as queries

T = TypeVar("T")
Server = TypeVar("Server", bound=Endpoint | Service)


@overload
def connect(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    join: Literal[False] = False,
    **options: object,
) -> Store: ...
@overload
def connect(
    path: str | os.PathLike[str], *, read_only: bool = False, join: bool, **options: object
) -> Store | JoinedStore: ...
def connect(
    path: str | os.PathLike[str], *, read_only: bool = False, join: bool = False, **options: object
) -> Store | JoinedStore:
    """Open the store at `path`, or create it; a context manager.

    If this process has it open already, with equal options, the handle is one more on the same
    store; the last one that closes, or is dropped, closes it.

    Args:
        path: A directory, or a `file://` URL; `http://host:port` of a server, with `token`;
            `:memory:`, a new store in a temporary directory that goes with its last handle.
        read_only: Beside an owner, in any number of processes; makes no write call at all.
        join: If another process owns the store and serves it (`serve_local`), work through that
            owner; if none owns it, own it and serve others; if this one does, as it has it open.
        options: `memory_bytes_max` (memtables, indexes and caches), `memtable_bytes_max` (a
            checkpoint begins there), `sealed_generations_max`, `segment_bytes` (of the log),
            `sync_interval_ms` (async commits), `retention` ("7d"), `verify` ("first_use" |
            "scrub"), `background` (False: checkpoints run in the writer's thread, merges when
            asked), `force` (own a store on a network file system), `room_timeout_s`,
            `join_timeout_s`, `lance_directory` (list the tables to Lance's directory namespace,
            after each checkpoint and merge).

    Raises:
        OwnedError: Another process owns it (pid, host); this one has it open with other options
            (`differing`).
        BusyError: With `join`: its owner neither served nor ended within `join_timeout_s`.
        RequestError, UnavailableError: Not a store, not a directory, not writable; a bad option.
        UnsupportedFormatError: A newer siltstone wrote it; not a byte was changed.
        CorruptionError: A file is damaged; it is named.
    """
    if is_url(path):
        return _remote(str(path), options, read_only=read_only)
    if path == MEMORY:
        return _in_memory(options, read_only=read_only, join=join)
    root = root_of(path)
    found = resolve(root, options)
    if not join:
        return Store.open(root, found, read_only=read_only)
    if read_only:
        raise RequestError("read_only and join exclude each other: a reader needs no owner")
    return _join(root, found)


def _remote(url: str, options: dict[str, object], *, read_only: bool) -> Store:
    """Work through the server at `url`; a `JoinedStore`, which has the same faces."""
    from siltstone.joined.places import remote_of  # noqa: PLC0415 - an owner needs none of it
    from siltstone.joined.store import JoinedStore  # noqa: PLC0415

    unknown = sorted(set(options) - {"token", "cafile"})
    if unknown or read_only:
        wrong = [*unknown, *(["read_only"] if read_only else [])]
        raise RequestError(f"{wrong} are options of a store's owner; a server takes token, cafile")
    return cast("Store", JoinedStore(None, remote_of(url, **options)))


def _in_memory(given: dict[str, object], *, read_only: bool, join: bool) -> Store:
    """Make a store in a temporary directory, which goes with it."""
    if read_only or join:
        wrong = "read_only" if read_only else "join"
        raise RequestError(f"{MEMORY!r} is a new store of this handle alone: it takes no {wrong}")
    root: Path | None = None
    made: Store | None = None
    try:
        with interrupts.DeferredSignals():
            root = _temporary_directory()
            return (made := share(root, resolve(root, given), _temporary))
    except BaseException:
        with interrupts.DeferredSignals():
            if made is not None:
                made.close()
            elif root is not None:
                shutil.rmtree(root, ignore_errors=True)
        raise


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="siltstone-memory-")).resolve()
    except OSError as error:
        raise UnavailableError(
            f"{MEMORY!r} needs a temporary directory, set TMPDIR to one: {error}"
        ) from error


def _temporary(opened: Opened, number: int) -> Store:
    opened.is_temporary = True
    return _handle(opened, number)


def _join(root: Path, options: Options) -> Store | JoinedStore:
    """Own the store, or join its owner; one that is about to own or to serve it is waited for."""
    from siltstone.joined.joining import Joining  # noqa: PLC0415 - an owner needs none of it

    joining = Joining(root, timeout_s=options.join_timeout_s)
    while True:
        try:
            return share(root, options, _serving, any_options=True, will_serve=True)
        except OwnedError as owned:
            joined = joining.join(owned)
            if joined is not None:
                return joined


def _serving(opened: Opened, number: int) -> Store:
    """Return a handle that lets others join."""
    db, is_served = _handle(opened, number), opened.is_served
    with contextlib.suppress(UnavailableError):  # without the extra it is alone
        db.serve_local()
    opened.is_served = is_served  # nobody asked: it ends with the last handle
    return db


class Store:
    """An open store: transactions, tables, snapshots, maintenance. Any thread."""

    def __init__(
        self,
        root: Path,
        options: Options,
        parts: Parts,
        opened: Opened | None = None,
        core: Core | None = None,
        number: int = 0,
    ) -> None:
        """Use `connect`."""
        self.path, self.options = root, options
        self._parts = parts
        self._core = core or parts.core
        self._opened = opened or Opened.alone(root, options, parts)
        self._number = number

    @classmethod
    def open(
        cls, root: Path, options: Options, *, read_only: bool = False, env: Env | None = None
    ) -> Store:
        """Open a store in an environment; tests bring simulated ones, which are not shared."""
        if env is None:
            return (read if read_only else share)(root, options, _handle)
        wire = follow_store if read_only else own_store
        return cls(root, options, wire(root, options, env))

    def __repr__(self) -> str:
        if self._core.refusal is not None:
            return f"<Store {self.path}, closed>"
        kind = "read-only" if self.is_read_only else f"epoch {self._core.state().view.record.epoch}"
        return f"<Store {self.path}, {kind}, {len(self.tables())} tables>"

    @property
    def store_id(self) -> str:
        """What tells this store from any other, also from one that is made at its path later."""
        return self._core.state().view.record.store_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[str, Options], Store], tuple[str, Options]]:
        """Pickle as path and options: what comes back is read-only and never claims ownership."""
        return _reopen, (str(self.path), self.options)

    @property
    def is_read_only(self) -> bool:
        """Whether this handle only reads."""
        return self._core.committer is None

    # tables

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        self._core.check()
        return catalogs.names(self._core.state().view.catalog)

    def __getitem__(self, name: str) -> Table:
        """Return the table called `name`.

        Raises:
            TableNotFoundError: There is none.
        """
        self._core.check()
        found = catalogs.find(self._core.state().view.catalog, name)
        return Table(self._core, found.id, self.transaction, lambda: self._owner().indexes)

    def create_table(
        self, name: str, schema: object, primary_key: str | Sequence[str] = ()
    ) -> Table:
        """Create a table; without `primary_key` a plain one.

        Args:
            name: 1-128 letters, digits, `_`, `-`, `.`; not starting with `.` or `_`.
            schema: A pyarrow schema, or a dict of name to type ("int64", "string", ...).
            primary_key: One column or several: int, string, binary, date, timestamp, decimal, bool.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed; a bad schema or key.
        """
        with self.transaction() as tx:
            tx.create_table(name, schema, primary_key)
        return self[name]

    def drop_table(self, name: str) -> Receipt:
        """Drop a table; older snapshots still see it."""
        return self._ddl(lambda tx: tx.drop_table(name))

    def rename_table(self, name: str, new_name: str) -> Receipt:
        """Rename a table; handles of it go on."""
        return self._ddl(lambda tx: tx.rename_table(name, new_name))

    def _ddl(self, work: Callable[[Transaction], object]) -> Receipt:
        with self.transaction() as tx:
            work(tx)
        assert tx.receipt is not None
        return tx.receipt

    # transactions

    def transaction(
        self,
        *,
        isolation: str = "snapshot",
        durability: str = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
    ) -> Transaction:
        """Begin a transaction over all tables; see `engine.write.transaction.Transaction`."""
        tx = Transaction(
            self._core, isolation=isolation, durability=durability, token=token, claim=claim
        )
        if durability == "async":
            try:
                self._parts.start_syncing()
            except UnavailableError:
                tx.rollback()
                raise
        return tx

    def stage(self, table: str, op: str | None = None, *, order_by: str | None = None) -> StageTask:
        """Begin a bulk commit: `run` writes pieces in any process, `Transaction.attach` commits.

        Also on a read-only store, which writes nothing but the files of this job.

        Args:
            table: A table that exists; what is staged fits it as it is now.
            op: "upsert" (default), "insert" or "delete" of a keyed table; "append" to a plain one.
            order_by: Of equal keys in the job the row with the highest value of this column
                counts; without it equal keys are refused when they are attached.

        Raises:
            TableNotFoundError, SchemaMismatchError, RequestError: No such table, column or op.
            UnavailableError: The file system refuses.
        """
        return begin(self._core, table, op, order_by)

    def run(self, work: Callable[[Transaction], T], attempts: int = 10) -> T:
        """Run `work(tx)` in a transaction and commit; again after a ConflictError.

        Raises:
            ConflictError: All `attempts` lost.
        """
        return run(self.transaction, work, attempts)  # type: ignore[return-value]

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app: older users of it are fenced from now on; return the claim.

        Args:
            app: The app of tokens (app, batch).
            holder: Who claims it, by a name of its own (a run's id): while it holds the app, it
                gets the same claim again.
            at: The number of the holder's claim, if it is a new one: of several holders the one
                with the highest number has the app in the end, whoever comes first.

        Raises:
            FencedError: The holder had claimed it, and another one after that (of very old holders
                only a number tells); with `at`: the app is another's at that number or above.
        """
        with self.transaction() as tx:
            return tx.claim(app, holder, at)

    def claimed(self, app: str) -> tuple[int, str]:
        """Return the last claim of a token app, and its holder; 0 and "": none."""
        self._core.check()
        found = catalogs.app_of(self._core.state().view.catalog, definitions.check_app(app))
        return found.claim, found.holder

    def outcome(self, transaction_id: str) -> str:
        """Return "committed", "not committed" or "in doubt" for a transaction's id.

        "not committed" is a promise: a commit under the id that is still on its way is refused. A
        read-only store cannot promise it, and says "in doubt" of what it does not see.

        Raises:
            RequestError: No transaction of this store has such an id.
            SnapshotExpiredError: It is older than the past that is kept; nobody knows any more.
        """
        self._core.check()
        return self._parts.outcome(str(transaction_id), spends=True)

    # snapshots and queries

    def snapshot(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> Snapshot:
        """Return all tables at one seq: at `seq`, at a moment, at a tag, or now.

        Args:
            seq: One that is kept.
            at: A datetime with a zone (`datetime.now().astimezone()`), or a text with one
                ("2026-11-20T10:00Z"): what had been committed by then.
            tag: Its name.

        Raises:
            SnapshotExpiredError: In the future, or older than what is kept.
            RequestError: More than one of the three, no such tag, or a moment without a zone.
        """
        self._core.check()
        if sum(x is not None for x in (seq, at, tag)) > 1:
            raise RequestError("a snapshot is at a seq, at a moment or at a tag: give one")
        state = self._core.state()
        wanted = state.visible if seq is None else seq
        if at is not None:
            wanted = self._seq_at(state, at)
        if tag is not None:
            found = catalogs.tag_of(state.view.catalog, tag)
            if found is None:
                raise RequestError(f"no tag {tag!r}; there are {sorted(self.tags())}")
            wanted = found.seq
        return Snapshot(self._core, state, _kept(state, wanted))

    def _seq_at(self, state: State, moment: object) -> int:
        time_us, parts = time_us_of(moment), self._parts
        refuse_future(
            moment,
            time_us,
            now_us=max(parts.now_us(), parts.commits.last_time_us(state)),
            oldest=state.view.record.oldest_seq,
            newest=state.visible,
        )
        return parts.commits.seq_at(state, time_us)

    def fresh_versions(self) -> FreshVersions:
        """Return what makes Lance versions of rows that are not merged, for other clients.

        The only thing that a read-only store writes, if it is asked to: files that nobody names.
        """
        self._core.check()
        with self._opened.serving:
            if self._parts.fresh is None:
                self._parts.fresh = FreshVersions(self._parts.core)
            return self._parts.fresh

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a query with DuckDB over one fresh snapshot."""
        with self.snapshot() as snapshot:
            return snapshot.sql(statement, parameters)

    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]:
        """Return the row versions (since, until] per keyed table; ends at the durable seq.

        A feed is of a name: a copy of what was called so at `since` becomes a copy of what is
        called so at `until`, also over truncates, drops and renames
        (see `query.changes.change_feed`).

        From seq 0, for who has nothing, a table whose first versions are gone begins with its rows
        of one seq, with `_op` "snapshot".

        Raises:
            SnapshotExpiredError: The range begins (not at 0) or ends below the oldest seq that is
                kept, also at a tag there; or it ends in the future.
            SchemaMismatchError: A name passed to a table with another key: begin again from 0.
        """
        state, upto = self._range(since, until)
        return changes(self._core, state, since, upto, tables)

    def change_tasks(
        self,
        table: str,
        since: int,
        until: int | None = None,
        *,
        begins: bool = False,
        rows_max: int = ROWS_MAX,
    ) -> list[ChangeTask]:
        """Cut the changes (since, until] of a table into tasks that other processes may read.

        Args:
            table: The name of a keyed table.
            since: Above this; 0 is as in `changes`.
            until: Up to this; by default the durable seq.
            begins: First the rows that live at `since`, as upserts of that seq.
            rows_max: About how many stored rows a task reads.

        Raises:
            SnapshotExpiredError: The range is not kept any more, as for `changes`.
            SchemaMismatchError: The name passed to a table with another key.
            TableNotFoundError, RequestError: No such table; a plain table; a bad range.
        """
        state, upto = self._range(since, until)
        if type(rows_max) is not int or rows_max < 1:
            raise RequestError(f"rows_max is an integer from 1, not {rows_max!r}")
        planned = plan_changes(
            self._core, state, table, since, upto, begins=begins, rows_max=rows_max
        )
        return list(planned)

    def changes_upto(
        self, table: str, since: int, rows_max: int, until: int | None = None
    ) -> tuple[int, int]:
        """Return the highest seq up to `until` with at most `rows_max` changes, and their number.

        A commit is never cut: the first one is within, and counted in part, however many changes
        it has. Reads the seqs of about `rows_max` changes.
        """
        state, upto = self._range(since, until)
        if type(rows_max) is not int or rows_max < 1:
            raise RequestError(f"rows_max is an integer from 1, not {rows_max!r}")
        return cut(self._core, state, table, since, upto, rows_max)

    def changes_from(self, table: str) -> int:
        """Return the lowest seq at which the table can be read and since which changes are kept.

        Raises:
            TableNotFoundError, RequestError: No such table; a plain one.
        """
        self._core.check()
        return begins_at(self._core.state(), table)

    def _range(self, since: int, until: int | None) -> tuple[State, int]:
        self._core.check()
        state = self._core.state()
        durable = min(self.durable_seq, state.visible)  # of the state that is read, not of a later
        for seq in (since, until):
            if seq is not None and type(seq) is not int:
                raise RequestError(f"a seq is an integer, not {seq!r}")
            if seq is not None and seq < 0:
                raise SnapshotExpiredError(f"changes beside seq {seq}", 0, durable)
        if until is not None and until > durable:
            raise SnapshotExpiredError(f"changes until seq {until}", 0, durable)
        if since > durable:
            raise SnapshotExpiredError(f"changes since seq {since}", 0, durable)
        return state, durable if until is None else until

    def log(self, limit: int = 20) -> list[LogEntry]:
        """Return the newest commits, newest first, at most `limit`.

        Below the oldest seq that is kept a table goes by the oldest name that is known, and one of
        which nothing is known any more by a number ("#7").
        """
        self._core.check()
        if limit < 0:
            raise RequestError(f"limit is at least 0, not {limit}")
        state = self._core.state()
        return [log_entry(state, commit) for commit in self._parts.commits.newest(state, limit)]

    def tag(self, name: str, seq: int | None = None, *, lasts: object = None) -> Receipt:
        """Name a seq (default: the newest durable one); its past is kept until `untag`.

        Args:
            name: 1 to 128 characters; a tag of that name moves.
            seq: One that can be read.
            lasts: A duration ("7d"): the tag keeps all changes since the seq, too, and is forgotten
                by the first vacuum after it was not set again for so long.

        Raises:
            SnapshotExpiredError, RequestError: No such seq any more; no name or no duration.
        """
        self._core.check()
        if not isinstance(name, str) or not 0 < len(name) <= 128:
            raise RequestError(f"a tag is a string of 1 to 128 characters, not {name!r}")
        lasts_s = 0 if lasts is None else math.ceil(seconds_of(lasts))
        if lasts is not None and not 0 < lasts_s < 1 << 40:
            raise RequestError(f"a tag lasts for some seconds, not for {lasts!r}")
        wanted = self.durable_seq if seq is None else seq
        state = self._core.state()
        if lasts_s and wanted < kept_from(state):
            raise SnapshotExpiredError(f"seq {wanted} on", kept_from(state), state.visible)
        # No vacuum takes it before the tag is there.
        with self._core.until_known(self.snapshot(seq=wanted)):
            return self._ddl(lambda tx: tx.tag(name, wanted, lasts_s))

    def tags(self) -> dict[str, int]:
        """Return the tags and their seqs."""
        self._core.check()
        return {tag.name: tag.seq for tag in self._core.state().view.catalog.tags}

    def untag(self, name: str) -> Receipt:
        """Forget a tag."""
        return self._ddl(lambda tx: tx.tag(name, None))

    @property
    def seq(self) -> int:
        """The seq that a new snapshot sees."""
        self._core.check()
        return self._core.state().visible

    @property
    def durable_seq(self) -> int:
        """The last seq that survives a power loss."""
        self._core.check()
        committer = self._core.committer
        return self._core.state().visible if committer is None else committer.durable_seq

    def serve_local(self, *, idle_s: float = 60.0) -> Path:
        """Let other processes of this user join (`connect(path, join=True)`); return the socket.

        A second call changes nothing. It ends with the store, which now stays open until the last
        handle closes, even if all of them are dropped.

        Args:
            idle_s: A transaction of a joined process that it leaves alone for longer is rolled
                back; a second call does not change it.

        Raises:
            ReadOnlyError: This handle does not own the store.
            UnavailableError: The extra `server` is not installed, or no socket can be made.
        """
        owner = self._owner()
        with self._opened.serving:
            if self._parts.endpoint is None:
                self._parts.endpoint = self._serve(owner, idle_s)
            self._opened.is_served = True
            return self._parts.endpoint.address

    def _serve(self, owner: Owner, idle_s: float) -> Endpoint:
        address = address_of(self._parts.files.identity(self.path))
        epoch = self._core.state().view.record.epoch
        # Named before it answers: the import takes a second, and who joins meanwhile waits for it.
        owner.ownership.announce(epoch=epoch, endpoint=str(address))
        try:
            # By name: the server is above this module, and an extra.
            module = importlib.import_module("siltstone.server.endpoint")
            self._core.check()  # a signal's handler may have closed the store meanwhile
            return self._unless_closed(
                module.Endpoint(self._inner(), self._parts, address, idle_s=idle_s)
            )
        except BaseException as error:
            if owner.ownership.is_held:
                owner.ownership.will_not_serve()
                owner.ownership.announce(epoch=epoch)
            if isinstance(error, ImportError):
                text = "serve_local() needs FastAPI: pip install 'siltstone[server]'"
                raise UnavailableError(text) from error
            raise

    def _inner(self) -> Store:
        """Return a handle that is not counted, for what ends with the store."""
        return Store(self.path, self.options, self._parts, self._opened)

    def _unless_closed(self, server: Server) -> Server:
        """End what began to serve while a handler closed the store: nobody else knows of it."""
        if self._core.refusal is not None:
            server.close()
            self._core.check()
        return server

    def serve(self, host: str = "127.0.0.1", port: int = 2333, **options: object) -> Service:
        """Answer clients over TCP, in threads, until the store closes: the REST server.

        The store stays open for them, even if all handles are dropped.

        Args:
            host: Where it listens; one that other machines reach needs `tokens`.
            port: 0 is any that is free; the service has it as `port`, and its `url`.
            options: `tokens`, `allowed_hosts`, `certificate`, `key`, `limits`; see
                `server.rest.service.Service`.

        Raises:
            RequestError: Other machines would reach it without a token; it serves already.
            ReadOnlyError: This handle does not own the store.
            UnavailableError: The extra `server` is not installed, or the address cannot be had.
        """
        self._owner()
        with self._opened.serving:
            if self._parts.service is not None:
                raise RequestError(f"the store is served already, at {self._parts.service.url}")
            try:
                # By name: the server is above this module, and an extra.
                module = importlib.import_module("siltstone.server.rest.service")
            except ImportError as error:
                text = "serve() needs FastAPI: pip install 'siltstone[server]'"
                raise UnavailableError(text) from error
            self._core.check()
            made = self._unless_closed(
                module.Service(self._inner(), self._parts, host=host, port=port, **options)
            )
            self._parts.service = made
            self._opened.is_served = True
            return made

    # maintenance

    def checkpoint(self) -> Record:
        """Flush everything committed so far into Lance; blocks nobody."""
        owner = self._owner()
        if owner.optimizer.has_left():
            owner.optimizer.take_finished()
        return owner.checkpointer.checkpoint()

    def merge(
        self,
        table: str | None = None,
        *,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
    ) -> Merged | Deferred:
        """Fold what is flushed into the base of one table, or of all.

        Args:
            table: Its name now; of one that was never flushed there is nothing to fold.
            attempts: How often it is planned at most, when others touch what it reads.
            publish_attempts: How many records each of them may try; past both it is `Deferred`.

        Raises:
            TableNotFoundError: `tables()` does not list it.
        """
        owner = self._owner()
        found = catalogs.id_of(self._core.state().view.catalog, table)
        result = owner.merger.merge(found, attempts=attempts, publish_attempts=publish_attempts)
        owner.checkpointer.adopt_news()
        return called(result, table)

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
        workers: int = WORKERS,
    ) -> Optimized | Deferred:
        """Make few large files of many small ones in one table, or in all; no answer changes.

        Args:
            table: As for `merge`.
            target_rows: How many rows a file should have.
            attempts: As for `merge`.
            publish_attempts: As for `merge`.
            workers: How many files are written at once.

        Raises:
            TableNotFoundError: `tables()` does not list it.
        """
        owner = self._owner()
        result = owner.optimizer.optimize(
            catalogs.id_of(self._core.state().view.catalog, table),
            target_rows=target_rows,
            attempts=attempts,
            publish_attempts=publish_attempts,
            workers=workers,
        )
        owner.checkpointer.adopt_news()
        return called(result, table)

    def vacuum(self, dry_run: bool = True, *, grace_s: float = GRACE_S) -> Vacuumed:
        """Delete what no kept record, tag or reader needs; by default only say what would go.

        Args:
            dry_run: Delete and change nothing.
            grace_s: How long a file that nobody published is left alone; longer than any
                transaction, load or merge takes.
        """
        return self._owner().vacuum.run(dry_run=dry_run, grace_s=grace_s)

    def verify(self, *, deep: bool = False, on_progress: Progress | None = None) -> Verified:
        """Read what the store is made of and name what is damaged; changes nothing.

        Args:
            deep: Every byte and every row, not only what names them.
            on_progress: Hears what is read next, how many files are done, and of how many.
        """
        return self._carers().verifier.run(deep=deep, on_progress=on_progress)

    def repair(
        self,
        dry_run: bool = True,
        *,
        deep: bool = False,
        on_progress: Progress | None = None,
    ) -> Repaired:
        """Say what is damaged and what could be done; nobody may have the store open to do it.

        With `dry_run=False` it raises as soon as there is something to do: close the store, and
        call `siltstone.repair(path, dry_run=False)`.

        Raises:
            OwnedError: There is something to repair, and this process or another owns the store.
        """
        return self._carers().repairer.run(dry_run=dry_run, deep=deep, on_progress=on_progress)

    def _carers(self) -> Carers:
        self._core.check()
        parts = self._parts
        readers = self._core.readers
        return carers(
            parts.files, self.path, parts.manifests, parts.tables, readers, now_us=parts.now_us
        )

    def adopt(self, table: str, dry_run: bool = True) -> Adopted:
        """Commit the rows that strangers appended to a plain table past siltstone.

        That is `lance.write_dataset(path, mode="append")` on the table's folder; `verify` reports
        it as drift. By default only a preview.

        Raises:
            TableNotFoundError, RequestError: No such table; a keyed one; a version that did
                something else than append. Nothing was changed.
            SchemaMismatchError: The rows do not fit the table.
        """
        self._core.check()
        if not dry_run:
            self._owner()
        found = self[table].id
        if not self.is_read_only:
            self.checkpoint()
        parts = self._parts
        aside = Quarantine(parts.files, self.path, now_us=parts.now_us, new_token=random_token)
        adopter = Adopter(files=parts.files, root=self.path, tables=parts.tables, quarantine=aside)
        return adopter.run(found, parts.manifests.newest(), self.transaction, dry_run=dry_run)

    def backup(
        self,
        directory: str | os.PathLike[str],
        incremental: bool = False,
        *,
        link: bool = False,
        on_progress: Progress | None = None,
    ) -> BackedUp:
        """Copy one consistent snapshot, all that is durable now, while writers go on.

        The owner makes a checkpoint first. `siltstone.restore` makes a store of it.

        Args:
            directory: Absent, empty, or one of backups of this store.
            incremental: Files of older backups in the directory serve this one, too.
            link: Make hard links, not copies: no space, and no protection of the bytes.
            on_progress: Hears the next file, the bytes that are done, and the bytes of all.

        Raises:
            RequestError: The directory holds something else, or backups.
            CorruptionError: A file of the store is damaged; it is named.
            BusyError, UnavailableError: Another backup into it runs; the file system refuses.
        """
        self._core.check()
        if not self.is_read_only:
            self.checkpoint()
        parts = self._parts
        backuper = Backuper(
            files=parts.files,
            root=self.path,
            manifests=parts.manifests,
            tables=parts.tables.reader,
            now_us=parts.now_us,
        )
        target = root_of(directory)
        return backuper.run(target, incremental=incremental, link=link, on_progress=on_progress)

    def status(self) -> Status:
        """Return what the store holds and owes now: seqs, log, memory, tables, the last failure."""
        self._core.check()
        parts = self._parts
        return status_of(
            parts.files,
            self.path,
            self._core.state(),
            parts.counts(),
            tables=parts.tables.reader,
            jobs=self._jobs(),
            memory_bytes_max=self.options.memory_bytes_max,
        )

    def jobs(self) -> list[JobStatus]:
        """Return the jobs of maintenance, of all processes: running, dead, and the last that ended.

        What a dead optimize finished is used by the next one; `repair` puts its record aside.
        """
        self._core.check()
        return jobs_of(self._jobs())

    def _jobs(self) -> Jobs:
        return Jobs(self._parts.files, self.path, self._parts.now_us, self._core.new_token)

    def _owner(self) -> Owner:
        self._core.writer()
        owner = self._parts.owner
        assert owner is not None
        owner.ownership.require_in_place()
        return owner

    def close(self) -> None:
        """End this handle, and what was got from it; the last one syncs and closes the store.

        A second time does nothing.

        Ctrl-C, or another signal whose handler raises, is heard when the store is given up.
        """
        try:
            with interrupts.DeferredSignals():
                self._close()
        finally:
            self._close()  # a signal came before it could wait

    def _close(self) -> None:
        closed = self._opened.closed
        if self._core.refusal in {None, closed}:  # not in a forked child: nothing there is its own
            self._core.end(closed)
            self._opened.leave(self._number)


def _handle(opened: Opened, number: int) -> Store:
    """Return a handle on what this process has open."""
    core = opened.core(number) if number else None
    return Store(opened.root, opened.options, opened.parts, opened, core, number)


def _kept(state: State, seq: int) -> int:
    """Return `seq` if a snapshot can be had there."""
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise RequestError(f"a seq is an integer, not {seq!r}")
    return readable(state, seq)


def _reopen(path: str, options: Options) -> Store:
    return Store.open(root_of(path), options, read_only=True)
