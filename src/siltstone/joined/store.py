"""Store: a store that another process owns, joined through the owner's socket.

It answers like `Store`, with the same errors. What it reads is durable; what it writes is committed
by the owner. The owner may go away: then calls raise UnavailableError (commits that were on their
way InDoubtError), and the next process that connects with `join=True` may become the owner.

Handles of tables carry their ids, not their names: a rename does not disturb them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siltstone.api import results
from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.api.tables import Table
from siltstone.choices import Missing, StagedOp
from siltstone.engine.recover.nearby import AskOwner
from siltstone.engine.write.stage_task import StageTask
from siltstone.errors import RequestError
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.near import Near
from siltstone.joined.news.server_news import ServerNews
from siltstone.joined.owner_turns import OwnerTurns
from siltstone.joined.remote import ask, asked_sql, is_write, near_first, remote, written
from siltstone.joined.snapshot import JoinedSnapshot
from siltstone.joined.targets import ServerTarget, Target
from siltstone.joined.transactions.owner_commits import core_of
from siltstone.joined.transactions.transaction import JoinedTransaction
from siltstone.local.snapshot import seen_by
from siltstone.local.store import LocalStore, reopen
from siltstone.local.tables import table_now
from siltstone.operations import Effect, Face, Operation, operation
from siltstone.options import Options, resolve
from siltstone.paths import root_of
from siltstone.text.shown import Listing

if TYPE_CHECKING:
    from siltstone.open.environment import Storage
    from siltstone.query.diff.diff import Diff
    from siltstone.query.sql import sql as queries
    from siltstone.query.sql.dataset import SnapshotDataset


@remote(Face.STORE)
class JoinedStore(Store):
    """A store that another process owns, with the methods of `Store`.

    Any thread may use it. A context manager.

    Examples:
        >>> with st.connect(db.serve(port=0).url) as joined:
        ...     joined["orders"].count()
        2
    """

    def __init__(
        self,
        root: Path | None,
        address: str | Target,
        options: Options | None = None,
        *,
        answer_timeout_s: float | None = None,
    ) -> None:
        """Use `connect(path, join=True)`, or `connect("http://host:port")`: there is no root.

        Without `options` the owner is asked for all that is read.
        """
        self.pool = ConnectionPool(address, root, answer_timeout_s=answer_timeout_s)
        self.path = Path(self.pool.hello["path"]) if root is None else root
        self._is_remote = root is None
        self._owner_turns = OwnerTurns(self.pool)
        self._near: Near | None = None
        if root is not None and options is not None:
            self._near = Near.of(self.pool, root, options)
        if self._near is not None:
            self.pool.committed = self._near.committed
        self._core = None if self._near is None else core_of(self.pool, self._near)
        is_served = isinstance(self.pool.target, ServerTarget)
        self.server_news = ServerNews(self.pool) if is_served else None

    @property
    def near(self) -> LocalStore | None:
        """The same store as this process reads it; None: it asks the owner."""
        return None if self._near is None else self._near.db

    def can_read_alone(self) -> bool:
        """Wait until this process has read the files; say whether it could, and may."""
        if self._near is None or self.pool.refusal is not None:
            return False
        return self._near.look()

    def __repr__(self) -> str:
        if self.pool.refusal is not None:
            return f"<JoinedStore {self.pool.root}, closed>"
        owner = self.pool.hello["pid"]
        return (
            f"<JoinedStore {self.pool.root}, owned by process {owner}, {len(self.tables())} tables>"
        )

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        """Pickle as the path: what comes back is read-only, as of any store."""
        self.require_near("to be pickled")
        return _reopen, (str(self.path),)

    @property
    def is_read_only(self) -> bool:
        return False

    @property
    def _turns(self) -> OwnerTurns:
        return self._owner_turns

    def require_near(self, purpose: str) -> None:
        """Refuse what is done with the store's files where they are not.

        Raises:
            RequestError: The directory of the store is not on this machine, under its own name.
        """
        if self._is_remote and not self.pool.is_near(self.path):
            raise RequestError(
                f"{purpose} the store's files must be on this machine, at {self.path}; this"
                f" store is open through {self.pool.root}"
            )

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        if operation.name == "transaction":
            core = None if self.pool.has_closed else self._core
            return JoinedTransaction(self.pool, named, core)
        if operation.files:
            self.require_near(operation.files)
        return self.pool.call(operation, "", arguments, named)

    def _table(self, table_id: int) -> JoinedTable:
        return JoinedTable(self, table_id)

    def __getitem__(self, name: str) -> JoinedTable:
        near = self.near
        if near is not None:
            with suppress(AskOwner):
                return self._table(near[name].id)
        return self._table(ask(self, operation(Face.STORE, "id_of"), name))

    @near_first
    def snapshot(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> Snapshot:
        return self.snapshot_of_owner(seq=seq, at=at, tag=tag)

    def snapshot_of_owner(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> JoinedSnapshot:
        """Return a snapshot that the owner reads, for what only the owner does at a seq."""
        given = {"seq": seq, "at": at, "tag": tag}
        named = {name: value for name, value in given.items() if value is not None}
        return JoinedSnapshot(self.pool, named)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        self.pool.check()  # before an import, which the child of a fork may wait for
        from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        if is_write(statement):
            found = written(self, Face.STORE, caller, statement, parameters)
            if found.seq is not None:
                self.pool.committed(found.seq)
            return found
        if self.near is not None:
            with suppress(AskOwner), self.near.snapshot() as snapshot:
                seen = seen_by(caller)
                return collected(snapshot.read_sql(statement, parameters, variables=seen))
        return asked_sql(self, Face.STORE, "sql", caller, statement, parameters)

    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        if self.near is not None:
            with suppress(AskOwner):
                seen, snapshot = seen_by(caller), self.near.snapshot()
                return snapshot.read_sql(statement, parameters, snapshot.close, variables=seen)
        return asked_sql(self, Face.STORE, "sql_reader", caller, statement, parameters)

    def lance_catalog(
        self,
        operation_name: str,
        request: Mapping[str, object],
        data: bytes | None = None,
        *,
        keyed: str,
        effect: Effect = Effect.WORK,
    ) -> dict[str, Any]:
        """Have the owner answer a request of the Lance Namespace specification.

        Raises:
            RequestError: The store's files are not here, where a Lance client looks for them.
        """
        row = replace(operation(Face.STORE, "lance_catalog"), effect=effect)
        given = () if data is None else (data,)
        return ask(self, row, operation_name, dict(request), keyed, *given)

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
        # The owner may have the directory at another path than the machines that stage.
        given = {"schema": schema, "primary_key": primary_key}
        new = {name: value for name, value in given.items() if value is not None and value != ()}
        asked = operation(Face.STORE, "stage")
        found = ask(self, asked, table, op, order_by=order_by, missing=missing, **new)
        return replace(found, root=str(self.path))

    def diff(self, a: object, b: object = None, tables: Sequence[str] | None = None) -> Diff:
        from siltstone.query.diff.diff import Diff  # noqa: PLC0415 - few need it

        old, new, counts = self.diff_counts(a, b, tables)
        return Diff(old, new, counts, partial(self.diff_of, a=old, b=new))

    @near_first
    def diff_counts(
        self, a: object, b: object = None, tables: Sequence[str] | None = None
    ) -> tuple[int, int, dict[str, tuple[int, int, int]]]:
        """Return the seqs of a diff, and by name what was added, removed and changed."""
        return ask(self, operation(Face.STORE, "diff_counts"), a, b, tables)

    @near_first
    def diff_of(self, table: str, a: int, b: int) -> pa.RecordBatchReader:
        """Return the rows of the diff of one table as they are read."""
        return ask(self, operation(Face.STORE, "diff_of"), table, a, b)

    @near_first
    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]:
        # The rows of a table are asked for when its reader is first read.
        found = ask(self, operation(Face.STORE, "changes"), since, until, tables)
        return {
            name: pa.RecordBatchReader.from_batches(
                schema, self._changes_of(name, since, found["until"])
            )
            for name, schema in found["schemas"].items()
        }

    def _changes_of(self, name: str, since: int, until: int) -> Iterator[pa.RecordBatch]:
        yield from ask(self, operation(Face.STORE, "changes_of"), name, since, until)

    def _await_seq(self, above: int, wait_s: float) -> int:
        news = self.server_news
        if news is None:
            return super()._await_seq(above, wait_s)
        told = Event()
        with news.heard(told.set):
            if self.durable_seq <= above:
                told.wait(min(wait_s, news.patience_s))
            return self.durable_seq

    @near_first
    def log(self, limit: int = 20) -> Listing[results.LogEntry]:
        return Listing(ask(self, operation(Face.STORE, "log"), limit))

    def jobs(self) -> Listing[results.JobStatus]:
        return Listing(ask(self, operation(Face.STORE, "jobs")))

    # maintenance of the owner, or by this process

    def verify(
        self, *, deep: bool = False, on_progress: results.Progress | None = None
    ) -> results.Verified:
        if on_progress is not None:
            raise RequestError("on_progress needs the owner's process, or read_only=True")
        return ask(self, operation(Face.STORE, "verify"), deep=deep)

    def _storage(self) -> Storage:
        self.require_near("for this call")
        from siltstone.open import environment  # noqa: PLC0415 - it brings an owner's parts

        return environment.Storage.of(self.path, resolve(self.path, {}), environment.Env())

    def close(
        self, upkeep: bool | None = None, *, on_progress: results.Progress | None = None
    ) -> None:
        # Open transactions are rolled back. The store stays open in its owner, which keeps it up.
        del upkeep, on_progress
        self.pool.close()
        if self._core is not None:
            self._core.end(f"the store {self.pool.root} is closed")
        if self._near is not None:
            self._near.db.close()


@remote(Face.TABLE)
class JoinedTable(Table):
    """One table of a joined store: reads are fresh, writes are a transaction each.

    A write whose answer is lost raises InDoubtError; `outcome` of its transaction id tells.
    """

    __slots__ = ("_db", "_id", "near")

    def __init__(self, db: JoinedStore, table_id: int) -> None:
        self._db, self._id = db, table_id
        self.near = None if db.near is None else db.near.table(table_id)

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[object, ...]]:
        """Pickle as path and id: what comes back reads the files, as of any store."""
        self._db.require_near("to be pickled")
        return table_now, (str(self._db.path), "", "first_use", self._id)

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._db.pool.call(operation, f"table/{self._id}", arguments, named)

    @property
    def id(self) -> int:
        return self._id

    def can_read_alone(self) -> bool:
        """See `JoinedStore`."""
        return self._db.can_read_alone()

    @near_first
    def dataset(self) -> SnapshotDataset:
        return self._db.snapshot()[self.name].dataset()


def _reopen(path: str) -> Store:
    return reopen(path, resolve(root_of(path), {}))
