"""Large writes: many rows of one table in a transaction of this process, as files for its owner.

    rows of a table ─▶ a job of the owner, whose files this process writes ─▶ attached, committed

The rows do not go through the socket, nor into the owner's memory and log: the owner gets the paths
of synced files in the store's directory. The transaction moves to the owner for that, with all else
that it did. Files that no commit names are deleted at once; if a process dies before, by vacuum, as
those of any job (`engine.write.stage_task`).

What cannot be staged is sent like few rows, which says what is wrong with it, if something is: if
the table is another one by now, or this process may not write files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.write.bulk import INLINE_BYTES_MAX
from siltstone.engine.write.keyed_writes import KeyedWrites
from siltstone.engine.write.stage_task import Staged, StageTask, sorter_of
from siltstone.errors import SiltstoneError, TableNotFoundError, UnavailableError
from siltstone.formats.log.group import DELETE
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.local.transaction import LocalTransaction
from siltstone.operations import Face, operation

STAGED_BYTES_MIN = INLINE_BYTES_MAX
"""As of a bulk commit: what is more goes into files, not into the log."""


@dataclass(frozen=True, slots=True)
class StagedWrites:
    """The jobs of some writes of a transaction, each with its one piece, or none yet."""

    writes: Sequence[KeyedWrites]
    jobs: Sequence[tuple[StageTask, list[Staged]]]

    def discard(self, here: LocalTransaction) -> None:
        """Delete what no commit needs; what is left after an error is vacuum's."""
        for task, pieces in self.jobs:
            with suppress(SiltstoneError):
                task.discard_through(here.core.files, here.core.root, pieces)


def staged(pool: ConnectionPool, here: LocalTransaction) -> StagedWrites | None:
    """Stage the large writes of a transaction, which still has them; None: it has none.

    None also if they cannot be staged.
    """
    large = here.large_writes(STAGED_BYTES_MIN)
    if not large:
        return None
    tables, jobs = here.core.tables, list[tuple[StageTask, list[Staged]]]()
    made = StagedWrites(large, jobs)
    with suppress(TableNotFoundError, UnavailableError), ExitStack() as if_it_fails:
        if_it_fails.callback(made.discard, here)
        for writes in large:
            for task, rows in _tasks(pool, here, writes):
                pieces = list[Staged]()
                jobs.append((task, pieces))
                if not _is_of(task, here, writes):
                    return None
                sorter = sorter_of(task, tables.keys)
                pieces.append(task.run_through(tables.writer, rows, sorter=sorter))
        if_it_fails.pop_all()
        return made
    return None


def _tasks(
    pool: ConnectionPool, here: LocalTransaction, writes: KeyedWrites
) -> Iterator[tuple[StageTask, Iterator[pa.RecordBatch]]]:
    """Yield a job of the owner for what was upserted, and for what was deleted, with the rows."""
    table = here.definition(writes.table)
    for op, rows in writes.batches(table_schema_of(catalogs.schema_of(table))):
        given = [catalogs.name_of(table), "delete" if op == DELETE else "upsert"]
        found = pool.call(operation(Face.STORE, "stage"), "", given, {})
        yield replace(cast("StageTask", found), root=str(here.core.root)), rows


def _is_of(task: StageTask, here: LocalTransaction, writes: KeyedWrites) -> bool:
    """Say whether the table is what it was when it was written, so that the rows fit."""
    schema = catalogs.schema_of(here.definition(writes.table))
    found = task.table_id, task.incarnation, task.schema
    return found == (writes.table, writes.incarnation, schema)
