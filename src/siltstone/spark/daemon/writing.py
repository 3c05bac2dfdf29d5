"""Writing: the rows of a statement, from its plan to its commit.

    plan     the job of the statement                  in the driver's process
    stage    rows of a task become files, or few rows  in that of each executor
    commit   all of them at one seq, or none           in the driver's process

A job is that of `format("siltstone")` (`writer`), as are its options and its conditions.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.errors import InvariantError, RequestError
from siltstone.spark import stores
from siltstone.spark.application import APPLICATION
from siltstone.spark.daemon.messages import Channel, CommitWrite, PlanWrite
from siltstone.spark.options import WriteOptions
from siltstone.spark.writer import BatchWriter, BatchWritten

_LENGTH = struct.Struct("<i")
_OF_CATALOG = ("uri", "table", "path", "primarykey", "replacewhere", "mergeschema")
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


def _options_of(asked: PlanWrite) -> WriteOptions:
    given = {name.lower(): text for name, text in asked.options.items()}
    for name in _OF_CATALOG:
        if name in given:
            raise RequestError(f"a statement has no option {name!r}: the catalog knows it")
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


def require_same(name: str, planned: int | None, found: int) -> None:
    """Check that a statement meets the table that it was planned for.

    Raises:
        RequestError: It is another one of that name.
    """
    if planned != found:
        raise RequestError(
            f"{name!r} was dropped and made again since the statement was planned: run it again"
        )


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


def staged(job: BatchWriter, channel: Channel, task: int) -> BatchWritten:
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
    job.commit(written)


def abort(sizes: Sequence[int], payload: bytes) -> None:
    """Delete what tasks staged."""
    job, written = unpacked(sizes, payload)
    job.abort(written)


def unpacked(sizes: Sequence[int], payload: bytes) -> tuple[BatchWriter, list[BatchWritten]]:
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
        """Fill `into`; less only at the end, which is how Arrow knows an end."""
        got = 0
        while got < len(into) and not self._is_over:
            got += self._read_some(into[got:])
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
        place = memoryview(bytearray(1 << 16))
        while not self._is_over:
            self.readinto(place)
