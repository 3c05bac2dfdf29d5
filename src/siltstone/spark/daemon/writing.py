"""Writing: the rows of a statement, from its plan to its commit.

    plan     the job of the statement                  in the driver's process
    stage    rows of a task become files, or few rows  in that of each executor
    commit   all of them at one seq, or none           in the driver's process

A job is that of `format("siltstone")` (`writer`), as are its options and its conditions.

A batch of a stream goes the same way. The run claims the start of its stream with its first batch
(see `drivers`); the JVM remembers that for the next ones. A batch has a token, so its commit may be
asked for again.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.choices import Isolation
from siltstone.errors import InvariantError, RequestError, not_one_of
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION
from siltstone.spark.context.options import (
    COMMIT_ATTEMPTS,
    ReadOptions,
    SinkOptions,
    WriteOptions,
    is_change_feed,
    is_feed,
    without_known,
)
from siltstone.spark.daemon import messages
from siltstone.spark.daemon.messages import Change, Channel, PlanWrite
from siltstone.spark.reads.reader import LIVE
from siltstone.spark.writes.drivers import Start
from siltstone.spark.writes.guards import require_same
from siltstone.spark.writes.staging import FramePiece, StatementRead
from siltstone.spark.writes.writer import (
    BatchWriter,
    BatchWritten,
    Sink,
    SinkWritten,
    abort_batch,
    commit_all,
    commit_batch,
)

_LENGTH = struct.Struct("<i")
_OF_CATALOG = ("uri", "table", "path", "primarykey", "replacewhere", "mergeschema")
_OF_SINK = ("uri", "table", "path", "primarykey")
INSERTS = ("insert", "upsert")
_RETRIES_MAX = 1000
_CHANGING = ("upsert", "delete")
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)


def plan(asked: PlanWrite) -> BatchWriter:
    """Check a statement, and begin its job.

    Raises:
        TableNotFoundError, RequestError, SchemaMismatchError: As `staging.plan`; or an upsert does
            not say what becomes of columns that the statement does not name.
    """
    schema = StructType.fromJson(json.loads(asked.columns))
    options = replace(_options_of(asked), attempts=_attempts(asked.retries))
    environment = {APPLICATION: asked.application}
    return BatchWriter.plan(options, schema, is_overwrite=asked.overwrites, environment=environment)


def _attempts(retries: str | None) -> int:
    if retries is None:
        return COMMIT_ATTEMPTS
    if not (retries.isascii() and retries.isdigit() and int(retries) <= _RETRIES_MAX):
        raise RequestError(
            f"spark.siltstone.retries must be a whole number up to {_RETRIES_MAX}; got {retries!r}"
        )
    return int(retries) + 1


@dataclass(frozen=True, slots=True)
class SinkJob:
    """The job of a batch of a stream; pickles."""

    options: SinkOptions
    piece: FramePiece
    query: str
    start: Start

    def write(self, iterator: Iterator[pa.RecordBatch], task: int) -> SinkWritten:
        """Stage the rows of one task; see `FramePiece.write`."""
        return SinkWritten(self.piece, self.piece.write(iterator, task), self.query, self.start)

    def commit(self, written: Sequence[SinkWritten], batch: int) -> None:
        """Commit a batch once; see `Sink.commit`."""
        # The run claimed its start once, before its first commit, and may take the app with it.
        commit_batch(self.options, written, batch, first_commit=self.start.seq)


def plan_sink(asked: messages.PlanSink) -> SinkJob:
    """Check a batch of a stream, and begin its job.

    Raises:
        TableNotFoundError, RequestError, SchemaMismatchError: As `staging.plan`; or the table was
            made again since the query started.
        OwnedError: The owner does not serve: call `serve_local()` there.
    """
    given = without_known(asked.options, _OF_SINK, "stream of a catalog")
    found = SinkOptions.parse({**given, "uri": asked.uri, "table": asked.table})
    options = replace(found, checkpoint=found.checkpoint or asked.query)
    with stores.planner(asked.uri) as db:
        found_id = db[asked.table].id
    require_same(asked.table, asked.id, found_id, "the query started: start it again")
    sink = Sink(
        options,
        StructType.fromJson(json.loads(asked.columns)),
        is_overwrite=asked.overwrites,
        first_commit=0,
        environment={APPLICATION: asked.application},
        start=asked.start,
    )
    piece, start = sink.planned()
    return SinkJob(options, piece, asked.query, start)


def _options_of(asked: PlanWrite) -> WriteOptions:
    if asked.isolation not in ISOLATIONS:
        raise RequestError(not_one_of("isolation", asked.isolation, ISOLATIONS))
    if asked.isolation == "serializable":
        _refuse_loads(asked)
    given = without_known(asked.options, _OF_CATALOG, "statement")
    given |= {"uri": asked.uri, "table": asked.table}
    given.pop("isolation", None)  # the commit has it, see `_read`
    if asked.replaces is not None:
        given["replacewhere"] = asked.replaces
    if asked.creates is not None:
        return replace(
            WriteOptions.parse(given), primary_key=tuple(asked.creates), op=None, creates=True,
            replaces_table=asked.replaces_table,
        )  # fmt: skip
    with stores.planner(asked.uri) as db:
        table = db[asked.table]
        require_same(asked.table, asked.id, table.id)
        is_keyed = bool(table.primary_key)
    if asked.overwrites:
        return WriteOptions.parse(given)
    found = WriteOptions.parse(
        _with_op(given, asked, is_keyed=is_keyed)
        if asked.change is None
        else _of_change(given, asked.change)
    )
    if asked.change is not None or found.op in _CHANGING:
        _refuse_loads(asked)
    return replace(found, expect_seq=None) if is_keyed else found  # the commit has it, see `_read`


def _refuse_loads(asked: PlanWrite) -> None:
    """Refuse rows that were not read through a catalog where a later change of them counts.

    A commit since such a read would not be a conflict, and would be lost. It counts for the table
    that rows of it change, and for each table that a serializable statement reads.

    Raises:
        RequestError: A frame of `format("siltstone")` has such a table.
    """
    is_serializable = asked.isolation == "serializable"
    for given in asked.loads:
        # Changes are what they are, and a live frame reads after the statement's pin.
        if is_change_feed(given) or is_feed(given) or (LIVE in given and not is_serializable):
            continue
        read = ReadOptions.parse(given)
        counts = is_serializable or read.table == asked.table
        if counts and _is_same_place(read.uri, asked.uri):
            why = (
                "this statement changes"
                if read.table == asked.table
                else "must not change until then"
            )
            raise RequestError(
                f"a frame of format('siltstone') does not tell at which seq it read {read.table!r},"
                f" which {why}: read {read.table!r} through the catalog"
            )


def _is_same_place(one: str, other: str) -> bool:
    return os.path.realpath(stores.path_of(one)) == os.path.realpath(stores.path_of(other))


def _of_change(given: Mapping[str, str], change: Change) -> dict[str, str]:
    for name in ("op", "missing", "order_by"):
        if name in given:
            raise RequestError(f"a statement that changes rows by key has no option {name!r}")
    return {**given, "op": "upsert" if change == "update" else change}


def _with_op(given: Mapping[str, str], asked: PlanWrite, *, is_keyed: bool) -> dict[str, str]:
    if asked.insert not in INSERTS:
        raise RequestError(
            f"spark.sql.catalog.<name>.insert must be one of {', '.join(INSERTS)}; got"
            f" {asked.insert!r}"
        )
    found = dict(given)
    if is_keyed:
        found.setdefault("op", asked.insert)
    if found.get("op") == "upsert" and found.get("missing") != "null":
        raise RequestError(
            "an upsert by INSERT INTO replaces whole rows, and Spark does not tell which columns"
            " the statement names: say WITH (op = 'upsert', missing = 'null'), and columns that are"
            " not named become null"
        )
    return found


def staged(
    job: BatchWriter | SinkJob, channel: Channel, asked: messages.WriteRows
) -> BatchWritten | SinkWritten:
    """Stage the rows of a task, which the JVM sends; take all that it sends, whatever fails.

    Raises:
        RequestError: An update changes the key of a row.
        SchemaMismatchError, UnavailableError: As `FramePiece.write`.
        Ended: The JVM sends no more.
    """
    pieces = _Pieces(channel)
    try:
        with pa.PythonFile(pieces, "r") as source, pa.ipc.open_stream(source) as batches:
            return job.write(with_their_key(batches, asked.old_keys), asked.task)
    finally:
        pieces.drain()


def with_their_key(batches: Iterable[pa.RecordBatch], old_keys: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without their last columns, which are the key that the rows have.

    Raises:
        RequestError: A row would get another key. As a delete and an upsert that would replace the
            row that has the new one.
    """
    for batch in batches:
        width = batch.num_columns - old_keys
        found = batch.select(range(width))
        for place in range(width, batch.num_columns):
            name, old = batch.schema.field(place).name, batch.column(place)
            new = found.column(name)
            if not new.equals(old):
                raise RequestError(_changed_key(name, old, new))
        yield found


def _changed_key(name: str, old: pa.Array, new: pa.Array) -> str:
    pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
    before, after = next(pair for pair in pairs if pair[0] != pair[1])
    return (
        f"the row with the key {name} = {before!r} would get the key {after!r}: a key does not"
        " change; delete the row, and insert another one"
    )


def commit(asked: messages.CommitWrite, payload: bytes) -> None:
    """Commit what tasks staged.

    Raises:
        InvariantError: They staged other rows than Spark gave them.
        OwnedError, DuplicateKeyError, ConflictError, InDoubtError: As `BatchWriter.commit`.
    """
    writes = unpacked(asked.writes, payload)
    for write, (_, written) in zip(asked.writes, writes, strict=True):
        rows = sum(each.staged.rows for each in written)
        if rows != write.rows:
            raise InvariantError(f"Spark gave {write.rows} rows to write, {rows} were staged")
    if asked.batch is None:
        commit_all(writes, _read(asked.read))
    else:
        ((job, written),) = writes
        job.commit(written, asked.batch)


def _read(asked: messages.PlanRead | None) -> StatementRead | None:
    if asked is None:
        return None
    tables = tuple(asked.tables) if asked.isolation == "serializable" else ()
    if asked.expected is None:
        return None if asked.seq is None else StatementRead(asked.seq, asked.now, tables)
    if asked.expected > asked.now:
        raise RequestError(
            f"expectSeq {asked.expected} is in the future: the statement reads at seq {asked.now}"
        )
    return StatementRead(asked.expected, asked.expected, tables)


def abort(asked: messages.AbortWrite, payload: bytes) -> None:
    """Delete what tasks staged."""
    for job, written in unpacked(asked.writes, payload):
        if isinstance(job, SinkJob):
            abort_batch(written)
        else:
            job.abort(written)


def unpacked(writes: Sequence[messages.StagedWrite], payload: bytes) -> list[tuple[Any, list[Any]]]:
    """Return the jobs, each with what its tasks got."""
    found, at = list[tuple[Any, list[Any]]](), 0
    for write in writes:
        parts: list[Any] = []
        for size in write.sizes:
            parts.append(pickle.loads(payload[at : at + size]))  # noqa: S301 - see `serving`
            at += size
        found.append((parts[0], parts[1:]))
    return found


class _Pieces(io.RawIOBase):
    """A file of the pieces that the JVM sends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left, self._is_over = 0, False

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill `into`; less only at the end, which is how Arrow knows an end."""
        got, place = 0, memoryview(into)  # what reads into a bytearray gets copies of its slices
        while got < len(place) and not self._is_over:
            got += self._read_some(place[got:])
        return got

    def _read_some(self, into: memoryview) -> int:
        if not self._left:
            (self._left,) = _LENGTH.unpack(self._channel.receive(_LENGTH.size))
            self._is_over = self._left == 0
        size = min(self._left, len(into))
        into[:size] = self._channel.receive(size)
        self._left -= size
        return size

    def drain(self) -> None:
        """Read what is left."""
        place = bytearray(1 << 16)
        while not self._is_over:
            self.readinto(place)
