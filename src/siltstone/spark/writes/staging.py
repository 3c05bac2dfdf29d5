"""Staging: executors write the rows of a frame to unnamed files, then one commit names all.

plan ─▶ Piece.write on executors ─▶ commit in the driver ─▶ visible, in all tables at once
│       synced files; tasks that run      one transaction, through the owner
│       twice write twice, for nothing
└─ all errors of the frame are raised here, before anything is written

Few rows of keyed tables travel in what their task reports, and the commit writes them to the log:
a micro-batch needs no files. If one task of a frame has more, the commit writes those of the others
to files, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from siltstone.api.results import Receipt
from siltstone.api.tasks import Staged, StageTask
from siltstone.api.transaction import Transaction
from siltstone.choices import Missing
from siltstone.errors import (
    ConflictError,
    DuplicateKeyError,
    RequestError,
    SchemaMismatchError,
    SiltstoneError,
)
from siltstone.process import malloc
from siltstone.process.retry import Retry
from siltstone.spark.context import schemas
from siltstone.spark.context.application import Application, store_of, tell_own
from siltstone.spark.context.defaults import has_default
from siltstone.spark.context.options import COMMIT_ATTEMPTS, SinkOptions, WriteOptions
from siltstone.spark.reads.task_rows import require_path
from siltstone.spark.writes.guards import Unchanged, WholeRows, require_same, require_whole
from siltstone.spark.writes.replacing import Replaced
from siltstone.store import Store

_REPORTED_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)

Token = tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class StatementRead:
    """What a statement read that changes rows by key: the lowest seq, and which tables count.

    Each commit after `seq` to the same keys is a conflict; so is one to these tables, by id, which
    are those of a serializable statement. `now` is the seq at which the statement was planned.
    """

    seq: int
    now: int
    tables: tuple[int, ...] = ()

    @property
    def is_old(self) -> bool:
        """Whether the statement has a frame of an earlier seq."""
        return self.seq < self.now

    def explained(self, error: ConflictError | DuplicateKeyError) -> ConflictError:
        """Return what to do: to run the statement again does not help."""
        return ConflictError(
            error.table,
            error.key,
            self.seq,
            self.now,
            explained=f"{error}. The statement was planned at seq {self.now}, but has a frame of"
            f" seq {self.seq}, made or cached then: make it again. If it is VERSION AS OF that seq,"
            f" and known to be old, say WITH (expectSeq = {self.now})",
        )


@dataclass(frozen=True, slots=True)
class FramePiece:
    """Writes the rows of one frame on executors; pickles.

    `replaced`: the rows that an overwrite replaces; None: all rows of the table. `gone`: the table
    that the commit drops, by id, for the new one of its name.
    """

    stage: StageTask
    columns: pa.Schema
    is_overwrite: bool
    whole: WholeRows | None
    application: Application | None
    replaced: Replaced | None = None
    gone: int | None = None

    @property
    def is_near(self) -> bool:
        """Whether this process sees the file that the application's processes share."""
        return self.application is not None and self.application.is_here

    @property
    def truncates(self) -> bool:
        """Whether the commit deletes all rows that the table has."""
        return self.is_overwrite and self.replaced is None and not self.stage.creates

    def unchanged(self, expect_seq: int | None) -> Unchanged | None:
        """Return the guard of an overwrite whose reads are planned; None: it replaces nothing.

        Raises:
            UnavailableError: Spark does not tell which application overwrites.
            RequestError: There is no table that could have changed.
        """
        table = self.gone
        if table is None:
            if self.stage.creates and expect_seq is not None:
                raise RequestError(f"there is no table {self.stage.table!r} at seq {expect_seq}")
            if not self.is_overwrite or self.stage.creates:
                return None
            table = self.stage.table_id
        return Unchanged.plan(self.stage, table, self.application, expect_seq)

    def job(
        self, staged: Iterable[Staged], unchanged: Unchanged | None = None, *, is_near: bool = False
    ) -> StageJob:
        """Return the job to commit, from the pieces of the tasks.

        `is_near`: all of them ran where the driver does, so they could tell what they read.
        """
        guard = unchanged if unchanged is None or is_near else unchanged.far()
        return StageJob(self, tuple(staged), guard)

    def write(self, batches: Iterable[pa.RecordBatch], task: int | None = None) -> Staged:
        """Write the rows of one task; they are durable on return, or in it, but not visible.

        `task`: its number in the frame; None: Spark tells it.

        Raises:
            SchemaMismatchError: A column cannot hold a value, or may not be null.
            UnavailableError: This machine does not see the store's path, or its disk refuses.
        """
        require_path(self.stage.root)
        malloc.bound()
        if task is None:
            context = TaskContext.get()
            task = 0 if context is None else context.partitionId()
        return self.stage.run(self._fitting(batches), inline_bytes_max=inline_bytes_max(task))

    def _fitting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fitting = schemas.as_schema(batch, self.columns)
            if self.replaced is not None:
                self.replaced.check_rows(fitting)
            yield fitting


def inline_bytes_max(task: int) -> int:
    """Return how many bytes of rows a task may report, by its number from 0 in the frame.

    No task knows how many there are, and the driver holds what all report: so the n-th may report
    an n-th. Together that is at most 7.5 MiB of 1,000 tasks, and 14.4 of a million; and few rows
    in each of 200 tasks, as a shuffle leaves them, are still reported.
    """
    return _REPORTED_BYTES_MAX // (task + 1)


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

    With a `primary_key` the commit creates a table that does not exist, with `merges_schema` it
    adds columns.

    Raises:
        TableNotFoundError, RequestError: There is no such table, or no such op for it.
        SchemaMismatchError: A column is missing, unknown, or of a type that does not fit; or rows
            of an upsert lack one, and `missing` does not say what becomes of it.
    """
    table, op, order_by = options.table, options.op, options.order_by
    if is_overwrite and op == "delete":
        raise RequestError("mode 'overwrite' replaces all rows; op 'delete' needs 'append'")
    target = _target(db, options, given)
    columns = schemas.to_store(given, target.schema, table)
    if op == "delete":
        columns = pa.schema([field for field in columns if field.name in target.keys])
    wanted = target.keys if op == "delete" else target.schema.names
    for name in wanted:
        field = target.schema.field(name)
        is_given = name in columns.names or has_default(field)
        if not is_given and (name in target.keys or not field.nullable):
            raise SchemaMismatchError(
                f"the rows for {table!r} have no column {name!r} ({field.type}), which may not be"
                " null"
            )
    if order_by is not None and order_by not in columns.names:
        raise SchemaMismatchError(f"the rows for {table!r} have no column {order_by!r} to order by")
    replaced = _replaced(options, target, columns)
    is_range = replaced is not None
    is_upsert = op in {None, "upsert"} and bool(target.keys) and (not is_overwrite or is_range)
    missing = options.missing if is_upsert else "null"
    if missing != "null":
        _check_lacking(missing, target, columns, table, is_range=is_range)
    stage = db.stage(
        target.staged_as or table, op, order_by=order_by, schema=target.added,
        primary_key=options.primary_key, missing=missing,
    )  # fmt: skip
    stage = replace(stage, table=table)
    whole = None
    if missing == "refuse" and not stage.creates:
        whole = WholeRows(stage.table_id, tuple(columns.names), is_range)
    return FramePiece(stage, columns, is_overwrite, whole, application, replaced, target.gone)


@dataclass(frozen=True, slots=True)
class _Target:
    """A table as the commit will find or make it; `added` are the columns that it makes.

    `gone`: the id of the one that it replaces, whose name is not free while rows are staged.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    added: pa.Schema | None = None
    gone: int | None = None
    staged_as: str | None = None


def _check_lacking(
    missing: Missing, target: _Target, columns: pa.Schema, table: str, *, is_range: bool
) -> None:
    """Check that an upsert takes away no value that is not to be null.

    Raises:
        SchemaMismatchError: Its rows lack a column.
        RequestError: They are to keep values that the write deletes before they come.
    """
    if missing == "refuse":
        require_whole(target.schema.names, table, columns.names, is_range=is_range)
    elif is_range:
        raise RequestError(
            'replaceWhere deletes rows before others come, so missing="keep" has nothing to keep;'
            ' select all columns, or say .option("missing", "null")'
        )


def _replaced(
    options: WriteOptions | SinkOptions, target: _Target, columns: pa.Schema
) -> Replaced | None:
    if isinstance(options, SinkOptions) or options.replaces is None:
        return None
    return Replaced.plan(options.replaces, target.schema, columns, options.table)


def _target(db: Store, options: WriteOptions | SinkOptions, given: StructType) -> _Target:
    table, keys = options.table, options.primary_key
    is_new = isinstance(options, WriteOptions) and options.creates
    if is_new or (keys and table not in db.tables()):
        return _new_target(db, options, given)
    found = db[table]
    if keys and keys != found.primary_key:
        raise RequestError(f"{table!r} has the key {found.primary_key}, not {keys}")
    if not options.merges_schema or options.op == "delete":
        return _Target(found.schema, found.primary_key)
    added = schemas.of_new_columns(_unknown(given, found.schema, table), table)
    if not added.names:
        return _Target(found.schema, found.primary_key)
    return _Target(pa.schema([*found.schema, *added]), found.primary_key, added)


def _new_target(db: Store, options: WriteOptions | SinkOptions, given: StructType) -> _Target:
    table, keys = options.table, options.primary_key
    replaces_table = isinstance(options, WriteOptions) and options.replaces_table
    gone = db[table].id if table in db.tables() else None
    if gone is not None and not replaces_table:
        raise RequestError(f"there is a table {table!r} already")
    if options.op == "delete":
        raise RequestError(f"op 'delete' creates no table, and there is no table {table!r}")
    fields = schemas.of_new_columns(given, table)
    made = pa.schema([field.with_nullable(field.name not in keys) for field in fields])
    for key in keys:
        schemas.stored(key, made, table)
    staged_as = None if gone is None else _free_name(db, table)
    return _Target(made, keys, made, gone, staged_as)


def _free_name(db: Store, table: str) -> str:
    taken = {*db.tables()}
    return next(name for n in count() if (name := f"{table}_{n}") not in taken)


def _unknown(given: StructType, found: pa.Schema, table: str) -> StructType:
    """Return the columns of a frame that a table lacks.

    Raises:
        SchemaMismatchError: One differs from a column of the table only in upper and lower case.
    """
    alike = {name.lower(): name for name in found.names}
    fields = [field for field in given.fields if field.name not in found.names]
    for field in fields:
        if field.name.lower() in alike:
            raise SchemaMismatchError(
                f"table {table!r} has a column {alike[field.name.lower()]!r}, the rows have"
                f" {field.name!r}; rename it in the rows"
            )
    return StructType(fields)


def commit(
    db: Store,
    jobs: Sequence[StageJob],
    token: Token,
    *,
    claim: int | None = None,
    read: StatementRead | None = None,
    attempts: int = COMMIT_ATTEMPTS,
) -> Receipt:
    """Make all rows of the jobs visible at one seq, or none; with a token, once.

    `read`: what the rows were made of, if that matters; such a commit is tried once.

    Raises:
        FencedError: Another driver claimed the token's app after `claim`.
        ConflictError: Other commits won, `attempts` times; or an overwritten table, or a row
            that a statement changes, changed since it was read.
        SchemaMismatchError: Rows of an upsert lack a column that was added meanwhile.
        DuplicateKeyError: Equal keys without `order_by`, or an insert of an existing key.
        InDoubtError: The commit may or may not be durable; with a token, run the job again.
    """
    try:
        if read is None:  # what is staged stays good: only the snapshot was too old
            retry = Retry(attempts, (_LostRace,))
            tx = retry.run(lambda: _attempt(db, jobs, token, claim, None))
        else:
            tx = _attempt(db, jobs, token, claim, read)
    except _LostRace as lost:
        if read is not None and read.is_old:
            raise read.explained(lost.error) from None
        raise lost.error from None
    except DuplicateKeyError as error:
        if read is None or not read.is_old:
            raise
        raise read.explained(error) from None  # a row of then, which may be gone
    assert tx.receipt is not None
    if tx.receipt.seq > tx.read_seq:  # else the token's batch was applied before
        _tell(jobs, tx.receipt.seq)
    tidy(jobs, "the rows are committed")  # their keys go, or all of a token applied before
    return tx.receipt


def tidy(jobs: Iterable[StageJob], outcome: str) -> None:
    """Delete what jobs need no more. Their outcome stands without it; a failure is reported."""
    for job in jobs:
        try:
            job.discard()
        except SiltstoneError as error:
            _log.warning("%s; what is left of it is a vacuum's: %s", outcome, error)


class _LostRace(Exception):
    """Another commit came between the snapshot and ours."""

    def __init__(self, error: ConflictError) -> None:
        super().__init__(error)
        self.error = error


def _attempt(
    db: Store, jobs: Sequence[StageJob], token: Token, claim: int | None, read: StatementRead | None
) -> Transaction:
    # Rows that come into a replaced range after the snapshot would be left next to the new ones.
    replaces = any(job.piece.replaced is not None for job in jobs)
    isolation = "serializable" if replaces or (read is not None and read.tables) else "snapshot"
    seq = None if read is None else read.seq
    tx = db.transaction(isolation=isolation, token=token, claim=claim, read_seq=seq)
    with tx:
        _check(tx, jobs, token)
        try:
            _note(tx, read)
            for job in jobs:
                _drop(tx, job.piece)
                if job.piece.replaced is not None and not tx.is_applied:
                    _replace(db, tx, job.piece.stage, job.piece.replaced)
                tx.attach(job.piece.stage, job.staged, job.piece.truncates)
            tx.commit()
        except ConflictError as error:
            raise _LostRace(error) from error
    return tx


def _note(tx: Transaction, read: StatementRead | None) -> None:
    """Let a commit to the tables that a serializable statement read be a conflict."""
    if read is not None and not tx.is_applied:
        for table in read.tables:
            tx.table(table).count()


def _drop(tx: Transaction, piece: FramePiece) -> None:
    """Drop the table that a new one replaces.

    Raises:
        RequestError: Another one has its name by now.
    """
    if piece.gone is None or tx.is_applied:
        return
    name = piece.stage.table
    require_same(name, piece.gone, tx[name].id)
    tx.drop_table(name)


def _replace(db: Store, tx: Transaction, stage: StageTask, replaced: Replaced) -> None:
    """Delete the rows that the staged ones replace; a table that the commit makes has none."""
    if stage.creates:
        return
    table = tx.table(stage.table_id)
    is_widened = bool(table.primary_key) and bool({*stage.arrow.names} - {*table.schema.names})
    if is_widened:
        tx.attach(stage, ())  # new columns come first: a table with staged rows takes none
    replaced.delete(db, tx, stage.table_id, is_widened=is_widened)


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
        overwritten = [(p.stage.table_id, p.stage.table) for p in pieces if p.truncates]
        tell_own(application, store_of(stage.root, stage.store_id), seq, overwritten)
