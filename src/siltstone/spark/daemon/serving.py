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
from collections.abc import Callable, Generator
from contextlib import closing
from functools import lru_cache
from typing import Any, get_args

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.errors import RequestError, SiltstoneError
from siltstone.spark.context import schemas, stores
from siltstone.spark.context.application import store_of
from siltstone.spark.context.kept_stores import kept, place_of
from siltstone.spark.daemon import definitions, feeds, tables, writing
from siltstone.spark.daemon.calls import metadata, procedures
from siltstone.spark.daemon.calls.local_rows import LocalRows
from siltstone.spark.daemon.definitions import Definition
from siltstone.spark.daemon.feeds import StreamRuns
from siltstone.spark.daemon.layout import is_flat
from siltstone.spark.daemon.messages import (
    AbortWrite,
    AskFilters,
    CallProcedure,
    Channel,
    CommitWrite,
    DescribeFeed,
    Ended,
    FeedStep,
    FindChanges,
    ListNames,
    ListProcedures,
    LoadProcedure,
    LoadTable,
    MeasureTable,
    PlanChanges,
    PlanScan,
    PlanSink,
    PlanWrite,
    ReadMetadata,
    ReadTasks,
    ReleasePins,
    Request,
    TakePin,
    TellRead,
    WriteRows,
)
from siltstone.spark.daemon.pins import Pins
from siltstone.spark.daemon.reading import END, FAILED, RegionWriter, send_stream
from siltstone.spark.daemon.regions import MemoryBudget
from siltstone.spark.daemon.roots import Roots
from siltstone.spark.reads.task_rows import RowsTask, Told, require_path, rows_of
from siltstone.spark.writes import automatic_merge
from siltstone.spark.writes.writer import BatchWriter

_WAITING_MAX = 128
_CREDENTIALS = struct.Struct("3i")
_OF_A_STORE = (PlanWrite, PlanSink, DescribeFeed, FindChanges, PlanChanges, FeedStep)
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
            OSError: It cannot be made.
        """
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(_WAITING_MAX)
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

    def admit(self, request: Request) -> None:
        """Refuse a request about a store that its catalog may not name.

        Raises:
            RequestError, UnavailableError: As `Roots.path_of`.
        """
        if isinstance(request, _OF_A_STORE):
            self._roots.path_of(request.uri)

    def names(self, asked: ListNames) -> dict[str, object]:
        """Return what lies in a namespace now."""
        with kept(self._roots.path_of(asked.uri)) as store, store.snapshot() as snapshot:
            found, spaces, is_there = tables.names_in(snapshot, asked.namespace)
            if asked.namespace == [metadata.SYSTEM]:
                found, is_there = sorted({*found, *metadata.OF_STORE}), True
        return {"tables": found, "namespaces": spaces, "exists": is_there}

    def pin(self, asked: TakePin) -> dict[str, object]:
        """Pin a store."""
        held = self.pins.take(asked)
        return {"store": held.store, "seq": held.snapshot.seq}

    def release(self, asked: ReleasePins) -> dict[str, object]:
        """Give pins up."""
        self.pins.release(asked.tokens)
        return {}

    def load(self, asked: LoadTable) -> dict[str, object]:
        """Describe a table."""
        return tables.describe(self.pins.of(asked.token), asked.table)

    def measure(self, asked: MeasureTable) -> dict[str, object]:
        """Measure a table."""
        snapshot = self.pins.of(asked.token)
        return tables.measure(snapshot, asked.table, self.pins.newest_of(asked.token))

    def filters(self, asked: AskFilters) -> dict[str, object]:
        """Say which filters the store answers."""
        found = tables.answered(self.pins.of(asked.token), asked.table, asked.predicates)
        return {"sql": found}

    def metadata(self, asked: ReadMetadata) -> LocalRows | None:
        """Return a metadata table; None: there is none of that name."""
        found = metadata.read(
            self.pins.of(asked.token), asked.table, is_past=asked.is_past, with_rows=asked.with_rows
        )
        return None if found is None else LocalRows.of(found)

    def call(self, asked: CallProcedure) -> LocalRows:
        """Run a procedure."""
        path = self._roots.path_of(asked.uri)
        given = json.loads(asked.arguments)
        called = procedures.Called(asked.uri, path, asked.application, given)
        return LocalRows.of(procedures.call(asked.name, called))

    def tell(self, asked: TellRead) -> dict[str, object]:
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
        self._server, self._channel = server, channel
        self._writer = RegionWriter(channel, budget)
        self._answers: dict[type, Callable[[Any], dict[str, object]]] = {
            ListNames: server.names,
            ListProcedures: lambda asked: {"names": procedures.names_in(asked.namespace)},
            LoadProcedure: lambda asked: procedures.describe(asked.name),
            TakePin: server.pin,
            ReleasePins: server.release,
            LoadTable: server.load,
            MeasureTable: server.measure,
            AskFilters: server.filters,
            TellRead: server.tell,
            DescribeFeed: feeds.describe,
            FindChanges: lambda asked: feeds.find(asked, server.pins.of(asked.token).seq),
            **dict.fromkeys(get_args(Definition), server.define),
        }
        self._with_payload: dict[type, Callable[[Any, bytes], None]] = {
            CallProcedure: lambda asked, _payload: self._rows(server.call(asked)),
            ReadMetadata: lambda asked, _payload: self._rows(server.metadata(asked)),
            ReadTasks: self._read,
            PlanScan: self._plan,
            PlanWrite: lambda asked, _payload: self._packed({}, writing.plan(asked)),
            WriteRows: self._write,
            CommitWrite: self._commit,
            AbortWrite: self._abort,
            PlanSink: self._plan_sink,
            FeedStep: lambda asked, _payload: channel.answer(*server.runs.take(asked)),
            PlanChanges: lambda asked, _payload: channel.answer(*feeds.plan(asked)),
        }

    def answer_next(self) -> None:
        """Answer one request.

        Raises:
            Ended: There is none, or the JVM does not wait for the answer.
        """
        try:
            request, payload = self._channel.request()
            self._server.admit(request)
            serve = self._with_payload.get(type(request))
            if serve is not None:
                serve(request, payload)
            else:
                self._channel.answer(self._answers[type(request)](request))
        except Ended:
            raise
        except Exception as error:  # noqa: BLE001 - the JVM raises it
            self._channel.refuse(type(error).__name__, _sentence(error))

    def close(self) -> None:
        """Give up what the connection holds."""
        self._writer.close()

    def _rows(self, found: LocalRows | None) -> None:
        if found is None:
            self._channel.answer({"missing": True})
        else:
            self._channel.answer({"schema": found.schema}, [found.stream])

    def _plan(self, asked: PlanScan, _payload: bytes) -> None:
        rows, packed = tables.cut(self._server.pins.of(asked.token), asked)
        self._channel.answer({"rows": rows, "sizes": [len(p) for p in packed]}, packed)

    def _write(self, asked: WriteRows, payload: bytes) -> None:
        job: BatchWriter | writing.SinkJob = pickle.loads(payload)  # noqa: S301 - see the module
        written = writing.staged(job, self._channel, asked)
        self._packed({"rows": written.staged.rows}, written)

    def _commit(self, asked: CommitWrite, payload: bytes) -> None:
        writing.commit(asked, payload)
        self._channel.answer({})

    def _abort(self, asked: AbortWrite, payload: bytes) -> None:
        writing.abort(asked, payload)
        self._channel.answer({})

    def _plan_sink(self, asked: PlanSink, _payload: bytes) -> None:
        job = writing.plan_sink(asked)
        self._packed({"start": job.start}, job)

    def _packed(self, head: dict[str, object], work: object) -> None:
        self._channel.answer(head, [pickle.dumps(work)])

    def _read(self, asked: ReadTasks, payload: bytes) -> None:
        schema = StructType.fromJson(json.loads(asked.columns))
        wanted = schemas.arrow_schema(schema)
        told, work = _unpacked(payload)
        for task in work:
            _require_store(task.root, asked.store)
        if told is not None:
            told.tell_again()
        region = self._writer.open() if asked.maps and is_flat(wanted) else None
        self._channel.answer({"maps": False} if region is None else region.place())
        is_mapped = region is not None and self._channel.receive(1) == b"\1"
        with closing(_batches(work, schema)) as batches:
            try:
                if is_mapped:
                    self._writer.send(batches)
                else:
                    send_stream(self._channel, batches, wanted)
            except Ended:
                raise
            except Exception as error:  # noqa: BLE001 - the task raises it
                self._writer.end()
                self._channel.number(FAILED)
                self._channel.refuse(type(error).__name__, _sentence(error))
                return
        self._writer.end()
        self._channel.number(END)


def _unpacked(payload: bytes) -> tuple[Told | None, tuple[RowsTask, ...]]:
    """Return what is read, and the record of the read; changes have none."""
    found: tuple[Told | None, tuple[RowsTask, ...]] = pickle.loads(payload)  # noqa: S301 - see the module
    return found


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
