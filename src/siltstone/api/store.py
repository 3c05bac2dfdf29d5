"""Store: the public class: transactions, tables, snapshots, change feeds and maintenance.

`connect` returns one, whichever process owns it:

    connect("shop")                      LocalStore    this process owns it, or only reads it
    connect("shop", join=True)           JoinedStore   another process of this machine owns it
    connect("http://host:2333")          JoinedStore   a server in front of it

Every public call is declared here with its bounds and errors; the classes above say how it works.
Maintenance that needs no open store is in `siltstone.admin`.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack

import pyarrow as pa

from siltstone.api import results, runs
from siltstone.api.following import follow, pauses
from siltstone.api.serving import ServeOptions, Service
from siltstone.api.snapshot import Snapshot
from siltstone.api.tables import Table, TableDefinitions
from siltstone.api.transaction import Transaction
from siltstone.arguments import flag_of
from siltstone.choices import Durability, Isolation, Missing, Outcome, StagedOp
from siltstone.engine.write.stage_task import StageTask
from siltstone.errors import ReadOnlyError
from siltstone.given import SchemaLike
from siltstone.maintenance.compaction.compaction import TARGET_ROWS
from siltstone.maintenance.compaction.optimize import WORKERS
from siltstone.maintenance.gc.vacuum import GRACE_S
from siltstone.maintenance.merge.merge import ATTEMPTS
from siltstone.paths import root_of
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.telemetry.works import WorkTimes
from siltstone.text.shown import Listing

if TYPE_CHECKING:
    from siltstone.query.changes.change_task import ChangeTask
    from siltstone.query.sql import sql as queries

T = TypeVar("T")
Moment: TypeAlias = int | str | dt.datetime
"""A sequence number, a time with a zone, or the name of a tag."""


class Store(TableDefinitions[Table, results.Receipt]):
    """An open store: transactions over all tables, snapshots, SQL, change feeds, maintenance.

    Any thread may use it; a context manager, which closes it. `connect` opens one. `path` is its
    directory, at its owner.

    Examples:
        >>> with st.connect("shop", background=False) as db:
        ...     db.sql("from orders").fetchall()
        [(1, 20.0, 'a'), (2, 5.0, 'b')]
    """

    path: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close, whatever the block did; without an upkeep if it raised."""
        self.close(upkeep=None if kind is None else False)

    @property
    @abstractmethod
    def is_read_only(self) -> bool:
        """Whether this handle only reads.

        Examples:
            >>> db.is_read_only
            False
        """

    # transactions

    @abstractmethod
    def transaction(
        self,
        *,
        isolation: Isolation = "snapshot",
        durability: Durability = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
        turns: Sequence[str] | None = None,
        read_seq: int | None = None,
    ) -> Transaction:
        """Begin a transaction over all tables.

        With a token the commit is applied once, however often the transaction is run. If it was
        applied before (`Transaction.is_applied`), the same statements succeed again without effect:
        a created table is empty in this transaction alone, and tables that were dropped, renamed
        or altered before stay as they are. The commit returns the old
        receipt. Reads see the store as it is now, and rows must fit its tables.

        Args:
            isolation: "snapshot", or "serializable": the commit conflicts if another commit changed
                what this transaction read.
            durability: "sync": on disk when `commit` returns. "async": within `sync_interval_ms`.
                "shipped": also in the bucket of the store's mirror, so it outlives this machine.
            token: (app, batch): a name, and a number that rises with each commit of the app.
            claim: What `Store.claim` returned: the commit is fenced if another claim followed it.
                By default only a claim after the begin of the transaction fences it.
            turns: Tables whose turns it takes before its snapshot, as `run` does after a conflict.
                It waits for at most 1 s for all of them, and begins without those that did not
                come. A turn ends with the transaction, or after 5 s.
            read_seq: It reads at this earlier seq, and the commit conflicts with each commit since
                that wrote a key that it writes, or that truncated or dropped a table of it, or
                changed its columns; of a plain table with any change of rows. A name that another
                table had then is a conflict, too. Under a token that was applied before, it reads
                the store as it is now.

        Raises:
            RequestError: An unknown isolation or durability; a bad token, claim, turns or read seq.
            SnapshotExpiredError: The store does not keep the read seq, or it is in the future.
            TableNotFoundError: `turns` names no table.
            ReadOnlyError: This handle only reads.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx["orders"].update(1, amount=0.0), tx["events"].append({"n": 4})
            (1, 1)
        """

    @abstractmethod
    def stage(
        self,
        table: str,
        op: StagedOp | None = None,
        *,
        order_by: str | None = None,
        schema: SchemaLike | None = None,
        primary_key: str | Sequence[str] = (),
        missing: Missing = "refuse",
    ) -> StageTask:
        """Begin a bulk commit: `run` writes pieces in any process, `Transaction.attach` commits.

        Also on a read-only store, where it writes only the files of this job.

        Args:
            table: The name of a table; staged rows must fit it as it is now.
            op: For a keyed table "upsert" (default), "insert" or "delete"; for a plain table
                "append".
            order_by: Of rows with equal keys the one with the highest value of this column counts.
                By default `attach` refuses equal keys.
            schema: Columns, as for `create_table`: if there is no such table, `attach` creates it
                with them; otherwise it adds those that the table lacks, as nullable ones.
            primary_key: The key of a table that is created; of one that exists it must be the key.
            missing: What becomes of the columns that rows of an upsert do not name, as for
                `Table.upsert`. With "keep" all rows of the job name the same columns, all that take
                no null among them, and `attach` writes whole rows once more.

        Raises:
            TableNotFoundError, SchemaMismatchError, RequestError: No such table, column or op; or a
                table cannot have these columns or this key.
            UnavailableError: The file system refuses, or the files are on another machine.

        Examples:
            >>> stage = db.stage("orders")
            >>> staged = stage.run(orders.head(2))  # in any process
            >>> with db.transaction() as tx:
            ...     tx.attach(stage, [staged])
            2
        """

    def run(self, work: Callable[[Transaction], T], attempts: int = 10) -> T:
        """Run `work(tx)` in a transaction and commit; run it again after a ConflictError.

        Those that lost take turns, table by table: each waits for at most 1 s, then tries anyway.
        If one loses three times in its turn, runs that begin wait where they name the table, then
        begin again. No other call waits. A run within a run keeps the turn of the outer one.

        Raises:
            ConflictError: All `attempts` lost; `tries` has how many.
            RequestError: `work` cannot be called, or `attempts` is no integer from 1.

        Examples:
            >>> db.run(lambda tx: tx["orders"].update(1, amount=tx["orders"].get(1)["amount"] + 1))
            1
        """
        return runs.run(self.transaction, self._turns, work, attempts)

    @property
    @abstractmethod
    def _turns(self) -> runs.TurnLines:
        """Where `run` takes turns."""

    @abstractmethod
    def claimed(self, app: str) -> tuple[int, str]:
        """Return the last claim of a token app and its holder.

        If it has no claim: the highest claim of the apps that were forgotten (else 0), and "".

        Examples:
            >>> db.claim("nightly", "run 7"), db.claimed("nightly")
            (1, (1, 'run 7'))
        """

    @abstractmethod
    def token_apps(self) -> list[results.TokenApp]:
        """Return the token apps: their last batch and claim; the one used last comes last.

        A batch of -1: the app was claimed, and has applied none.

        Examples:
            >>> receipt = db.claim("nightly", "run 7")
            >>> [(app.name, app.batch) for app in db.token_apps()]
            [('nightly', -1)]
        """

    @abstractmethod
    def forget_token_app(self, app: str) -> results.Receipt:
        """Forget a token app, its batches, claims and holders, in its own commit.

        A store keeps 10,000 apps, and only this call forgets one. Call it for a program that will
        not run again: the store forgets which batches the app applied, so *an old batch is applied
        again*; and a holder that lost the app may claim it as a new one. Its earlier claims stay
        fenced: later claims have higher numbers.

        Raises:
            RequestError: There is no such app.
            BusyError: A transaction with a token of the app is open; nothing was forgotten. If it
                runs in a joined process, that is not known: its commit ends with FencedError.

        Examples:
            >>> receipt = db.claim("nightly"), db.forget_token_app("nightly")
            >>> db.token_apps()
            []
        """

    @abstractmethod
    def outcome(self, transaction_id: str) -> Outcome:
        """Return "committed", "not committed" or "in doubt" for a transaction's id.

        "not committed" is a promise: a commit with this id that is still on its way is refused. A
        read-only store cannot promise it, and returns "in doubt" for an id that it does not see.

        Raises:
            RequestError: No transaction of this store has such an id, or none has it yet.
            SnapshotExpiredError: The transaction is older than the history that is kept.

        Examples:
            >>> receipt = orders.delete(1)
            >>> db.outcome(receipt.transaction_id)
            'committed'
        """

    # snapshots and queries

    @abstractmethod
    def snapshot(
        self, *, seq: int | None = None, at: str | dt.datetime | None = None, tag: str | None = None
    ) -> Snapshot:
        """Return all tables at one sequence number; by default the newest.

        Args:
            seq: A sequence number that is kept.
            at: A datetime with a zone (`datetime.now().astimezone()`), or a text with one
                ("2026-11-20T10:00Z"): all that was committed by then.
            tag: The name of a tag.

        Raises:
            SnapshotExpiredError: In the future, or older than the history that is kept.
            RequestError: More than one of the three, no such tag, or a time without a zone.

        Examples:
            >>> with db.snapshot(tag="opened") as past:
            ...     past.tables(), past["orders"].count()
            (['events', 'orders'], 2)
        """

    @abstractmethod
    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a statement: a query over one fresh snapshot, or one that writes, as one commit.

        The result is held in memory. In the owner's process, and in a reader's, it also sees the
        caller's variables that have rows (frames of pandas and Polars, Arrow data); a table of the
        same name comes first. What writes (INSERT, UPDATE, DELETE, MERGE, TRUNCATE, CREATE, DROP,
        ALTER) is run again after a conflict, as by `run`; `rows` and `seq` of the result say what
        was written. See docs/sql.md.

        Raises:
            TableNotFoundError: Neither a table nor such a variable has a name.
            RequestError: DuckDB refuses it, it is not one statement, it is not offered, or a query
                took too long. Or it names a variable, and another process runs it.
            SchemaMismatchError, DuplicateKeyError: A row does not fit; nothing was written.
            ConflictError: Other commits won each time.
            LimitError: It needs more than `sql_memory_bytes_max` and `sql_temp_bytes_max`.
            BusyError: A server runs as many queries as it may, and as many wait.
            UnavailableError: DuckDB is not installed.

        Examples:
            >>> db.sql("select sum(amount) from orders where id < $1", [3]).fetchone()
            (25.0,)
            >>> db.sql("update orders set amount = amount + 1 where id = ?", [1]).rows
            1
        """

    @abstractmethod
    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        """Run a query as `sql` does; return its rows as they are read, so that any number fit.

        A sum of whole numbers has the type decimal128(38, 0): whether it fits into int64, which
        `sql` uses if it does, is known only after the last row. While rows are read, the same
        errors are raised.

        Examples:
            >>> [batch.num_rows for batch in db.sql_reader("from orders")]
            [2]
        """

    @abstractmethod
    def diff(
        self, a: Moment, b: Moment | None = None, tables: Sequence[str] | None = None
    ) -> results.Diff:
        """Count what differs between two moments, table by table; the rows can be read then.

        Tables are meant by their names at each moment; one that is there at one of them only has
        all its rows added, or removed. `Diff[name].scan()` streams the rows. Two NaN are equal, 0.0
        and -0.0 are not; a column that a moment lacks counts as null there.

        Up to 100,000 changes are found by their keys. If there are more, or if they are not kept,
        both states are read in the order of the key. Of a table without a key rows are compared
        whole: none is changed, one is removed and one added. Files that both moments have are not
        read, and the rows of others are held in memory, at most 1 GiB of each moment.

        Args:
            a: A sequence number, a time as for `snapshot`, or a tag; a text that is the name of a
                tag is the tag.
            b: The same; by default the newest sequence number.
            tables: Names of tables; by default all, but for those with columns of blobs.

        Raises:
            SnapshotExpiredError: A moment is in the future, or not kept.
            TableNotFoundError: No table has such a name at either moment.
            RequestError: No moment; or a table has columns of blobs.
            LimitError: A table without a key has too many rows in other files.

        Examples:
            >>> orders.update(1, amount=21.0).rows, orders.delete(2).rows
            (1, 1)
            >>> found = db.diff("opened")
            >>> found["orders"].removed, found["orders"].to_pylist()[0]["_new"]["amount"]
            (1, 21.0)
        """

    @abstractmethod
    def put_back(
        self, table: str, *, to: Moment, until: Moment | None = None, force: bool = False
    ) -> results.Receipt:
        """Undo the commits (to, until] of a table by a new commit; `rows` counts what it wrote.

        Each row that changed from `to` to `until` gets what it had at `to`; other rows stay. A row
        that has changed again since `until` was written by others: then nothing is put back unless
        `force`. Without `until`, one commit is undone: if more than one has written the
        table since `to`, say which you mean. With `force` alone, all of them are.

        A table that was dropped is made again, without its indexes. Of a plain table all rows are
        put back, and any commit after `until` counts as one of others. Columns are not put back.
        Rows of 64 MiB and more are staged, as those of a bulk commit.

        Args:
            table: Its name, at `to` and now.
            to: The moment whose rows it gets, as for `diff`.
            until: The last commit that is undone, or a moment by which it came.
            force: Undo what others wrote to these rows since, too.

        Raises:
            ConflictError: It would undo what others wrote, or may; nothing was changed.
            SnapshotExpiredError: A moment is in the future, or not kept.
            TableNotFoundError: No table had the name at `to`.
            RequestError: Its columns are others now, or another table has the name.
            ReadOnlyError: This handle only reads.

        Examples:
            >>> before = db.seq
            >>> orders.delete_where("amount > 0").rows
            2
            >>> db.put_back("orders", to=before).rows, orders.count()
            (2, 2)
        """

    @abstractmethod
    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]:
        """Return the row versions of the sequence numbers (since, until] per keyed table.

        The feed follows a table's name, also over truncates, drops and renames: applied to a copy
        of the table of that name at `since`, it makes a copy of the table of that name at `until`.

        From 0, a table whose first versions are gone begins with all its rows at one sequence
        number, with `_op` "snapshot".

        Args:
            since: Sequence numbers above this one.
            until: Up to this one; by default the durable one.
            tables: Names of keyed tables; by default all.

        Raises:
            SnapshotExpiredError: The range begins (not at 0) or ends below the oldest sequence
                number that is kept, even if a tag keeps it; or it ends in the future.
            SchemaMismatchError: The name passed to a table with another key: begin again from 0.

        Examples:
            >>> orders.delete(1).rows
            1
            >>> db.changes(since=db.seq - 1)["orders"].read_all().select(["_op", "id"]).to_pylist()
            [{'_op': 'delete', 'id': 1}]
        """

    def follow(
        self, since: int = 0, tables: Sequence[str] | None = None
    ) -> Iterator[results.Change]:
        """Iterate over the commits since a sequence number, and then over each that comes.

        A change is one commit with rows of keyed tables, once it is durable. The iteration waits
        for the next one, and ends when this handle is closed. What a consumer has not taken yet
        stays readable for it, as for a snapshot: one that falls behind keeps files from vacuum.

        Args:
            since: Sequence numbers above this one; to go on, that of the last change that was
                whole.
            tables: Names of keyed tables; by default all, also those that are created later.

        Raises:
            SnapshotExpiredError, SchemaMismatchError: As for `changes`, also later.
            UnavailableError: The owner went away; follow again from the last change.

        Examples:
            >>> receipt = orders.delete(1)
            >>> for change in db.follow(receipt.seq - 1):
            ...     change.seq == receipt.seq, list(change.tables)
            ...     break
            (True, ['orders'])
        """
        return follow(self, self._await_seq, since, tables)

    def _await_seq(self, above: int, wait_s: float) -> int:
        """Wait until a sequence number above one is durable, for so long at most; return the last.

        Raises:
            ClosedError: The handle is closed.
        """
        end_s = time.monotonic() + wait_s
        for pause_s in pauses():
            found = self.durable_seq
            if found > above or time.monotonic() >= end_s:
                return found
            time.sleep(pause_s)
        raise AssertionError

    @abstractmethod
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
        """Cut the changes (since, until] of a table into tasks that other processes can read.

        Args:
            table: The name of a keyed table.
            since: As for `changes`.
            until: As for `changes`.
            begins: Return first all rows at `since`, as upserts of that sequence number.
            rows_max: About how many stored rows a task reads.
            columns_at: The batches have the columns that the table of this name has at that
                sequence number, from `until` to the durable one (default: `until`). Columns of the
                same table are matched by id: renamed ones follow, those that came later are null,
                those that are gone are left out. If the name has passed to another table by then,
                they are matched by name, and those that only the other table has are null.

        Raises:
            SnapshotExpiredError, SchemaMismatchError: As for `changes`. `columns_at` is in the
                future; at `columns_at` another table has the name, with another key or with a
                column of another type.
            TableNotFoundError, RequestError: No such table; a plain table; a bad range, or
                `columns_at` below it.

        Examples:
            >>> [batch.num_rows for task in db.change_tasks("orders", 0) for batch in task.read()]
            [2]
        """

    @abstractmethod
    def changes_upto(
        self, table: str, since: int, rows_max: int, until: int | None = None
    ) -> tuple[int, int]:
        """Return the highest sequence number with at most `rows_max` changes, and their number.

        A commit is never cut: the first one counts even if it has more changes. The call reads the
        sequence numbers of about `rows_max` changes.

        Examples:
            >>> upto, rows = db.changes_upto("orders", 0, rows_max=1)  # the first commit has two
            >>> rows
            2
        """

    @abstractmethod
    def changes_from(self, table: str) -> int:
        """Return the lowest sequence number at which a table can be read and changes are kept.

        Raises:
            TableNotFoundError, RequestError: No such table; a plain one.

        Examples:
            >>> db.changes_from("orders") <= db.seq
            True
        """

    @abstractmethod
    def log(self, limit: int = 20) -> Listing[results.LogEntry]:
        """Return the newest commits, newest first, at most `limit`.

        Below the oldest sequence number that is kept, a table has the oldest name that is known;
        a table whose names are all forgotten has a number ("#7").

        Examples:
            >>> [(entry.tables, entry.rows) for entry in db.log(1)]
            [((), 0)]
        """

    @abstractmethod
    def tag(
        self, name: str, seq: int | None = None, *, lasts: str | float | dt.timedelta | None = None
    ) -> results.Receipt:
        """Tag a sequence number (default: the newest durable one), which keeps it from vacuum.

        Every row version that keyed tables get after it takes space, too, until the tag is removed.

        Args:
            name: 1 to 128 characters; a tag of that name moves.
            seq: A sequence number that can be read.
            lasts: A duration ("7d"): the tag also keeps all changes since then, and the first
                vacuum removes it if it is not set again for so long.

        Raises:
            SnapshotExpiredError, RequestError: The sequence number is not kept; no name or no
                duration.

        Examples:
            >>> seq = db.seq
            >>> receipt = db.tag("before the sale", lasts="30d")
            >>> db.tags()["before the sale"] == seq
            True
        """

    @abstractmethod
    def tags(self) -> dict[str, int]:
        """Return the tags and their sequence numbers.

        Examples:
            >>> list(db.tags())
            ['opened']
        """

    @abstractmethod
    def untag(self, name: str) -> results.Receipt:
        """Remove a tag.

        Examples:
            >>> receipt = db.untag("opened")
            >>> db.tags()
            {}
        """

    @property
    @abstractmethod
    def seq(self) -> int:
        """The sequence number that a new snapshot sees.

        Examples:
            >>> orders.delete(1).seq == db.seq
            True
        """

    @property
    @abstractmethod
    def durable_seq(self) -> int:
        """The last sequence number that survives a power loss.

        Examples:
            >>> db.durable_seq == db.seq  # with durability="async" it may be lower
            True
        """

    @abstractmethod
    def wait_shipped(self, seq: int | None = None, *, timeout_s: float = 60.0) -> int:
        """Wait until a commit, and all before it, is in the bucket of the mirror.

        Args:
            seq: That of the commit. Default: all that is visible now.
            timeout_s: How long at most.

        Returns:
            The last seq that is in the bucket.

        Raises:
            NotShippedError: It is not known to be there after so long, and the reason; call again.
            RequestError: The store has no mirror, or no commit with this seq.

        Examples:
            >>> db.wait_shipped()
            Traceback (most recent call last):
            siltstone.errors.RequestError: commits are shipped into a mirror: ...
        """

    # serving others

    def serve_local(self, *, idle_s: float = 60.0) -> Path:  # noqa: ARG002 - the owner's
        """Let other processes of this user join (`connect(path, join=True)`); return the socket.

        A second call changes nothing. The store stays open until the last handle is closed, even
        if all handles are dropped; serving ends with the store.

        Args:
            idle_s: A joined process's transaction without a request for so long is rolled back.

        Raises:
            ReadOnlyError: This handle does not own the store.
            UnavailableError: A package of the extra `server` is missing, which the error names, or
                no socket can be made.

        Examples:
            >>> db.serve_local().is_socket()
            True
        """
        raise ReadOnlyError(f"{self!r} does not own the store, and only its owner serves it")

    def serve(
        self,
        host: str = "127.0.0.1",  # noqa: ARG002 - the owner's
        port: int = 2333,  # noqa: ARG002
        **options: Unpack[ServeOptions],  # noqa: ARG002
    ) -> Service:
        """Answer clients over TCP, in threads, until the store closes: the REST server.

        The store stays open for them, even if all handles are dropped.

        Args:
            host: The address to listen on; one that other machines can reach needs `tokens`.
            port: 0 takes any free one; the service has it as `port`, and its `url`.
            options: `tokens`, `allowed_hosts`, `certificate`, `key`, `limits`; see
                `server.rest.service.Service`. `advertise`: the URL by which other machines reach
                it, for those that open the store by its path on a shared file system; by default
                this machine's name, if others can reach `host`.
                `access_log`: log each request, in the log `siltstone.access`.

        Raises:
            RequestError: `advertise` is no URL of a server; other machines could reach it without a
                token; it serves already.
            ReadOnlyError: This handle does not own the store.
            UnavailableError: A package of the extra `server` is missing, which the error names, or
                the address is not available.

        Examples:
            >>> db.serve(port=0).url.startswith("http://127.0.0.1:")
            True
        """
        raise ReadOnlyError(f"{self!r} does not own the store, and only its owner serves it")

    # maintenance

    @abstractmethod
    def checkpoint(self) -> results.Checkpointed:
        """Flush all commits so far into Lance; blocks no reader or writer.

        Examples:
            >>> db.checkpoint().flushed_seq == db.seq
            True
        """

    @abstractmethod
    def merge(
        self,
        table: str | None = None,
        *,
        attempts: int = ATTEMPTS,
    ) -> results.Merged | results.Deferred:
        """Merge flushed rows into the base of one table, or of all tables.

        Args:
            table: Its name now. A table that was never flushed has nothing to merge.
            attempts: How often to plan, at most, if others change what the merge reads; after that
                the result is `Deferred`.

        Raises:
            TableNotFoundError: No table has that name.

        Examples:
            >>> db.checkpoint() and db.merge("orders").rows
            2
        """

    @abstractmethod
    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        workers: int = WORKERS,
    ) -> results.Optimized | results.Deferred:
        """Write many small files of one table, or of all, again as few large ones.

        It changes no result.

        Args:
            table: As for `merge`.
            target_rows: How many rows a file should have.
            attempts: As for `merge`.
            workers: How many files are written at the same time.

        Raises:
            TableNotFoundError: No table has that name.

        Examples:
            >>> db.checkpoint() and db.optimize().tables  # all is large enough, or too new
            ()
        """

    @abstractmethod
    def vacuum(self, dry_run: bool = True, *, grace_s: float = GRACE_S) -> results.Vacuumed:
        """Delete the files that no kept record, tag or reader needs.

        Args:
            dry_run: Only report what would be deleted; change nothing.
            grace_s: How long (seconds) a file that no record names is kept: longer than any
                transaction, load or merge takes.

        Examples:
            >>> db.vacuum().files, db.vacuum(dry_run=False).files
            ((), ())
        """

    @abstractmethod
    def verify(
        self, *, deep: bool = False, on_progress: results.Progress | None = None
    ) -> results.Verified:
        """Read the files of the store and report the damaged ones; changes nothing.

        Args:
            deep: Read every byte and every row, not only the files that name others.
            on_progress: Called with what is read next, the number of files done, and of all files.

        Raises:
            RequestError: `on_progress` for a store that another process owns.

        Examples:
            >>> db.verify(deep=True).is_sound
            True
        """

    def _backups(self) -> WorkTimes:
        """Return what counts the backups of this process."""
        return WorkTimes("backup")

    @abstractmethod
    def _storage(self) -> Any:
        """Return the `open.environment.Storage` of the store, for work on its files in place.

        Raises:
            ClosedError: The handle is closed.
            RequestError: The files are on another machine.
        """

    def repair(
        self,
        dry_run: bool = True,
        *,
        deep: bool = False,
        on_progress: results.Progress | None = None,
    ) -> results.Repaired:
        """Report what is damaged and what repair could do. To repair, close the store first.

        With `dry_run=False` it raises as soon as there is something to do: close the store, and
        call `siltstone.repair(path, dry_run=False)`.

        Raises:
            OwnedError: There is something to repair, and this process or another owns the store.

        Examples:
            >>> db.repair().steps
            ()
        """
        repairer = self._storage().repairer()
        return repairer.run(dry_run=dry_run, deep=deep, on_progress=on_progress)

    def backup(
        self,
        directory: str | os.PathLike[str],
        incremental: bool = False,
        *,
        link: bool = False,
        skip_damaged: bool = False,
        on_progress: results.Progress | None = None,
    ) -> results.BackedUp:
        """Copy one consistent snapshot, all that is durable now, while writers go on.

        The owner makes a checkpoint first. `siltstone.restore` makes a store of the backup.

        Args:
            directory: A new or empty directory, or one that has backups of this store.
            incremental: Use the files of older backups in the directory again.
            link: Make hard links instead of copies: no space, but damage to a file damages both.
            skip_damaged: Leave damaged files of tables out; the result, and the backup, name them.
            on_progress: Called with the next file, the bytes done, and the bytes of all files.

        Raises:
            RequestError: The directory holds something else; or backups, without `incremental`.
            CorruptionError: A file of the store, which the error names, is damaged; repair it, or
                pass `skip_damaged`.
            BusyError, UnavailableError: Another backup into it runs; the file system refuses.

        Examples:
            >>> done = db.backup("copy")
            >>> [backup.seq for backup in st.backups("copy")] == [db.seq]
            True
        """
        backuper, root = self._storage().backuper(), root_of(directory)
        if not self.is_read_only:
            self.checkpoint()
        return self._backups().run(
            lambda: backuper.run(
                root,
                incremental=flag_of("incremental", incremental),
                link=flag_of("link", link),
                skip_damaged=flag_of("skip_damaged", skip_damaged),
                on_progress=on_progress,
            ),
            lambda done: (
                f"{done.copied} new files of {done.copied_bytes} bytes, up to seq {done.seq}"
            ),
        )

    @abstractmethod
    def status(self) -> results.Status:
        """Return the state of the store: sequence numbers, log, memory, tables, last failure.

        Examples:
            >>> status = db.status()
            >>> status.visible_seq == db.seq, status.failure
            (True, None)
        """

    @abstractmethod
    def jobs(self) -> Listing[results.JobStatus]:
        """Return the maintenance jobs of all processes: running, dead, and the last that ended.

        The next optimize uses what a dead one finished; `repair` puts a dead job's record aside.

        Examples:
            >>> db.jobs()
            []
        """

    # rows of other programs

    def import_external(self, table: str, dry_run: bool = True) -> results.Adopted:
        """Commit the rows that other programs appended to a plain table without siltstone.

        That is `lance.write_dataset(path, mode="append")` on the table's folder; `verify` reports
        such versions.

        Args:
            table: The name of a plain table.
            dry_run: Only report which rows would be committed.

        Raises:
            TableNotFoundError, RequestError: No such table; a keyed one; a version that did
                something else than append. Nothing was changed.
            SchemaMismatchError: The rows do not fit the table.

        Examples:
            >>> db.checkpoint() and db.import_external("events").rows
            0
        """
        flag_of("dry_run", dry_run)
        adopter, found = self._storage().adopter(), self[table].id
        if not (dry_run and self.is_read_only):
            self.checkpoint()
        return adopter.run(found, self.transaction, dry_run=dry_run)

    @abstractmethod
    def close(
        self, upkeep: bool | None = None, *, on_progress: results.Progress | None = None
    ) -> None:
        """Close this handle and all that came from it; the last handle closes the store.

        A second call does nothing. Open transactions are rolled back. A signal whose handler
        raises (Ctrl-C) takes effect once the store is closed.

        An owner that closes its store does first what is due for it: a merge, an optimize, a
        vacuum, for `close_upkeep_s` at most. Ctrl-C, or a process that waits to own the store, ends
        that; what did not fit is in `status().owed`. Nothing runs after the call.

        Args:
            upkeep: True: do it even without a background, and also what did not fit before;
                False: do none. By default an owner with a background does it, except when a block
                ends by an exception, or in the handler of a signal.
            on_progress: Called with the next step, the number of steps done, and of all.

        Examples:
            >>> db.close()
            >>> orders.count()
            Traceback (most recent call last):
            siltstone.errors.ClosedError: ...
        """
