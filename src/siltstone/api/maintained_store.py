"""Maintained store: maintenance, verification and backups of a store, and its state.

The first half of `Store`, with its bounds and errors; the classes of `local` and `joined` say how
it works. Maintenance that needs no open store is in `siltstone.admin`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

from siltstone.api import results
from siltstone.api.tables import Table, TableDefinitions
from siltstone.arguments import flag_of
from siltstone.maintenance.compaction.compaction import TARGET_ROWS
from siltstone.maintenance.compaction.optimize import WORKERS
from siltstone.maintenance.gc.vacuum import GRACE_S
from siltstone.maintenance.merge.merge import ATTEMPTS
from siltstone.paths import root_of
from siltstone.text.shown import Listing


class MaintainedStore(TableDefinitions[Table, results.Receipt]):
    """The maintenance of an open store: see `Store`."""

    @property
    @abstractmethod
    def is_read_only(self) -> bool:
        """Whether this handle only reads.

        Examples:
            >>> db.is_read_only
            False
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
        return backuper.run(
            root,
            incremental=flag_of("incremental", incremental),
            link=flag_of("link", link),
            skip_damaged=flag_of("skip_damaged", skip_damaged),
            on_progress=on_progress,
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
