"""Staging: rows of a frame become files that nobody names, then one commit names them all.

plan ─▶ Piece.write on executors ─▶ commit in the driver ─▶ visible, in all tables at once
│       synced files; tasks that run      one transaction, through the owner
│       twice write twice, for nothing
└─ all that may be wrong with the frame is said here: nothing was written yet
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.engine.stage_task import Staged, StageTask
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError
from siltstone.spark import schemas
from siltstone.spark.reader import require_path
from siltstone.spark.stores import AnyStore
from siltstone.store import Receipt, Store

COMMIT_ATTEMPTS = 10

Token = tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Piece:
    """How executors write the rows of one frame; pickles."""

    stage: StageTask
    columns: pa.Schema

    def write(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Write the rows of one task; they are durable on return, and named by nobody.

        Raises:
            SchemaMismatchError: A value that the column cannot hold, or a null where none may be.
            UnavailableError: This machine does not see the store's path, or its disk refuses.
        """
        require_path(self.stage.root)
        return self.stage.run(self._fitting(batches))

    def _fitting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield schemas.as_schema(batch, self.columns)


@dataclass(frozen=True, slots=True)
class Job:
    """The rows of one frame, all staged."""

    stage: StageTask
    staged: tuple[Staged, ...]
    is_overwrite: bool

    def discard(self) -> bool:
        """Delete the files, unless a transaction has tried to name them."""
        return self.stage.discard(self.staged)


def plan(
    db: Store,
    table: str,
    given: StructType,
    *,
    op: str | None,
    order_by: str | None,
    is_overwrite: bool,
) -> Piece:
    """Return how rows of the schema `given` are staged for a table.

    Raises:
        TableNotFoundError, RequestError: No such table, no such op for it.
        SchemaMismatchError: A column is missing, unknown, or of a type that does not fit.
    """
    if is_overwrite and op == "delete":
        raise RequestError("mode 'overwrite' replaces all rows; op 'delete' needs 'append'")
    target = db[table]
    columns = schemas.to_store(given, target.schema, table)
    if op == "delete":
        columns = pa.schema([field for field in columns if field.name in target.primary_key])
    wanted = target.primary_key if op == "delete" else target.schema.names
    for name in wanted:
        field = target.schema.field(name)
        if name not in columns.names and (name in target.primary_key or not field.nullable):
            raise SchemaMismatchError(
                f"the rows for {table!r} have no column {name!r} ({field.type}), which may not be"
                " null"
            )
    if order_by is not None and order_by not in columns.names:
        raise SchemaMismatchError(f"the rows for {table!r} have no column {order_by!r} to order by")
    return Piece(db.stage(table, op, order_by=order_by), columns)


def commit(db: AnyStore, jobs: Sequence[Job], token: Token, *, claim: int | None = None) -> Receipt:
    """Make all rows of the jobs visible at one seq, or none; a token does it once.

    Raises:
        FencedError: Another claim of the token's app followed `claim`.
        ConflictError: Other commits won, `COMMIT_ATTEMPTS` times.
        DuplicateKeyError: Equal keys and no `order_by`, or an insert of a key that lives.
        InDoubtError: It may or may not be durable; with a token, run the job again.
    """
    receipt = _again(lambda: _attach(db, jobs, token, claim))
    for job in jobs:
        job.discard()  # of a token that was applied before; what was attached is kept
    return receipt


def _attach(db: AnyStore, jobs: Sequence[Job], token: Token, claim: int | None) -> Receipt:
    with db.transaction(token=token, claim=claim) as tx:
        for job in jobs:
            tx.attach(job.stage, job.staged, job.is_overwrite)
    assert tx.receipt is not None
    return tx.receipt


def _again(work: Callable[[], Receipt]) -> Receipt:
    for _ in range(COMMIT_ATTEMPTS - 1):
        try:
            return work()
        except ConflictError:
            continue  # what is staged stays good: only the snapshot was too old
    return work()
