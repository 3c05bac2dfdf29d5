"""Transaction: one snapshot over all tables, private changes on top, one commit for all of them.

    OPEN ──commit──▶ COMMITTED      durable (sync) and visible, all of it at one sequence number
      └──rollback, error, conflict──▶ ENDED      nothing happened

Other users see nothing before `commit`. One thread at a time uses a transaction.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Self

from siltstone.api.results import Receipt
from siltstone.api.tables import TableDefinitions, TransactionTable, refuse_travel
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.transaction import Phase
from siltstone.errors import RequestError
from siltstone.process.context_exits import commit_on_exit

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.query.sql import sql as queries


class Transaction(TableDefinitions[TransactionTable, None]):
    """One snapshot over all tables, private changes on top, and one commit for all of them.

    A context manager: commits at the end of the block; an error rolls back. No other reader sees
    anything before the commit. One thread at a time uses it.

    Examples:
        >>> with db.transaction() as tx:
        ...     tx["orders"].delete(1), tx["events"].append({"n": 1})
        (1, 1)
        >>> tx.seq == db.seq
        True
    """

    _internal = frozenset({"closed", "closed_at"})

    phase: Phase
    """How far it is."""
    read_seq: int
    """The sequence number of its snapshot."""
    receipt: Receipt | None
    """The receipt of the commit; None before it."""
    closed: frozenset[str]
    """Tables that a first try of `Store.run` does not enter now; for other transactions none."""
    closed_at: str
    """The one of them that it named; else empty."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            RequestError: Always.
        """
        refuse_travel()

    @property
    def is_open(self) -> bool:
        """Whether it is neither committed nor rolled back.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx.is_open
            True
        """
        return self.phase is Phase.OPEN

    @property
    def seq(self) -> int:
        """The sequence number of the commit; that of the snapshot if it wrote nothing.

        Raises:
            RequestError: It is not committed.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx["orders"].delete(1)
            1
            >>> tx.seq == tx.read_seq + 1
            True
        """
        if self.receipt is None:
            raise RequestError("the transaction has no seq before it is committed")
        return self.receipt.seq

    @property
    @abstractmethod
    def is_applied(self) -> bool:
        """Whether its token was applied before it began: the commit returns the old receipt.

        Examples:
            >>> for _ in range(2):
            ...     with db.transaction(token=("nightly", 7)) as tx:
            ...         (tx.is_applied, tx["events"].append({"n": 9}))
            (False, 1)
            (True, 1)
            >>> events.count("n = 9")
            1
        """

    @abstractmethod
    def _require_open(self) -> None:
        """Raise ClosedError if the transaction or its store has ended."""

    def __enter__(self) -> Self:
        self._require_open()
        return self

    __exit__ = commit_on_exit

    @abstractmethod
    def table(self, table_id: int) -> TransactionTable:
        """Return the table with this id (`Table.id`), whatever its name is in this transaction.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx.rename_table("orders", "sales")
            ...     tx.table(orders.id).name
            'sales'
        """

    @abstractmethod
    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a statement over the snapshot and own changes; the result is in memory.

        A statement that writes is a part of this transaction; all of it is done, or nothing. It
        sees the variables of its caller, as `Store.sql` does. A serializable transaction reads
        by it all rows of each table that it names: a commit that changes one of them conflicts.

        Raises:
            TableNotFoundError, RequestError, LimitError, BusyError, UnavailableError: As
                `Store.sql`; nothing was changed.
            ClosedError: The transaction has ended.

        Examples:
            >>> with db.transaction() as tx:
            ...     (tx["orders"].delete(1), tx.sql("select count(*) from orders").fetchone())
            (1, (1,))
        """

    @abstractmethod
    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        """Run a query as `sql` does; return its rows as they are read: `Store.sql_reader`.

        It sees what the transaction wrote before it; what is written while rows are read it does
        not. It ends with the transaction: then ClosedError is raised for its next rows.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx.sql_reader("from orders").read_all().num_rows
            2
        """

    @abstractmethod
    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        """Commit staged rows with this transaction; return how many, each key counted once.

        The transaction does not see them before its commit, so it may neither read nor write rows
        of the same keyed table. Several jobs of one table follow each other: a row of a later job
        replaces one of an earlier job. With `overwrite` the table is truncated first: the table
        that the rows were staged for, whatever its name is now. The table or the columns that the
        job is for (`Store.stage(schema=...)`) are created with the rows.

        Raises:
            DuplicateKeyError: Equal keys and no `order_by`, or an insert of a key that a row has.
            RequestError: The job was discarded or vacuumed; pieces of another job, or a piece
                twice; an insert after another job of the table.
            SchemaMismatchError: A column was renamed or dropped since the rows were staged; or the
                job adds columns, and others came since.
            TableExistsError: The job creates a table whose name is taken by now.

        Examples:
            >>> stage = db.stage("events")
            >>> with db.transaction() as tx:
            ...     tx.attach(stage, [stage.run(events.head(2)), stage.run(events.head(1))])
            3
        """

    @abstractmethod
    def put_back(
        self,
        table: str,
        *,
        to: int | str | dt.datetime,
        until: int | str | dt.datetime | None = None,
        force: bool = False,
    ) -> int:
        """Undo the commits (to, until] of a table as a part of this transaction: `Store.put_back`.

        What the transaction itself wrote to these rows counts as written since. Moments are at
        most its snapshot.

        Raises:
            ConflictError: It would undo what was written since; nothing was changed.
            LimitError: The rows take more than 256 MiB.

        Examples:
            >>> seq = db.seq
            >>> receipt = orders.truncate()
            >>> with db.transaction() as tx:
            ...     tx.put_back("orders", to=seq)
            2
        """

    @abstractmethod
    def changed_since(
        self, table_id: int, since: int, own: Sequence[tuple[int, int]] = ()
    ) -> tuple[str, int]:
        """Return a table's name, and the first sequence number after `since` that changed it.

        For a process that read the table at `since` and now overwrites it. A change after this
        transaction's snapshot conflicts with the overwrite anyway.

        Args:
            table_id: The table's id.
            since: A sequence number, at most that of the snapshot.
            own: First and last sequence numbers of commits that do not count.

        Returns:
            The sequence number is 0 if nothing changed the table (also if the transaction's token
            was applied before), and `since.UNKNOWN` if the store does not keep that history.

        Raises:
            TableNotFoundError: The table was dropped.
            RequestError: `since` is in the future.

        Examples:
            >>> with db.transaction() as tx:
            ...     tx.changed_since(orders.id, tx.read_seq)
            ('orders', 0)
        """

    @abstractmethod
    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Tag a sequence number for `lasts_s` seconds (0: for ever); None removes the tag.

        No vacuum takes anything of it before the commit.

        Raises:
            RequestError: The name, the seq or the time is not allowed.
            SnapshotExpiredError: The store does not keep the seq, or it is in the future.

        Examples:
            >>> with db.transaction() as tx:
            ...     (tx["events"].append({"n": 4}), tx.tag("before", tx.read_seq))
            (1, None)
        """

    @abstractmethod
    def commit(self) -> Receipt:
        """Commit and return the receipt; the old one if the transaction's token was applied before.

        Raises:
            ConflictError: Another commit won; run the transaction again.
            RequestError, FencedError, BusyError, UnavailableError: Refused; nothing happened.
            ClosedError: It has ended, or its owner ended it; nothing happened.
            InDoubtError: The outcome is not known; `Store.outcome` of its `transaction_id` tells.
            PoisonedError: An earlier commit is in doubt.

        Examples:
            >>> tx = db.transaction()
            >>> tx["orders"].delete(1), tx.commit().rows
            (1, 1)
        """

    @abstractmethod
    def rollback(self) -> None:
        """End without a trace; a second call does nothing.

        Examples:
            >>> tx = db.transaction()
            >>> tx["orders"].delete(1), tx.rollback(), orders.count()
            (1, None, 2)
        """
