"""Staging: executors write the rows of a frame to unnamed files, then one commit names all.

plan ─▶ Piece.write on executors ─▶ commit in the driver ─▶ visible, in all tables at once
│       synced files; tasks that run      one transaction, through the owner
│       twice write twice, for nothing
└─ all errors of the frame are raised here, before anything is written
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone import malloc
from siltstone.api.results import Receipt
from siltstone.api.tasks import Staged, StageTask
from siltstone.api.transaction import Transaction
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError, SiltstoneError
from siltstone.retry import Retry
from siltstone.spark import schemas
from siltstone.spark.application import Application, store_of
from siltstone.spark.guards import Unchanged, WholeRows, require_whole
from siltstone.spark.options import REFUSED, SinkOptions, WriteOptions
from siltstone.spark.reader import require_path
from siltstone.store import Store

COMMIT_ATTEMPTS = 10
_log = logging.getLogger(__name__)

Token = tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class FramePiece:
    """Writes the rows of one frame on executors; pickles."""

    stage: StageTask
    columns: pa.Schema
    is_overwrite: bool
    whole: WholeRows | None
    application: Application | None

    @property
    def is_near(self) -> bool:
        """Whether this process sees the file that the application's processes share."""
        return self.application is not None and self.application.is_here

    def unchanged(self, expect_seq: int | None) -> Unchanged | None:
        """Return the guard of an overwrite whose reads are planned; None: it is no overwrite."""
        if not self.is_overwrite:
            return None
        return Unchanged.plan(self.stage, self.application, expect_seq)

    def job(
        self, staged: Iterable[Staged], unchanged: Unchanged | None = None, *, is_near: bool = False
    ) -> StageJob:
        """Return the job to commit, from the pieces of the tasks.

        `is_near`: all of them ran where the driver does, so they could tell what they read.
        """
        guard = unchanged if unchanged is None or is_near else unchanged.far()
        return StageJob(self, tuple(staged), guard)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Write the rows of one task; they are durable on return, but not visible.

        Raises:
            SchemaMismatchError: A column cannot hold a value, or may not be null.
            UnavailableError: This machine does not see the store's path, or its disk refuses.
        """
        require_path(self.stage.root)
        malloc.bound()
        return self.stage.run(self._fitting(batches))

    def _fitting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield schemas.as_schema(batch, self.columns)


@dataclass(frozen=True, slots=True)
class StageJob:
    """The staged rows of one frame, and the conditions on their table at the commit.

    An overwrite without `unchanged` replaces the table unconditionally.
    """

    piece: FramePiece
    staged: tuple[Staged, ...]
    unchanged: Unchanged | None = None

    def discard(self) -> bool:
        """Delete the files, unless a transaction has tried to attach them."""
        return self.piece.stage.discard(self.staged)


def plan(
    db: Store,
    options: WriteOptions | SinkOptions,
    given: StructType,
    application: Application | None,
    *,
    is_overwrite: bool,
) -> FramePiece:
    """Return the plan to stage rows of the schema `given` for the table of the options.

    Raises:
        TableNotFoundError, RequestError: There is no such table, or no such op for it.
        SchemaMismatchError: A column is missing, unknown, or of a type that does not fit; or rows
            of an upsert lack one, and `missing` does not say that it becomes null.
    """
    table, op, order_by = options.table, options.op, options.order_by
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
    is_upsert = op in {None, "upsert"} and bool(target.primary_key) and not is_overwrite
    must_be_whole = is_upsert and options.missing == REFUSED
    if must_be_whole:
        require_whole(target, table, columns.names)
    stage = db.stage(table, op, order_by=order_by)
    whole = WholeRows(stage.table_id, tuple(columns.names)) if must_be_whole else None
    return FramePiece(stage, columns, is_overwrite, whole, application)


def commit(
    db: Store, jobs: Sequence[StageJob], token: Token, *, claim: int | None = None
) -> Receipt:
    """Make all rows of the jobs visible at one seq, or none; with a token, once.

    Raises:
        FencedError: Another driver claimed the token's app after `claim`.
        ConflictError: Other commits won, `COMMIT_ATTEMPTS` times; or an overwritten table changed
            since it was read.
        SchemaMismatchError: Rows of an upsert lack a column that was added meanwhile.
        DuplicateKeyError: Equal keys without `order_by`, or an insert of an existing key.
        InDoubtError: The commit may or may not be durable; with a token, run the job again.
    """
    try:  # what is staged stays good: only the snapshot was too old
        tx = _RETRY.run(lambda: _attempt(db, jobs, token, claim))
    except _LostRace as lost:
        raise lost.error from None
    assert tx.receipt is not None
    if tx.receipt.seq > tx.read_seq:  # else the token's batch was applied before
        _tell(jobs, tx.receipt.seq)
    for job in jobs:
        job.discard()  # of a token that was applied before; what was attached is kept
    return tx.receipt


class _LostRace(Exception):
    """Another commit came between the snapshot and ours."""

    def __init__(self, error: ConflictError) -> None:
        super().__init__(error)
        self.error = error


_RETRY = Retry(COMMIT_ATTEMPTS, (_LostRace,))


def _attempt(db: Store, jobs: Sequence[StageJob], token: Token, claim: int | None) -> Transaction:
    tx = db.transaction(token=token, claim=claim)
    with tx:
        _check(tx, jobs, token)
        try:
            for job in jobs:
                tx.attach(job.piece.stage, job.staged, job.piece.is_overwrite)
            tx.commit()
        except ConflictError as error:
            raise _LostRace(error) from error
    return tx


def _check(tx: Transaction, jobs: Sequence[StageJob], token: Token) -> None:
    """Refuse what must not be committed upon this snapshot, unless the token says that it was."""
    checks = [each for job in jobs for each in (job.unchanged, job.piece.whole) if each is not None]
    if checks and not (token is not None and tx.is_applied):
        for each in checks:
            each.check(tx)


def _tell(jobs: Sequence[StageJob], seq: int) -> None:
    """Tell the application of its commit; it stands, whether that fails or not."""
    pieces = [job.piece for job in jobs]
    stage = pieces[0].stage
    told = {piece.application for piece in pieces if piece.application is not None}
    for application in told:
        overwritten = [(p.stage.table_id, p.stage.table) for p in pieces if p.is_overwrite]
        try:
            application.tell_commit(store_of(stage.root, stage.store_id), seq, overwritten)
        except SiltstoneError as error:
            _log.warning("the rows are committed; an overwrite may find them foreign: %s", error)
