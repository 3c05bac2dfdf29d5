"""Messages: what the JVM asks of this process, and how a message lies in a stream.

    offset  size  field
         0     4  length of the head in bytes, i32 little-endian
         4     n  head, JSON: a request with its `op`, or an answer
     4 + n     4  length of the payload
     8 + n     m  payload: pickled scan tasks, or nothing

An answer with `error` and `kind` is an error of the store: its message, and the name of its class.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from siltstone.choices import Isolation
from siltstone.spark.streams.feed import RunState
from siltstone.spark.writes.drivers import Start

MESSAGE_BYTES_MAX = 1 << 30
_LENGTH = struct.Struct("<i")

Change: TypeAlias = Literal["insert", "update", "delete"]
Answer: TypeAlias = tuple[Mapping[str, object], Sequence[bytes]]
"""A head, and a payload in pieces."""


class Ended(Exception):
    """The JVM closed the connection."""


class Request(msgspec.Struct, tag_field="op", forbid_unknown_fields=True):
    """What the JVM asks: the kinds that are answered are those in the tables of `serving`."""


class OfStore(Request):
    """A request about a table of a store, by the store's path or URL."""

    uri: str
    table: str


class OfApplication(OfStore):
    """One whose answer depends on what an application read; it is the folder of its driver."""

    application: str


class OfPin(Request):
    """A request about a table of a pinned store."""

    token: str
    table: str


class TakePin(Request, tag="pin"):
    """Pin a store under a token: at `seq`, a `version` (seq or tag), a time, or now.

    `store`: the id that the store must have.
    """

    token: str
    uri: str
    seq: int | None = None
    version: str | None = None
    time_us: int | None = None
    store: str | None = None


class ReleasePins(Request, tag="release"):
    """Pins that nothing in the JVM reaches any more."""

    tokens: list[str]


class ListNames(Request, tag="list"):
    """The tables and the namespaces that lie directly in a namespace."""

    uri: str
    namespace: list[str]


class LoadTable(OfPin, tag="load"):
    """What a table is: its columns and its key."""


class MeasureTable(OfPin, tag="measure"):
    """How many rows a table has, and what a read of it is called: only reads ask, not writes."""


class AskFilters(OfPin, tag="filters"):
    """Which predicates, each as JSON in a text, the store answers exactly as Spark would."""

    predicates: list[str]


class TellRead(OfPin, tag="tell"):
    """Record that an application reads a table; `application` is the folder of its driver."""

    application: str


class PlanScan(OfPin, tag="plan"):
    """The tasks of a scan; each has with it what records the read (see `TellRead`)."""

    application: str
    columns: list[str]
    filters: list[str]
    limit: int | None
    parallelism: int
    task_rows: str | None = None


class ReadTasks(Request, tag="read"):
    """The rows of the tasks in the payload (see `PlanScan`), as columns of a Spark schema, JSON.

    `store` is the id of the store; `maps`: the JVM can map memory of this process.
    """

    store: str
    columns: str
    maps: bool


class PlanWrite(OfApplication, tag="plan_write"):
    """The job of a statement that writes rows of a Spark schema, JSON, into a table.

    `options`: those of the statement. `insert`: what an INSERT without an option does to a table
    with a key. `id`: the table that the statement was planned for. `creates`: the primary key of
    the table that the commit makes; None: it is there. `change`: what a statement that changes rows
    by key does to these ones; `loads`: the options of its reads by `format("siltstone")`.
    `retries`: how often the session lets a commit be tried again.
    """

    columns: str
    options: dict[str, str]
    insert: str
    overwrites: bool = False
    id: int | None = None
    replaces: str | None = None
    creates: list[str] | None = None
    replaces_table: bool = False
    change: Change | None = None
    isolation: str = "snapshot"
    retries: str | None = None
    loads: list[dict[str, str]] = []


class WriteRows(Request, tag="write"):
    """Stage the rows of one task of the job in the payload; they follow as an Arrow stream.

    The stream comes in pieces, each after its length, i32; a length of 0 ends it. `old_keys`: how
    many of its columns, the last ones, are the key that the rows of an update had.
    """

    task: int
    old_keys: int = 0


class StagedWrite(msgspec.Struct, forbid_unknown_fields=True):
    """A job in a payload: its size, those of what its tasks got, and how many rows they had."""

    sizes: list[int]
    rows: int


class PlanRead(msgspec.Struct, forbid_unknown_fields=True):
    """What a statement read that writes rows by key: the lowest seq, and the tables, by id.

    `now` is the seq of the statement itself, `expected` the option `expectSeq`: the seq that counts
    whatever was read.
    """

    seq: int | None
    now: int
    expected: int | None
    isolation: Isolation
    tables: list[int]


class CommitWrite(Request, tag="commit"):
    """Commit what tasks staged, which is the payload, job after job.

    `batch`: the number of the batch, of a stream.
    """

    writes: list[StagedWrite]
    read: PlanRead | None = None
    batch: int | None = None


class AbortWrite(Request, tag="abort"):
    """Delete what tasks staged; the payload is as that of `CommitWrite`."""

    writes: list[StagedWrite]


class ListProcedures(Request, tag="procedures"):
    """The names of the procedures in a namespace."""

    namespace: list[str]


class LoadProcedure(Request, tag="procedure"):
    """The parameters of a procedure, whose name has its namespace."""

    name: str


class CallProcedure(Request, tag="call"):
    """Run a procedure with all of its arguments, JSON by name; the answer's payload has its rows.

    `application` is the folder of the driver.
    """

    uri: str
    name: str
    arguments: str
    application: str


class ReadMetadata(OfPin, tag="metadata"):
    """A metadata table: its columns, and `with_rows` its rows in the payload.

    `is_past`: a version or a time of it is asked for.
    """

    is_past: bool
    with_rows: bool


class CreateTable(OfApplication, tag="create"):
    """Make an empty table with the columns of a Spark schema, JSON; it may replace one."""

    columns: str
    primary_key: list[str]
    replaces: bool


class ColumnStep(msgspec.Struct, forbid_unknown_fields=True):
    """A change of one column: of `add`, `type` and `default` `to` is a Spark schema with it.

    Its metadata have the default (`siltstone:default`); an empty `to` takes it away. `nullable` is
    `true` or `false`.
    """

    kind: Literal["add", "rename", "drop", "type", "nullable", "default"]
    name: str
    to: str = ""


class AlterTable(OfApplication, tag="alter"):
    changes: list[ColumnStep]


class RenameTable(OfApplication, tag="rename"):
    to: str


class DropTable(OfApplication, tag="drop"):
    """Drop a table."""


class DeleteMatching(OfApplication, tag="delete"):
    """Delete the rows that match SQL of the store; None: all."""

    id: int
    filter: str | None


class PlanSink(OfApplication, tag="plan_sink"):
    """The job of a batch of a stream that writes rows of a Spark schema, JSON, into a table.

    `options`, `application`, `id`: as of `PlanWrite`; `query`: the id of the query. `start`: what
    the answer to the run's first batch had.
    """

    columns: str
    options: dict[str, str]
    overwrites: bool
    id: int
    query: str
    start: Start | None = None


class DescribeFeed(OfStore, tag="feed"):
    """The columns of the stream of a table's changes."""


class FeedStep(OfStore, tag="feed_step"):
    """A step of a run of a query that reads changes as columns of a Spark schema, JSON.

    `token` names the run, and `run` is what it has decided, as the last answer had it. Offsets are
    the JSON of Spark's log.
    """

    token: str
    options: dict[str, str]
    columns: str
    step: Literal["limit", "initial", "target", "latest", "newest", "plan", "commit", "stop"]
    run: RunState = RunState()
    start: str | None = None
    end: str | None = None
    rows: int | None = None


class ChangeBound(msgspec.Struct, forbid_unknown_fields=True):
    """An end of a range of changes: a version (seq or tag), or a time."""

    version: str | None = None
    time_us: int | None = None
    inclusive: bool = True


class FindChanges(OfStore, tag="changes"):
    """A range of the changes of a table; without an `end` up to the seq of the pin.

    `dedup`, `updates`: what Spark is to make of the changes, by its names.
    """

    token: str
    start: ChangeBound | None
    end: ChangeBound | None
    dedup: str
    updates: bool


class PlanChanges(OfStore, tag="plan_changes"):
    """The tasks of the changes (since, until], as columns of a Spark schema, JSON."""

    columns: str
    since: int
    until: int


_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Channel:
    """A connection of the JVM; one thread of either side uses it."""

    peer: socket.socket

    def request(self) -> tuple[bytes, bytes]:
        """Return the head of the next request and its payload.

        Raises:
            Ended: There is none.
        """
        return self._block(), self._block()

    def answer(self, head: Mapping[str, object], payload: Sequence[bytes] = ()) -> None:
        """Send an answer; the payload in pieces."""
        text = _ENCODE(head)
        size = sum(map(len, payload))
        self.send(b"".join((_LENGTH.pack(len(text)), text, _LENGTH.pack(size), *payload)))

    def refuse(self, kind: str, text: str) -> None:
        """Answer with an error."""
        self.answer({"error": text, "kind": kind})

    def number(self, value: int) -> None:
        """Send one number, i32."""
        self.send(_LENGTH.pack(value))

    def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`.

        Raises:
            Ended: The JVM closed the connection.
        """
        try:
            self.peer.sendall(data)
        except OSError as error:
            raise Ended from error

    def receive(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            Ended: There are not as many.
        """
        found = bytearray(size)
        view, got = memoryview(found), 0
        while got < size:
            try:
                more = self.peer.recv_into(view[got:])
            except OSError as error:
                raise Ended from error
            if not more:
                raise Ended
            got += more
        return bytes(found)

    def _block(self) -> bytes:
        (size,) = _LENGTH.unpack(self.receive(_LENGTH.size))
        if not 0 <= size <= MESSAGE_BYTES_MAX:
            raise Ended
        return self.receive(size)
