"""Snapshot: all tables of a store at one sequence number, for as long as it is open."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from siltstone.api.readable import Columns, Condition
from siltstone.api.tables import NamedTables, SnapshotTable
from siltstone.process.context_exits import close_on_exit
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.query.scan.scan_task import ScanTask

if TYPE_CHECKING:
    from siltstone.query.sql import sql as queries


class Snapshot(NamedTables):
    """All tables of a store at one sequence number, `seq`, for as long as it is open.

    A context manager; `close` ends it. Any thread may use it. Vacuum keeps what it reads.

    Examples:
        >>> with db.snapshot() as past:
        ...     (orders.delete(1).rows, past["orders"].count(), past.seq < db.seq)
        (1, 2, True)
    """

    seq: int

    @abstractmethod
    def _require_open(self) -> None:
        """Raise ClosedError if the snapshot or its store is closed."""

    def __enter__(self) -> Self:
        self._require_open()
        return self

    __exit__ = close_on_exit

    @abstractmethod
    def close(self) -> None:
        """Release the files that the snapshot keeps from vacuum; a second call does nothing.

        Examples:
            >>> past = db.snapshot()
            >>> past.close()
        """

    @abstractmethod
    def __getitem__(self, name: str) -> SnapshotTable:
        """Return the table that had this name.

        Raises:
            TableNotFoundError: No table had it.
        """

    @abstractmethod
    def scan_tasks(
        self,
        table: str,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002 - the contract's name
        *,
        rows_max: int = ROWS_MAX,
    ) -> list[ScanTask]:
        """Cut a scan into tasks that other processes can read; see `query.scan.scan_task`.

        A task needs neither this snapshot nor this process, only the store's path: the retention
        keeps what it reads. A task that is read too late raises `SnapshotExpiredError`.

        Args:
            table: Its name at this sequence number.
            columns: As for `scan`.
            filter: As for `scan`.
            rows_max: The maximum number of stored rows that one task reads; but a file becomes at
                most 64 tasks, and one at most if there is a filter. Rows in this process's memory
                (of the log and of memtables flushed lately) travel in the tasks, at most 8 MiB in
                each.

        Raises:
            TableNotFoundError, RequestError: No such table or column, a bad filter or `rows_max`.

        Examples:
            >>> with db.snapshot() as past:
            ...     tasks = past.scan_tasks("orders", ["id"])
            >>> sum(batch.num_rows for task in tasks for batch in task.read())  # in any process
            2
        """

    @abstractmethod
    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a query with DuckDB over the tables of this snapshot; it ends with the snapshot.

        It sees the variables of its caller, as `Store.sql` does.

        Raises:
            TableNotFoundError, RequestError, LimitError, BusyError, UnavailableError: As
                `Store.sql`.

        Examples:
            >>> with db.snapshot(tag="opened") as past:
            ...     past.sql("select count(*) from orders").fetchone()
            (2,)
        """

    @abstractmethod
    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        """Run a query over this snapshot; return its rows as they are read: `Store.sql_reader`.

        Examples:
            >>> with db.snapshot() as past:
            ...     past.sql_reader("from orders").read_all().num_rows
            2
        """
