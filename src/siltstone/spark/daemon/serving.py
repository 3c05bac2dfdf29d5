"""Serving: the connections of the JVM, each with a thread that answers one request after the other.

The socket lies in a folder of this user (mode 0700). Work travels pickled, so only processes of
this user are answered.

Lock: none of its own; see `pins`, `regions`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any, Union, get_args

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.errors import RequestError, SiltstoneError, UnavailableError
from siltstone.spark.context import schemas, stores
from siltstone.spark.context.application import store_of
from siltstone.spark.context.kept_stores import kept, place_of
from siltstone.spark.daemon import definitions, feeds, messages, tables, writing
from siltstone.spark.daemon.calls import metadata, procedures
from siltstone.spark.daemon.definitions import Definition
from siltstone.spark.daemon.feeds import StreamRuns
from siltstone.spark.daemon.layout import is_flat
from siltstone.spark.daemon.messages import Answer, Channel, Ended
from siltstone.spark.daemon.pins import Pins
from siltstone.spark.daemon.reading import END, FAILED, RegionWriter, send_stream
from siltstone.spark.daemon.regions import MemoryBudget
from siltstone.spark.daemon.roots import Roots
from siltstone.spark.reads.task_rows import RowsTask, Told, require_path, rows_of
from siltstone.spark.writes import automatic_merge
from siltstone.spark.writes.writer import BatchWriter

_WAITING_MAX = 128
_CREDENTIALS = struct.Struct("3i")
_OF_A_STORE = (
    *(messages.PlanWrite, messages.PlanSink, messages.DescribeFeed),
    *(messages.FindChanges, messages.PlanChanges, messages.FeedStep),
)
"""What names a store, and is answered without its path."""


class CatalogServer:
    """Answers the JVM that started this process."""

    def __init__(self, roots: Roots, budget: MemoryBudget) -> None:
        self._roots, self._budget = roots, budget
        self.pins = Pins(roots)
        self.runs = StreamRuns()

    def listen(self, path: str) -> socket.socket:
        """Return the socket at `path`, which nobody has connected to yet.

        Raises:
            UnavailableError: It cannot be made.
        """
        try:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen(_WAITING_MAX)
        except OSError as error:
            raise UnavailableError(f"no socket can be made at {path}: {error}") from error
        return listening

    def serve(self, listening: socket.socket) -> None:
        """Answer all connections, until the socket is closed."""
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                if listening.fileno() < 0:
                    return
                continue
            threading.Thread(target=self.answer, args=(peer,), daemon=True).start()

    def answer(self, peer: socket.socket) -> None:
        """Answer the requests of one connection, until it ends."""
        with peer:
            if not is_ours(peer):
                return
            channel = Channel(peer)
            served = closing(Connection(self, channel, self._budget))
            with served as connection, contextlib.suppress(Ended):
                while True:
                    connection.answer_next()

    def admit(self, request: messages.Request) -> None:
        """Refuse a request about a store that its catalog may not name.

        Raises:
            RequestError, UnavailableError: As `Roots.path_of`.
        """
        if isinstance(request, _OF_A_STORE):
            self._roots.path_of(request.uri)

    def names(self, asked: messages.ListNames) -> dict[str, object]:
        """Return what lies in a namespace now."""
        with kept(self._roots.path_of(asked.uri)) as store, store.snapshot() as snapshot:
            found, spaces, is_there = tables.names_in(snapshot, asked.namespace)
            if asked.namespace == [metadata.SYSTEM]:
                found, is_there = sorted({*found, *metadata.OF_STORE}), True
        return {"tables": found, "namespaces": spaces, "exists": is_there}

    def pin(self, asked: messages.TakePin) -> dict[str, object]:
        """Pin a store."""
        held = self.pins.take(asked)
        return {"store": held.store, "seq": held.snapshot.seq}

    def release(self, asked: messages.ReleasePins) -> dict[str, object]:
        """Give pins up."""
        self.pins.release(asked.tokens)
        return {}

    def measure(self, asked: messages.MeasureTable) -> dict[str, object]:
        """Measure a table."""
        held = self.pins.held(asked.token)
        return tables.measure(held.snapshot, asked.table, held.newest)

    def call(self, asked: messages.CallProcedure) -> pa.Table:
        """Run a procedure."""
        path = self._roots.path_of(asked.uri)
        given = json.loads(asked.arguments)
        called = procedures.Called(asked.uri, path, asked.application, given)
        return procedures.call(asked.name, called)

    def tell(self, asked: messages.TellRead) -> dict[str, object]:
        """Record a read for later overwrites of the application."""
        tables.told(self.pins.of(asked.token), asked.table, asked.application).tell()
        return {}

    def define(self, asked: Definition) -> dict[str, object]:
        """Make, change or drop a table, or delete rows of one."""
        path = self._roots.path_of(asked.uri)
        with kept(path) as store:
            known_as = store_of(path, store.store_id)
        with stores.owner(asked.uri) as db:
            found = definitions.run(db, asked, known_as)
        automatic_merge.report(db, ())
        return {"found": found}


class Connection:
    """One connection of the JVM; one thread uses it."""

    def __init__(self, server: CatalogServer, channel: Channel, budget: MemoryBudget) -> None:
        self.server, self.channel = server, channel
        self._writer = RegionWriter(channel, budget)

    def answer_next(self) -> None:
        """Answer one request.

        Raises:
            Ended: There is none, or the JVM does not wait for the answer.
        """
        try:
            head, payload = self.channel.request()
            request = _DECODE(head)
            self.server.admit(request)
            if isinstance(request, messages.ReadTasks):
                self._read(request, payload)
            elif type(request) in _HEADS:
                self.channel.answer(_HEADS[type(request)](self.server, request))
            else:
                self.channel.answer(*_ANSWERS[type(request)](self, request, payload))
        except Ended:
            raise
        except Exception as error:  # noqa: BLE001 - the JVM raises it
            self.channel.refuse(type(error).__name__, _sentence(error))

    def close(self) -> None:
        """Give up what the connection holds."""
        self._writer.close()

    def _read(self, asked: messages.ReadTasks, payload: bytes) -> None:
        schema = StructType.fromJson(json.loads(asked.columns))
        wanted = schemas.arrow_schema(schema)
        found: tuple[Told | None, tuple[RowsTask, ...]] = pickle.loads(payload)  # noqa: S301 - see the module
        told, work = found  # changes have no record of their read
        for task in work:
            _require_store(task.root, asked.store)
        if told is not None:
            told.tell_again()
        region = self._writer.open() if asked.maps and is_flat(wanted) else None
        self.channel.answer({"maps": False} if region is None else region.place())
        is_mapped = region is not None and self.channel.receive(1) == b"\1"
        with closing(_batches(work, schema)) as batches:
            try:
                if is_mapped:
                    self._writer.send(batches)
                else:
                    send_stream(self.channel, batches, wanted)
            except Ended:
                raise
            except Exception as error:  # noqa: BLE001 - the task raises it
                self._writer.end()
                self.channel.number(FAILED)
                self.channel.refuse(type(error).__name__, _sentence(error))
                return
        self._writer.end()
        self.channel.number(END)


def _metadata(on: Connection, asked: messages.ReadMetadata, _: bytes) -> Answer:
    snapshot = on.server.pins.of(asked.token)
    found = metadata.read(snapshot, asked.table, is_past=asked.is_past, with_rows=asked.with_rows)
    return ({"missing": True}, ()) if found is None else _rows(found)


def _rows(found: pa.Table) -> Answer:
    """Return few rows, which the JVM gets whole, in the types that Spark has for their columns.

    Raises:
        SchemaMismatchError: Spark has no type for a column, or cannot hold a value.
    """
    schema, rows = schemas.for_spark(found)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return {"schema": schema.json()}, [sink.getvalue().to_pybytes()]


def _plan(on: Connection, asked: messages.PlanScan, _: bytes) -> Answer:
    rows, packed = tables.cut(on.server.pins.of(asked.token), asked)
    return {"rows": rows, "sizes": [len(each) for each in packed]}, packed


def _write(on: Connection, asked: messages.WriteRows, payload: bytes) -> Answer:
    job: BatchWriter | writing.SinkJob = pickle.loads(payload)  # noqa: S301 - see the module
    written = writing.staged(job, on.channel, asked)
    return {"rows": written.staged.rows}, [pickle.dumps(written)]


def _commit(_: Connection, asked: messages.CommitWrite, payload: bytes) -> Answer:
    writing.commit(asked, payload)
    return {}, ()


def _abort(_: Connection, asked: messages.AbortWrite, payload: bytes) -> Answer:
    writing.abort(asked, payload)
    return {}, ()


def _plan_sink(_: Connection, asked: messages.PlanSink, __: bytes) -> Answer:
    job = writing.plan_sink(asked)
    return {"start": job.start}, [pickle.dumps(job)]


_HEADS: Mapping[type, Callable[[CatalogServer, Any], Mapping[str, object]]] = {
    messages.ListNames: CatalogServer.names,
    messages.ListProcedures: lambda _, asked: {"names": procedures.names_in(asked.namespace)},
    messages.LoadProcedure: lambda _, asked: procedures.describe(asked.name),
    messages.TakePin: CatalogServer.pin,
    messages.ReleasePins: CatalogServer.release,
    messages.LoadTable: lambda on, asked: tables.describe(on.pins.of(asked.token), asked.table),
    messages.MeasureTable: CatalogServer.measure,
    messages.AskFilters: lambda on, asked: tables.answered(on.pins.of(asked.token), asked),
    messages.TellRead: CatalogServer.tell,
    messages.DescribeFeed: lambda _, asked: feeds.describe(asked),
    messages.FindChanges: lambda on, asked: feeds.find(asked, on.pins.of(asked.token).seq),
    **dict.fromkeys(get_args(Definition), CatalogServer.define),
}
_ANSWERS: Mapping[type, Callable[[Connection, Any, bytes], Answer]] = {
    messages.CallProcedure: lambda on, asked, _: _rows(on.server.call(asked)),
    messages.ReadMetadata: _metadata,
    messages.PlanScan: _plan,
    messages.PlanWrite: lambda _, asked, __: ({}, [pickle.dumps(writing.plan(asked))]),
    messages.WriteRows: _write,
    messages.CommitWrite: _commit,
    messages.AbortWrite: _abort,
    messages.PlanSink: _plan_sink,
    messages.FeedStep: lambda on, asked, _: on.server.runs.take(asked),
    messages.PlanChanges: lambda _, asked, __: feeds.plan(asked),
}
"""What answers with a payload; `ReadTasks` answers with all of its rows."""
_DECODE = msgspec.json.Decoder(Union[(messages.ReadTasks, *_HEADS, *_ANSWERS)]).decode


def _batches(work: tuple[RowsTask, ...], schema: StructType) -> Generator[pa.RecordBatch]:
    for task in work:
        if len(schema):
            yield from rows_of(task, schema)
        else:  # Spark wants to know how many
            for batch in task.read():
                yield batch.select([])


def is_ours(peer: socket.socket) -> bool:
    """Return whether a connection is of a process of this user."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    return user == os.getuid()


def _require_store(root: str, store: str) -> None:
    """Check that this machine has the planner's store at its path, or its URL.

    Raises:
        UnavailableError: It has none there, or the bucket does not answer.
        RequestError: It has another one.
    """
    require_path(root)
    found = _store_at(root, place_of(root))
    if found != store:
        raise RequestError(
            f"{socket.gethostname()} has store {found} at {root}, the query reads store {store}"
        )


@lru_cache(maxsize=256)
def _store_at(root: str, _place: object) -> str:
    with kept(root) as store:
        return store.store_id


def _sentence(error: Exception) -> str:
    """Return what the user reads."""
    if isinstance(error, SiltstoneError):
        return str(error)
    if isinstance(error, msgspec.DecodeError):
        return f"the jar asks for what this siltstone does not know: {error}"
    if isinstance(error, MemoryError):
        return "there is no memory left for this read"
    return f"{type(error).__name__}: {error}"
