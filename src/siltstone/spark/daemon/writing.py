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
import pickle
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.errors import InvariantError, RequestError
from siltstone.spark import stores
from siltstone.spark.application import APPLICATION
from siltstone.spark.daemon.messages import Channel, CommitWrite, PlanSink, PlanWrite
from siltstone.spark.drivers import Start
from siltstone.spark.options import SinkOptions, WriteOptions
from siltstone.spark.staging import FramePiece
from siltstone.spark.writer import (
    BatchWriter,
    BatchWritten,
    Sink,
    SinkWritten,
    abort_batch,
    commit_batch,
)

_LENGTH = struct.Struct("<i")
_OF_CATALOG = ("uri", "table", "path", "primarykey", "replacewhere", "mergeschema")
_OF_SINK = ("uri", "table", "path", "primarykey")
INSERTS = ("insert", "upsert")


def plan(asked: PlanWrite) -> BatchWriter:
    """Check a statement, and begin its job.

    Raises:
        TableNotFoundError, RequestError, SchemaMismatchError: As `staging.plan`; or an upsert does
            not say what becomes of columns that the statement does not name.
    """
    schema = StructType.fromJson(json.loads(asked.columns))
    options = _options_of(asked)
    environment = {APPLICATION: asked.application}
    return BatchWriter.plan(options, schema, is_overwrite=asked.overwrites, environment=environment)


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


def plan_sink(asked: PlanSink) -> SinkJob:
    """Check a batch of a stream, and begin its job.

    Raises:
        TableNotFoundError, RequestError, SchemaMismatchError: As `staging.plan`; or the table was
            made again since the query started.
        OwnedError: The owner does not serve: call `serve_local()` there.
    """
    given = _without(asked.options, _OF_SINK, "stream of a catalog")
    found = SinkOptions.parse({**given, "uri": asked.uri, "table": asked.table})
    options = replace(found, checkpoint=found.checkpoint or asked.query)
    with stores.reader(asked.uri) as db:
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


def _without(given: Mapping[str, str], known: Sequence[str], what: str) -> dict[str, str]:
    found = {name.lower(): text for name, text in given.items()}
    for name in known:
        if name in found:
            raise RequestError(f"a {what} has no option {name!r}: the catalog knows it")
    return found


def _options_of(asked: PlanWrite) -> WriteOptions:
    given = _without(asked.options, _OF_CATALOG, "statement")
    given |= {"uri": asked.uri, "table": asked.table}
    if asked.replaces is not None:
        given["replacewhere"] = asked.replaces
    if asked.creates is not None:
        return replace(
            WriteOptions.parse(given), primary_key=tuple(asked.creates), creates=True, op=None
        )
    with stores.reader(asked.uri) as db:
        table = db[asked.table]
        require_same(asked.table, asked.id, table.id)
        is_keyed = bool(table.primary_key)
    if asked.overwrites:
        return WriteOptions.parse(given)
    return WriteOptions.parse(_with_op(given, asked, is_keyed=is_keyed))


def require_same(
    name: str,
    planned: int | None,
    found: int,
    since: str = "the statement was planned: run it again",
) -> None:
    """Check that a statement, or a query, meets the table that it was planned for.

    Raises:
        RequestError: It is another one of that name.
    """
    if planned != found:
        raise RequestError(f"{name!r} was dropped and made again since {since}")


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


def staged(job: BatchWriter | SinkJob, channel: Channel, task: int) -> BatchWritten | SinkWritten:
    """Stage the rows of a task, which the JVM sends; take all that it sends, whatever fails.

    Raises:
        SchemaMismatchError, UnavailableError: As `FramePiece.write`.
        Ended: The JVM sends no more.
    """
    pieces = _Pieces(channel)
    try:
        with pa.PythonFile(pieces, "r") as source, pa.ipc.open_stream(source) as batches:
            return job.write(iter(batches), task)
    finally:
        pieces.drain()


def commit(asked: CommitWrite, payload: bytes) -> None:
    """Commit what tasks staged.

    Raises:
        InvariantError: They staged other rows than Spark gave them.
        OwnedError, DuplicateKeyError, ConflictError, InDoubtError: As `BatchWriter.commit`.
    """
    job, written = unpacked(asked.sizes, payload)
    rows = sum(each.staged.rows for each in written)
    if rows != asked.rows:
        raise InvariantError(f"Spark gave {asked.rows} rows to write, {rows} were staged")
    if asked.batch is None:
        job.commit(written)
    else:
        job.commit(written, asked.batch)


def abort(sizes: Sequence[int], payload: bytes) -> None:
    """Delete what tasks staged."""
    job, written = unpacked(sizes, payload)
    if isinstance(job, SinkJob):
        abort_batch(written)
    else:
        job.abort(written)


def unpacked(sizes: Sequence[int], payload: bytes) -> tuple[Any, list[Any]]:
    """Return the job and what its tasks got."""
    found, at = list[bytes](), 0
    for size in sizes:
        found.append(payload[at : at + size])
        at += size
    job, *written = (pickle.loads(each) for each in found)  # noqa: S301 - see `serving`
    return job, written


class _Pieces(io.RawIOBase):
    """A file of the pieces that the JVM sends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left, self._is_over = 0, False

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        """Read some bytes; none at the end."""
        if not self._left and not self._is_over:
            (self._left,) = _LENGTH.unpack(self._channel.receive(_LENGTH.size))
            self._is_over = self._left == 0
        size = min(self._left, len(into))
        into[:size] = self._channel.receive(size)
        self._left -= size
        return size

    def drain(self) -> None:
        """Read what is left."""
        place = memoryview(bytearray(1 << 16))
        while not self._is_over:
            self.readinto(place)
