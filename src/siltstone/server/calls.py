"""Calls: what a joined process may ask for, by name, and how it is done here.

Each verb is a method of the face that it is asked of (store, table, transaction, snapshot), with
its arguments: the same code checks them as in this process, and raises the same errors. A verb that
is not listed does not exist.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from siltstone.engine.write.transaction import Transaction
from siltstone.engine.write.transaction_table import TransactionTable
from siltstone.errors import RequestError
from siltstone.handles import Snapshot, Table
from siltstone.query.sql.sql import Result
from siltstone.server.answers import Turn
from siltstone.server.lance_calls import VERB as LANCE
from siltstone.server.lance_calls import Asked, LanceCalls
from siltstone.server.served import Number, Served
from siltstone.server.sessions import Session, Sessions

STORE_READS = frozenset(
    (
        "tables",
        "tags",
        "log",
        "status",
        "jobs",
        "seq",
        "durable_seq",
        "sql",
        "id_of",
        "claimed",
        "change_tasks",
        "changes_upto",
        "changes_from",
    )
)
STORE_STATEMENTS = frozenset(
    ("create_table", "drop_table", "rename_table", "tag", "untag", "claim")
)
STORE_WORKS = frozenset(("checkpoint", "merge", "optimize", "vacuum", "verify", "stage"))
TABLE_READS = frozenset(("name", "schema", "primary_key", "get", "get_many", "scan", "count"))
SNAPSHOT_TABLE_READS = TABLE_READS | {"id"}
TABLE_WRITES = frozenset(
    (
        *("upsert", "insert", "update", "delete", "append", "overwrite"),
        *("delete_where", "truncate", "add_column", "drop_column", "rename_column"),
    )
)
TABLE_WORKS = frozenset(("create_index", "drop_index", "indexes"))
TRANSACTION_VERBS = frozenset(
    (
        *("tables", "create_table", "drop_table", "rename_table", "tag", "claim", "attach"),
        *("id_of", "is_applied", "changed_since", LANCE),
    )
)
SNAPSHOT_VERBS = frozenset(("tables", "sql", "id_of", "scan_tasks", LANCE))
READS = (STORE_READS | TABLE_READS | SNAPSHOT_VERBS | {"changes", "changes_of"}) - {LANCE}
"""What changes nothing, and may be given up in its middle."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, for what, with which arguments."""

    session: Session
    verb: str
    arguments: list[Any]
    named: dict[str, Any]
    transaction: str | None = None
    snapshot: str | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned; rows that are read later are read in a `turn` of their own each."""

    value: object
    turn: Turn | None = None


class Calls:
    """The calls of one endpoint. Any thread."""

    def __init__(self, served: Served, sessions: Sessions) -> None:
        self._served, self._sessions = served, sessions
        self._lance = LanceCalls(served)

    def reserved(self, session: Session) -> str:
        """Return the id under which the connection's next commit is to be asked for."""
        return self._sessions.reserved(session)

    # the store

    def of_store(self, call: Call) -> Outcome:
        """Answer a call to the store."""
        own: dict[str, Callable[..., object]] = {
            "outcome": partial(self._outcome, call.session),
            "changes": self._changes,
            "changes_of": self._changes_of,
        }
        if call.verb in own:
            bound = _bound(own[call.verb], call)
            return Outcome(own[call.verb](*bound.args, **bound.kwargs))
        if call.verb in STORE_STATEMENTS:
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                db = self._served.numbered(Number(transaction_id))
                return Outcome(_plain(_asked(db, call)))
        if call.verb == LANCE:
            return Outcome(self._of_lance(call))
        if call.verb in STORE_WORKS:
            return Outcome(_asked(self._served.db, call))
        _require(call.verb, STORE_READS, "store")
        if call.verb == "id_of":
            return Outcome(self._served.db[_name(call)].id)
        found = _asked(self._served.db, call)
        self._served.settle()
        return Outcome(found)

    def _of_lance(self, call: Call) -> object:
        asked = Asked.of(call.arguments)
        if asked.commits:
            with self._sessions.statement(call.session, call.statement) as transaction_id:
                return self._lance.of_store(asked, Number(transaction_id))
        found = self._lance.of_store(asked)
        self._served.settle()
        return found

    def _outcome(self, session: Session, transaction_id: str) -> str:
        return self._served.outcome(transaction_id, spends=session.may_write)

    def _changes(
        self, since: int = 0, until: int | None = None, tables: list[str] | None = None
    ) -> dict[str, object]:
        """Return where the feed ends and what it shows; `changes_of` gives the rows of each."""
        db = self._served.db
        end = db.durable_seq if until is None else until
        readers = db.changes(since, end, tables)
        return {"until": end, "schemas": {name: r.schema for name, r in readers.items()}}

    def _changes_of(self, table: str, since: int, until: int) -> pa.RecordBatchReader:
        return self._served.db.changes(since, until, [table])[table]

    # tables

    def of_table(self, table: str, call: Call) -> Outcome:
        """Answer a call to a table: of a transaction, of a snapshot, or as it is now."""
        if call.snapshot is None:
            _require(call.verb, TABLE_READS | TABLE_WRITES | TABLE_WORKS, "table")
        if call.transaction is not None:
            _require(call.verb, TABLE_READS | TABLE_WRITES, "table of a transaction")
            return self._in_transaction(call.transaction, _number(table), call)
        if call.snapshot is not None:
            _require(call.verb, SNAPSHOT_TABLE_READS, "table of a snapshot")
            with self._sessions.using(call.snapshot) as held:
                return Outcome(_read(held.snapshot[table], call))
        if call.verb in TABLE_READS | TABLE_WORKS:
            handle = self._served.table(_number(table), Number())
            found = _read(handle, call)
            self._served.settle()
            return Outcome(found)
        with self._sessions.statement(call.session, call.statement) as transaction_id:
            handle = self._served.table(_number(table), Number(transaction_id))
            return Outcome(_asked(handle, call))

    def _in_transaction(self, key: str, table: int, call: Call) -> Outcome:
        with self._sessions.using(key) as held:
            handle = TransactionTable(held.transaction, table)
            if call.verb in TABLE_WRITES:
                return Outcome(_asked(handle, call))
            return Outcome(_read(handle, call), partial(self._sessions.resumed, held))

    # transactions

    def begin(self, call: Call) -> Outcome:
        """Begin a transaction that lives with its connection.

        Raises:
            RequestError: It has a token, which a commit spends, and its client may only read.
        """
        given = _bound(self._served.db.transaction, call).arguments
        has_token = given.get("token") is not None or given.get("claim") is not None
        if has_token and not call.session.may_write:
            raise RequestError("a transaction with a token or a claim needs write")
        number = Number()  # it is told when the commit is asked for
        tx: Transaction = _asked(self._served.numbered(number), call)
        try:
            self._served.settle()
            key = self._sessions.hold(call.session, tx, number)
        except BaseException:
            tx.rollback()
            raise
        return Outcome({"id": key, "seq": tx.read_seq})

    def of_transaction(self, key: str, call: Call) -> Outcome:
        """Answer a call to a transaction."""
        if call.verb == "rollback":
            with self._sessions.ending(key) as held:
                return Outcome(held.transaction.rollback())
        if call.verb == "commit":
            with (
                self._sessions.ending(key) as held,
                self._sessions.statement(call.session, call.statement) as transaction_id,
            ):
                held.number.tell(transaction_id)
                return Outcome(held.transaction.commit())
        _require(call.verb, TRANSACTION_VERBS, "transaction")
        with self._sessions.using(key) as held:
            tx = held.transaction
            if call.verb == LANCE:
                return Outcome(self._lance.of_transaction(tx, Asked.of(call.arguments)))
            if call.verb == "id_of":
                return Outcome(tx[_name(call)].id)
            return Outcome(_plain(_asked(tx, call)))

    # snapshots

    def open(self, call: Call) -> Outcome:
        """Open a snapshot that lives with its connection."""
        snapshot: Snapshot = _asked(self._served.db, call)
        try:
            self._served.settle()
            key = self._sessions.hold(call.session, snapshot)
        except BaseException:
            snapshot.close()
            raise
        return Outcome({"id": key, "seq": snapshot.seq})

    def of_snapshot(self, key: str, call: Call) -> Outcome:
        """Answer a call to a snapshot."""
        if call.verb == "close":
            with self._sessions.ending(key) as held:
                return Outcome(held.snapshot.close())
        _require(call.verb, SNAPSHOT_VERBS, "snapshot")
        with self._sessions.using(key) as held:
            if call.verb == LANCE:
                return Outcome(self._lance.of_snapshot(held.snapshot, Asked.of(call.arguments)))
            if call.verb == "id_of":
                return Outcome(held.snapshot[_name(call)].name)
            return Outcome(_asked(held.snapshot, call))


def _require(verb: str, known: frozenset[str], of: str) -> None:
    if verb not in known:
        raise RequestError(f"a {of} has no {verb!r}; it has {sorted(known)}")


def _name(call: Call) -> str:
    def id_of(name: str) -> str:
        return name

    return id_of(*_bound(id_of, call).args)


def _number(table: str) -> int:
    if not (table.isascii() and table.isdecimal()):
        raise RequestError(f"a table is asked for by its id, not {table!r}")
    return int(table)


def _bound(method: Callable[..., object], call: Call) -> inspect.BoundArguments:
    try:
        return inspect.signature(method).bind(*call.arguments, **call.named)
    except TypeError as error:
        raise RequestError(f"{call.verb}: {error}") from None


def _asked(face: object, call: Call) -> Any:
    """Ask a face for what the call names: a method with arguments, or a property."""
    if isinstance(getattr(type(face), call.verb, None), property):
        return getattr(face, call.verb)
    method = getattr(face, call.verb)
    bound = _bound(method, call)
    return method(*bound.args, **bound.kwargs)


def _read(face: object, call: Call) -> object:
    if call.verb != "get":
        return _asked(face, call)
    # As rows of one batch: its values arrive with the column's types, whatever they are.
    _bound(cast("Any", face).get, call)
    return cast("Any", face).get_many([*call.arguments, *call.named.values()])


def _plain(value: object) -> object:
    """Return handles as their ids."""
    return value.id if isinstance(value, Table | TransactionTable) else value


def rows_of(value: object) -> pa.RecordBatchReader | pa.Table | None:
    """Return what a call returned as rows, None if it is something else."""
    if isinstance(value, Result):
        return value.arrow()
    return value if isinstance(value, pa.RecordBatchReader | pa.Table) else None
