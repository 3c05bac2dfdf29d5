"""Store: an open store whose calls are awaited: `siltstone.Store` for an event loop.

    async with aio.connect("shop") as db:
        await db["orders"].upsert({"id": 1, "total": 20.0})

It belongs to the loop in which it was connected. No call of it blocks the loop: what waits for
nothing is done in place, commits of rows enter a group, and all else is done in a bounded pool of
threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from siltstone import store as door
from siltstone.aio.awaited import Opening, awaited, like
from siltstone.aio.commits import GroupCommits, LoopStore
from siltstone.aio.runs import LoopTurns, TaskRun
from siltstone.aio.snapshot import AsyncSnapshot
from siltstone.aio.streams import ChangeStream, RowStream
from siltstone.aio.tables import AsyncTable
from siltstone.aio.threads import THREADS_MAX, Threads
from siltstone.aio.transaction import AsyncTransaction
from siltstone.api import results, store
from siltstone.arguments import seconds_from
from siltstone.choices import Outcome
from siltstone.errors import RequestError
from siltstone.joined.store import JoinedStore
from siltstone.local.store import LocalStore
from siltstone.options import ConnectOptions

if TYPE_CHECKING:
    from siltstone.local.loop_commits import LoopCommits

T = TypeVar("T")
_VALUES = frozenset({"seq", "durable_seq"})
_IN_MEMORY = _VALUES | {"tables", "tags", "claimed", "token_apps"}
"""What the process that owns the store answers without a wait."""


def connect(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    join: bool = False,
    threads_max: int = THREADS_MAX,
    answer_timeout_s: float | None = None,
    **options: Unpack[ConnectOptions],
) -> Opening[AsyncStore]:
    """Open the store at `path`, or create it: `async with aio.connect(...)`, or `await` it.

    Args:
        path: As for `siltstone.connect`, as all other arguments but one.
        read_only: Only read.
        join: Work through the owner, if another process owns the store.
        threads_max: So many calls that wait are made at once.
        answer_timeout_s: If another process owns the store and says nothing for so long, it is
            taken for gone, though a stopped one owns it still. It bounds each call, maintenance,
            too. None: an answer takes as long as it takes.
        options: See `siltstone.connect`.

    Raises:
        RequestError: `threads_max` is no integer from 1, or `answer_timeout_s` no time.
        SiltstoneError: As for `siltstone.connect`.
    """
    given_s = 1.0 if answer_timeout_s is None else answer_timeout_s
    if not 0 < seconds_from("answer_timeout_s", given_s) < math.inf:
        raise RequestError("answer_timeout_s must be above 0, and finite")
    connects = partial(door.connect, path, read_only=read_only, join=join, **options)
    opens = partial(_bounded, connects, answer_timeout_s)
    return Opening(partial(_opened, opens, threads_max, door.caller()))


def _bounded(connects: Callable[[], store.Store], answer_timeout_s: float | None) -> store.Store:
    made = connects()
    if isinstance(made, JoinedStore) and answer_timeout_s is not None:
        made.pool.wait_at_most(answer_timeout_s)
    return made


async def _opened(
    opens: Callable[[], store.Store], threads_max: int, place: tuple[str, int]
) -> AsyncStore:
    threads = Threads(threads_max)
    with door.asked_at(place):
        return AsyncStore(await threads.run(opens), threads)


class AsyncStore:
    """See the module. `async with` closes it."""

    def __init__(self, db: store.Store, threads: Threads) -> None:
        """Use `connect`."""
        self._db, self._threads = db, threads
        self._commits: LoopCommits | None = None
        groups: GroupCommits | None = None
        if isinstance(db, LocalStore):
            self._commits = db.loop_commits(threads.under_way.ids)
            if self._commits is not None:
                groups = GroupCommits(threads, self._commits, db.options.room_timeout_s)
        news = db.server_news if isinstance(db, JoinedStore) else None
        if self._commits is not None:
            news = self._commits.news
        self._store = LoopStore(db, threads, groups, news)
        self._lines = LoopTurns()

    __contains__ = __iter__ = None  # else Python would ask for the tables 0, 1, 2, ...

    def __repr__(self) -> str:
        return f"<aio.Store {self.path}>"

    @property
    def path(self) -> Path:
        """The directory of the store, at its owner."""
        return self._db.path

    @property
    def is_read_only(self) -> bool:
        """Whether this handle only reads."""
        return self._db.is_read_only

    @property
    def seq(self) -> Awaitable[int]:
        """The sequence number that a new snapshot sees."""
        return self._call("seq")

    @property
    def durable_seq(self) -> Awaitable[int]:
        """The last sequence number that survives a power loss."""
        return self._call("durable_seq")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(upkeep=None if kind is None else False)

    async def _call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        def call() -> Any:
            found = getattr(self._db, name)
            return found if name in _VALUES else found(*arguments, **named)

        if self._store.groups is None or name not in _IN_MEMORY:
            return await self._threads.run(call)
        self._threads.check()
        return call()

    # tables

    def __getitem__(self, name: str) -> AsyncTable:
        """Return the table called `name`.

        Raises:
            TableNotFoundError: No table has that name. Where another process owns the store, the
                first call of the table raises it.
        """
        return AsyncTable(self._store, name, lambda: self._db[name])

    @like(store.Store.create_table)
    async def create_table(self, name: str, *arguments: Any, **named: Any) -> AsyncTable:
        """Create a table, and fill it, in one step; see `siltstone.Store.create_table`."""
        made = await self._call("create_table", name, *arguments, **named)
        return AsyncTable(self._store, name, lambda: made)

    tables = awaited(store.Store.tables)
    drop_table = awaited(store.Store.drop_table)
    rename_table = awaited(store.Store.rename_table)

    # transactions

    @like(store.Store.transaction)
    def transaction(self, **options: Any) -> Opening[AsyncTransaction]:
        """Begin a transaction: `async with db.transaction()`, or `await` it.

        See `siltstone.Store.transaction` for arguments and errors.
        """
        begin = partial(self._db.transaction, **options)
        is_long = any(options.get(name) is not None for name in ("turns", "read_seq"))
        is_short = options.get("durability", "sync") == "sync" and not is_long
        return Opening(partial(self._begun, begin, is_short=is_short))

    async def _begun(self, begin: Callable[[], Any], *, is_short: bool = True) -> AsyncTransaction:
        self._threads.check()
        if is_short and self._store.groups is not None:
            return AsyncTransaction(self._store, begin())
        return AsyncTransaction(self._store, await self._threads.run(begin))

    async def run(self, work: Callable[[AsyncTransaction], Awaitable[T]], attempts: int = 10) -> T:
        """Run `await work(tx)` in a transaction and commit; run it again after a ConflictError.

        See `siltstone.Store.run` for arguments and errors.
        """
        run = TaskRun(
            self._store,
            self._lines,
            self._db._turns,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as in `api`
            partial(self._begun, self._db.transaction),
        )
        return await run.run(work, attempts)

    async def outcome(self, transaction_id: str) -> Outcome:
        """Return what became of a commit; one that is under way in this loop is waited for.

        See `siltstone.Store.outcome` for errors.
        """
        self._threads.check()
        await self._threads.under_way.until_over(transaction_id)
        return await self._call("outcome", transaction_id)

    wait_shipped = awaited(store.Store.wait_shipped)
    stage = awaited(store.Store.stage)
    claim = awaited(store.Store.claim)
    claimed = awaited(store.Store.claimed)
    token_apps = awaited(store.Store.token_apps)
    forget_token_app = awaited(store.Store.forget_token_app)

    # snapshots and queries

    @like(store.Store.snapshot)
    def snapshot(self, **moment: Any) -> Opening[AsyncSnapshot]:
        """Return all tables at one seq: `async with db.snapshot(...)`, or `await` it.

        See `siltstone.Store.snapshot` for arguments and errors.
        """
        return Opening(partial(self._seen, partial(self._db.snapshot, **moment)))

    async def _seen(self, take: Callable[[], Any]) -> AsyncSnapshot:
        return AsyncSnapshot(self._store, await self._threads.run(take))

    @like(store.Store.sql_reader)
    def sql_reader(self, *arguments: Any, **named: Any) -> RowStream:
        """Run a query; return its rows as batches to iterate over: `siltstone.Store.sql_reader`."""
        return RowStream(self._threads, lambda: self._db.sql_reader(*arguments, **named))

    @like(store.Store.changes)
    async def changes(self, *arguments: Any, **named: Any) -> dict[str, RowStream]:
        """Return the row versions of the seqs (since, until] per keyed table, to iterate over.

        See `siltstone.Store.changes` for arguments and errors.
        """
        found = await self._call("changes", *arguments, **named)
        return {
            name: RowStream(self._threads, lambda reader=reader: reader)
            for name, reader in found.items()
        }

    def follow(self, since: int = 0, tables: Sequence[str] | None = None) -> ChangeStream:
        """Iterate over the commits since a seq, and then over each that comes.

        See `siltstone.Store.follow` for arguments and errors, which the first change raises.
        """
        return ChangeStream(self._store, since, tables)

    sql = awaited(store.Store.sql)
    diff = awaited(store.Store.diff)
    put_back = awaited(store.Store.put_back)
    change_tasks = awaited(store.Store.change_tasks)
    changes_upto = awaited(store.Store.changes_upto)
    changes_from = awaited(store.Store.changes_from)
    log = awaited(store.Store.log)
    tag = awaited(store.Store.tag)
    tags = awaited(store.Store.tags)
    untag = awaited(store.Store.untag)

    # serving others, maintenance

    serve_local = awaited(store.Store.serve_local)
    serve = awaited(store.Store.serve)
    checkpoint = awaited(store.Store.checkpoint)
    merge = awaited(store.Store.merge)
    optimize = awaited(store.Store.optimize)
    vacuum = awaited(store.Store.vacuum)
    verify = awaited(store.Store.verify)
    repair = awaited(store.Store.repair)
    backup = awaited(store.Store.backup)
    status = awaited(store.Store.status)
    jobs = awaited(store.Store.jobs)
    import_external = awaited(store.Store.import_external)

    async def close(
        self, upkeep: bool | None = None, *, on_progress: results.Progress | None = None
    ) -> None:
        """Close this handle and all that came from it; see `siltstone.Store.close`.

        Commits that were entered come first. A second call does nothing. A task that is cancelled
        meanwhile does not wait any more; the store closes in any case.
        """
        if self._threads.is_closed:
            return
        await self._threads.close(partial(self._close, upkeep, on_progress))

    def _close(self, upkeep: bool | None, on_progress: results.Progress | None) -> None:
        if self._commits is not None:
            self._commits.end()
        self._db.close(upkeep, on_progress=on_progress)
