"""Calls: how the operations that other processes ask for are done here.

An operation is the method of that name of its class, with the same arguments: the same code checks
them as in this process, and raises the same errors. What a method returns in another form over the
wire, or under a transaction's id, is here; the rest is the table's (`operations`).

Lance clients of other processes write files into the store's directory. Their requests to the Lance
catalog come by the names of its operations, and the files become versions here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from siltstone import choices
from siltstone.errors import AccessError, RequestError
from siltstone.lance_namespace import operations as lance
from siltstone.lance_namespace.scope import LiveScope, Scope, SnapshotScope, TransactionScope
from siltstone.lance_versions.fresh import KEYED
from siltstone.lance_versions.turns import Turns
from siltstone.local.sent_commits import SentCommits, adopt
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.transaction import LocalTransaction
from siltstone.operations import Codec, Effect, Face, Operation, operation
from siltstone.process.turns import NONE_CLOSED
from siltstone.server.rpc.turns import SessionTurns
from siltstone.server.served import Number, Served, number_of
from siltstone.server.sessions import Session, Sessions

LANCE = "lance_catalog"
Turn = Callable[[], AbstractContextManager[object]]
"""What one batch of rows is read within; unless they are of a statement, nothing else that uses the
same transaction is."""


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One request: its session, verb and arguments; `path` has the words of its address."""

    session: Session
    verb: str
    arguments: list[Any]
    named: dict[str, Any]
    transaction: str | None = None
    snapshot: str | None = None
    statement: str | None = None
    path: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned; rows that are read later are read in a `turn` of their own each."""

    value: object
    turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class LanceCall:
    """One request: `keyed` says what is seen of tables with a key."""

    operation: str
    request: dict[str, Any]
    keyed: str = KEYED[0]
    rows: bytes | None = None

    @classmethod
    def of(cls, arguments: list[Any]) -> LanceCall:
        """Return the request in the arguments of a call.

        Raises:
            RequestError: There is none.
        """
        types = [type(each) for each in arguments]
        if types not in _OF_LANCE or arguments[2] not in KEYED:
            raise RequestError(f"an operation, a request and one of {KEYED}, not {types}")
        return cls(*arguments)

    @property
    def is_fresh(self) -> bool:
        """Whether rows that are not merged are seen, too."""
        return self.keyed == "fresh"

    def answer(self, scope: Scope) -> dict[str, Any]:
        """Answer the request where `scope` goes."""
        return lance.answer(scope, self.operation, self.request, self.rows)

    @property
    def is_commit(self) -> bool:
        """Whether it is a commit of its own."""
        found = lance.OPERATIONS.get(self.operation)
        return found is not None and found.effect is Effect.WRITE


_OF_LANCE = ([str, dict, str], [str, dict, str, bytes])


class Calls:
    """The operations of one server, one method for each kind of address. Any thread."""

    def __init__(self, served: Served, sessions: Sessions) -> None:
        self._served, self._sessions = served, sessions
        self._turns, self._session_turns = Turns(), SessionTurns(served)
        self._sent = SentCommits(served.parts.core)

    # the store

    def of_store(self, call: RpcCall) -> Outcome:
        """Answer a call to the store."""
        asked = operation(Face.STORE, call.verb)
        own = {
            "transaction": self._begin,
            "snapshot": self._open,
            "turn": self._turn,
            "commit_writes": self._commit_writes,
            "wait_shipped": self._wait_shipped,
            LANCE: self._lance_of_store,
        }
        if asked.name in own:
            return own[asked.name](call)
        if asked.effect is Effect.WRITE:
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                return _answered(asked, self._served.numbered(Number(transaction_id)), call)
        found = _answered(asked, _StoreFace(self._served, call.session), call)
        if asked.effect is Effect.READ:
            self._served.settle()
        return found

    def _lance_of_store(self, call: RpcCall) -> Outcome:
        asked, db = LanceCall.of(call.arguments), self._served.db
        scope = partial(LiveScope, db, self._turns, is_fresh=asked.is_fresh)
        if asked.is_commit:
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                commits = self._served.numbered(Number(transaction_id))
                return Outcome(asked.answer(scope(commits=commits)))
        found = asked.answer(scope())
        self._served.settle()
        return Outcome(found)

    # tables

    def of_table(self, call: RpcCall) -> Outcome:
        """Answer a call to a table: in a transaction, at a snapshot, or as it is now."""
        table = call.path["table"]
        if call.transaction is not None:
            asked = operation(Face.TRANSACTION_TABLE, call.verb)
            with self._sessions.using(call.transaction) as held:
                handle = held.transaction.table(_number(table))
                return _answered(asked, handle, call, partial(self._sessions.resumed, held))
        if call.snapshot is not None:
            asked = operation(Face.SNAPSHOT_TABLE, call.verb)
            with self._sessions.using(call.snapshot) as held:
                return _answered(asked, held.snapshot[table], call)
        asked = operation(Face.TABLE, call.verb)
        if asked.effect is Effect.WRITE:
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                handle = self._served.numbered(Number(transaction_id)).table(_number(table))
                return _answered(asked, handle, call)
        found = _answered(asked, self._served.numbered(Number()).table(_number(table)), call)
        self._served.settle()
        return found

    # transactions

    def _begin(self, call: RpcCall) -> Outcome:
        """Begin a transaction that lives with its connection.

        Raises:
            AccessError: It has a token, which a commit spends, or takes turns, and its client may
                only read.
        """
        given = _bound(self._served.db.transaction, call).arguments
        for_writers = [name for name in ("token", "claim", "turns") if given.get(name) is not None]
        if for_writers and not call.session.may_write:
            raise AccessError(f"a transaction with {', '.join(for_writers)} needs write")
        rest = {name: value for name, value in call.named.items() if name != "turns"}
        number = Number()  # it is known when the commit is asked for
        begin = partial(_done, self._served.numbered(number), replace(call, named=rest))
        hold = partial(self._sessions.hold, call.session, number=number)
        key, tx = self._served.held(given.get("turns"), begin, hold)
        if given.get("durability") == "shipped":
            self._served.shipped_waits.expect(key, tx)
        closed = sorted(self._served.turns.closed)
        return Outcome({"id": key, "seq": tx.read_seq} | ({"closed": closed} if closed else {}))

    def _commit_writes(self, call: RpcCall) -> Outcome:
        """Commit a transaction that ran in the process that sends it.

        One of a first try that wrote closed tables is sent back with their names.
        """

        def commit_writes(writes: object, is_first: bool = False) -> object:
            closed = self._served.turns.closed if is_first else NONE_CLOSED
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                return self._sent.commit(writes, number_of(transaction_id), closed)

        bound = _bound(commit_writes, call)
        return Outcome(commit_writes(*bound.args, **bound.kwargs))

    def _wait_shipped(self, call: RpcCall) -> Outcome:
        """Wait until the bucket has a commit.

        Raises:
            BusyError: As many wait for the bucket as may.
        """
        with self._served.shipped_waits.one():
            return Outcome(_done(self._served.db, call))

    def _turn(self, call: RpcCall) -> Outcome:
        bound = _bound(self._session_turns.turn, replace(call, arguments=[call.session]))
        return Outcome(self._session_turns.turn(*bound.args, **bound.kwargs))

    def of_transaction(self, call: RpcCall) -> Outcome:
        """Answer a call to a transaction."""
        key, asked = call.path["key"], operation(Face.TRANSACTION, call.verb)
        if asked.name == "rollback":
            with self._sessions.ending(key) as held:
                return Outcome(held.transaction.rollback())
        if asked.name == "commit":
            waits = self._served.shipped_waits
            with (
                waits.one(is_shipped=waits.expects(key)),
                self._sessions.ending(key) as held,
                self._sessions.statement(call.session, call.statement) as transaction_id,
            ):
                held.number.tell(transaction_id)
                return Outcome(held.transaction.commit())
        with self._sessions.using(key) as held:
            tx, db = held.transaction, self._served.db
            if asked.name == LANCE:
                return Outcome(LanceCall.of(call.arguments).answer(TransactionScope(db, tx)))
            if asked.name == "adopt":
                return Outcome(adopt(tx, *_bound(_writes, call).args))
            if asked.codec not in {Codec.RESULT, Codec.STREAM}:
                return _answered(asked, tx, call, partial(self._sessions.resumed, held))
        # Other calls, and the end, would wait for a statement, in threads that all share.
        with self._sessions.resumed(held, is_statement=True):
            beside = partial(self._sessions.resumed, held, is_statement=True)
            return _answered(asked, _QueriedTransaction(tx, held.lock), call, beside)

    # snapshots

    def _open(self, call: RpcCall) -> Outcome:
        """Open a snapshot that lives with its connection."""
        snapshot: LocalSnapshot = _done(self._served.db, call)
        try:
            self._served.settle()
            key = self._sessions.hold(call.session, snapshot)
        except BaseException:
            snapshot.close()
            raise
        return Outcome({"id": key, "seq": snapshot.seq})

    def of_snapshot(self, call: RpcCall) -> Outcome:
        """Answer a call to a snapshot."""
        key, asked = call.path["key"], operation(Face.SNAPSHOT, call.verb)
        if asked.name == "close":
            with self._sessions.ending(key) as held:
                return Outcome(held.snapshot.close())
        with self._sessions.using(key) as held:
            snapshot, db = held.snapshot, self._served.db
            if asked.name == LANCE:
                wanted = LanceCall.of(call.arguments)
                scope = SnapshotScope(db, snapshot, is_fresh=wanted.is_fresh)
                return Outcome(wanted.answer(scope))
            if not asked.is_statement:
                return _answered(asked, snapshot, call)
        # Other calls to the snapshot would wait for a statement, in threads that all share.
        return _answered(asked, snapshot, call)


class _StoreFace:
    """The store, with the answers that have another form over the wire."""

    def __init__(self, served: Served, session: Session) -> None:
        self._served, self._session = served, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served.db, name)

    def __getitem__(self, name: str) -> Any:
        return self._served.db[name]

    def outcome(self, transaction_id: str) -> choices.Outcome:
        return self._served.outcome(transaction_id, spends=self._session.may_write)

    def changes(
        self, since: int = 0, until: int | None = None, tables: list[str] | None = None
    ) -> dict[str, object]:
        """Return where the feed ends and what it shows; `changes_of` gives the rows of each."""
        db = self._served.db
        end = db.durable_seq if until is None else until
        readers = db.changes(since, end, tables)
        return {"until": end, "schemas": {name: r.schema for name, r in readers.items()}}

    def changes_of(self, table: str, since: int, until: int) -> pa.RecordBatchReader:
        return self._served.db.changes(since, until, [table])[table]


class _QueriedTransaction:
    """A transaction whose statement runs while its other calls do."""

    def __init__(self, tx: LocalTransaction, alone: AbstractContextManager[object]) -> None:
        self._tx, self._alone = tx, alone

    def sql_reader(self, statement: str, parameters: Any = None) -> pa.RecordBatchReader:
        return self._tx.read_sql(statement, parameters, lambda _: None, self._alone)


def _id_of(face: Any, call: RpcCall) -> object:
    """Return what the table that a call names is asked for by; at a snapshot this is its name."""

    def id_of(name: str) -> Any:
        return face[name]

    table = id_of(*_bound(id_of, call).args)
    return table.name if isinstance(face, LocalSnapshot) else table.id


def _writes(writes: object) -> object:
    return writes


def _number(table: str) -> int:
    if not (table.isascii() and table.isdecimal()):
        raise RequestError(f"a table is asked for by its id, not {table!r}")
    return int(table)


def _bound(method: Callable[..., object], call: RpcCall) -> inspect.BoundArguments:
    try:
        return inspect.signature(method).bind(*call.arguments, **call.named)
    except TypeError as error:
        raise RequestError(f"{call.verb}: {error}") from None


def _done(face: object, call: RpcCall) -> Any:
    """Do what the call names: get a property, or call a method with the arguments."""
    found = getattr(face, call.verb)
    if not callable(found):
        return found
    bound = _bound(found, call)
    return found(*bound.args, **bound.kwargs)


def _answered(asked: Operation, face: object, call: RpcCall, turn: Turn | None = None) -> Outcome:
    """Return an answer as the operation's codec wants it."""
    if asked.name == "id_of":
        return Outcome(_id_of(face, call))
    if asked.codec is Codec.ROW:
        _bound(getattr(face, asked.name), call)
        rows = getattr(face, "get_many")([*call.arguments, *call.named.values()])  # noqa: B009
        return Outcome(rows, turn)
    if asked.codec is Codec.RESULT:
        call = replace(call, verb=f"{asked.name}_reader")
    found = _done(face, call)
    if asked.codec is Codec.FOUND:
        return Outcome(found.to_arrow())
    return Outcome(found.id if asked.codec is Codec.TABLE else found, turn)
