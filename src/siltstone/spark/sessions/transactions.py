"""Transactions: several frames into several tables, one commit; for `foreachBatch` and jobs."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self, TypeAlias, get_args

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from siltstone.api.results import Receipt
from siltstone.api.store import Store
from siltstone.api.tasks import Staged
from siltstone.choices import MISSINGS, Missing, StagedOp
from siltstone.errors import ClosedError, RequestError, SchemaMismatchError, not_one_of
from siltstone.spark.context import stores
from siltstone.spark.context.application import of_session
from siltstone.spark.context.descriptions import described
from siltstone.spark.context.options import AUTO, MERGES, MergeWhen, WriteOptions
from siltstone.spark.context.workers import one_sentence, sealed
from siltstone.spark.writes import automatic_merge
from siltstone.spark.writes.staging import FramePiece, StageJob, Token, commit, plan, tidy

Mode: TypeAlias = Literal["append", "overwrite"]
MODES: tuple[Mode, ...] = get_args(Mode)
OPS_OF_CHANGES = ("upsert", "delete", "snapshot")
"""A feed from seq 0 begins with rows whose `_op` is "snapshot", where their past is gone."""


def transaction(
    db: Store | str | os.PathLike[str], token: Token = None, *, merge: MergeWhen = AUTO
) -> SparkTransaction:
    """Begin a transaction with rows from Spark; a context manager.

        with transaction(db, token=("etl", batch_id)) as tx:
            tx.write(orders, "orders", op="upsert")
            tx.write(lines, "lines", op="upsert")

    Args:
        db: An open store, owned or joined; or its path, which is joined for the commit.
        token: Application and batch: the transaction is applied once, however often it is tried.
        merge: Whether to merge on Spark after the commit: "auto" does if an owner would, "always",
            "off". The commit stays valid if the merge fails.

    Raises:
        RequestError: An argument is invalid.
    """
    if merge not in MERGES:
        raise RequestError(not_one_of("merge", merge, MERGES))
    return SparkTransaction(db, token, merge)


class SparkTransaction:
    """See `transaction`. Each call stages a frame; nothing is visible before the end of the block.

    One thread at a time may use it. An error in the block leaves every table unchanged.
    """

    def __init__(self, db: Store | str | os.PathLike[str], token: Token, merge: MergeWhen) -> None:
        """Use `transaction`."""
        self._db, self._token, self._merge = db, token, merge
        self._spark: SparkSession | None = None
        self._jobs: list[StageJob] = []
        self._is_open = True
        self.receipt: Receipt | None = None

    @property
    def seq(self) -> int:
        """The seq of the commit, available after the block."""
        if self.receipt is None:
            raise RequestError("the transaction has no seq before it is committed")
        return self.receipt.seq

    def write(
        self,
        frame: DataFrame,
        table: str,
        *,
        op: StagedOp | None = None,
        mode: Mode = "append",
        order_by: str | None = None,
        missing: Missing = "refuse",
        expect_seq: int | None = None,
    ) -> int:
        """Run the frame and stage its rows; return the number of rows.

        If several frames write to one table, later frames win over earlier ones. An insert or an
        overwrite must be the first.

        Args:
            frame: The rows. Columns are matched by name; missing nullable columns become null,
                except in an upsert.
            table: An existing table.
            op: "upsert" (default), "insert" or "delete"; "append" for a plain table.
            mode: "append", or "overwrite" to replace all rows of the table.
            order_by: Among rows with equal keys, keep the one with the highest value of this
                column.
            missing: What becomes of columns that the rows of an upsert lack. "refuse" (default): no
                row is written, whether the table has rows or not. "keep": rows that exist keep
                their values; the commit reads them, and writes whole rows once more. It must be the
                first write to its table. "null": they become null.
            expect_seq: For an overwrite: the seq after which the table must not have changed.
                Default: the oldest seq at which this Spark application read the table since its own
                last overwrite; its own commits do not count. A table that it never read is replaced
                without a check.

        Raises:
            RequestError: The table, the op or a column does not fit; nothing was written.
            UnavailableError: Spark does not tell which application overwrites.
        """
        if not self._is_open:
            raise ClosedError("the transaction has ended; begin a new one")
        if not isinstance(frame, DataFrame):
            raise RequestError(f"a transaction of Spark writes frames of Spark; got {frame!r:.80}")
        if mode not in MODES:
            raise RequestError(not_one_of("mode", mode, MODES))
        is_overwrite = mode == "overwrite"
        _check_choices(missing, expect_seq, is_overwrite=is_overwrite)
        if is_overwrite and any(job.piece.stage.table == table for job in self._jobs):
            raise RequestError(
                f"this transaction has already written to {table!r}; overwrite first"
            )
        self._spark = frame.sparkSession
        application = of_session(frame.sparkSession)
        with stores.planner(self._db) as reader:
            options = WriteOptions(str(reader.path), table, op, order_by, missing, expect_seq)
            piece = plan(reader, options, frame.schema, application, is_overwrite=is_overwrite)
        self._jobs.append(piece.job(()))  # whatever fails, it is discarded
        staged, is_near = _staged(frame, piece)
        unchanged = piece.unchanged(expect_seq)  # what the frame reads was planned by now
        self._jobs[-1] = piece.job(staged, unchanged, is_near=is_near)
        return sum(piece.rows for piece in staged)

    def apply_changes(self, frame: DataFrame, table: str, *, missing: Missing = "refuse") -> int:
        """Apply the newest change of each key of another keyed table; return the number of keys.

        For a copy of a table: `frame` is a batch of the stream of its changes, as `foreachBatch`
        passes it, or any rows with `_seq` and `_op` ("upsert" or "delete") besides the columns of
        `table`. Spark sorts it once and holds it until it is staged.

        Args:
            frame: Changes in any order, any number for one key.
            table: An existing keyed table; a delete uses only the key.
            missing: As in `write`, for changes that lack columns of the table.

        Raises:
            RequestError: The table is plain, or columns do not fit; or a change has no `_seq`, or
                an invalid `_op`. Nothing was written.
        """
        if not {"_seq", "_op"} <= set(frame.columns):
            raise SchemaMismatchError(
                f"changes must have the columns '_seq' and '_op'; got {frame.columns}"
            )
        with stores.planner(self._db) as reader:
            keys = reader[table].primary_key
        if not keys or not set(keys) <= set(frame.columns):
            raise RequestError(f"{table!r} has the key {keys}, the changes have {frame.columns}")
        whole = fn.struct(*(fn.col(f"`{name}`") for name in frame.columns))
        # One commit may delete a key and write it again, as an overwrite does; never the reverse.
        order = fn.struct(_checked_seq(table), _checked_op(table) != "delete")
        newest = (
            frame.groupBy(*(fn.col(f"`{name}`") for name in keys))
            .agg(fn.max_by(whole, order).alias("newest"))
            .select("newest.*")
            .persist()
        )
        try:
            is_gone = fn.col("_op") == "delete"
            live, gone = newest.where(~is_gone), newest.where(is_gone)
            count = self.write(live.drop("_seq", "_op"), table, op="upsert", missing=missing)
            return count + self.write(gone.select(*(f"`{k}`" for k in keys)), table, op="delete")
        except PySparkException as error:
            refused = _refusal_of(error, table)
            if refused is None:
                raise
            raise refused from None
        finally:
            newest.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        if kind is not None:
            tidy(self._jobs, "nothing was committed of the staged rows")
            return
        place = self._db
        is_path = isinstance(place, str | os.PathLike)
        with stores.owner(place) if is_path else nullcontext(place) as db:
            self.receipt = commit(db, self._jobs, self._token)
            due, root = automatic_merge.due(db, self._jobs, self._merge), db.path
        if self._spark is not None:  # now, in no owner's way
            automatic_merge.merge_on(self._spark, root, due)
        if is_path:
            automatic_merge.report(db, ())


# Spark finds wrong changes while it sorts them, so this takes no separate job.


def _checked_op(table: str) -> Column:
    op, seq = fn.col("_op"), fn.coalesce(fn.col("_seq").cast("string"), fn.lit("null"))
    said = ("changes for ", fn.lit(repr(table)), ": one with the _seq ", seq, " has the _op ")
    refused = _refused(*said, _quoted(op), "; give 'upsert' or 'delete'")
    return fn.when(op.isin(*OPS_OF_CHANGES), op).otherwise(refused.cast("string"))


def _checked_seq(table: str) -> Column:
    op, seq = fn.col("_op"), fn.col("_seq")
    said = ("changes for ", fn.lit(repr(table)), ": one with the _op ", _quoted(op))
    refused = _refused(*said, " has the _seq null, so none knows which change is the newest")
    return fn.when(seq.isNotNull(), seq).otherwise(refused.cast("long"))


def _refused(*said: str | Column) -> Column:
    parts = (fn.lit(part) if isinstance(part, str) else part for part in said)
    return fn.raise_error(fn.concat(*parts))


def _quoted(text: Column) -> Column:
    return fn.coalesce(fn.concat(fn.lit("'"), text.cast("string"), fn.lit("'")), fn.lit("null"))


def _refusal_of(error: PySparkException, table: str) -> RequestError | None:
    """Return what one of the checks above said; None: it is another error."""
    said = (error.getMessageParameters() or {}).get("errorMessage", "")
    return RequestError(said) if said.startswith(f"changes for {table!r}: one with ") else None


def _check_choices(missing: str, expect_seq: object, *, is_overwrite: bool) -> None:
    if missing not in MISSINGS:
        raise RequestError(not_one_of("missing", missing, MISSINGS))
    if expect_seq is None:
        return
    if not is_overwrite:
        raise RequestError("expect_seq is only for overwrites; an 'append' replaces no rows")
    if type(expect_seq) is not int or expect_seq < 0:
        raise RequestError(f"expect_seq must be a seq, a whole number; got {expect_seq!r}")


def _staged(frame: DataFrame, piece: FramePiece) -> tuple[tuple[Staged, ...], bool]:
    """Stage the rows of a frame in a job of Spark; only what tasks gave back counts.

    Return it, and whether all of them ran where the driver does.
    """
    open_piece, sent = sealed(replace, piece)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with one_sentence():
            piece = open_piece(*sent)
            staged = piece.write(batches)
        yield pa.RecordBatch.from_pydict({"staged": [pickle.dumps((staged, piece.is_near))]})

    work.__name__ = name = f"siltstone: stage {piece.stage.op} of {piece.stage.table}"
    with described(frame.sparkSession, name):
        rows = frame.mapInArrow(work, "staged binary").collect()  # pyright: ignore[reportArgumentType]
    given = [pickle.loads(row["staged"]) for row in rows]  # noqa: S301 - ours, made above
    return tuple(staged for staged, _ in given), all(is_near for _, is_near in given)
