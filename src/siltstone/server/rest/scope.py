"""RequestScope: how a call reaches the store: now, at a snapshot, or in an open transaction.

A statement without a transaction gets one, run again when it lost a race. Who may wait for the
bucket is counted (`shipped_waits`), also who rolls back a commit that waits.

Locks: of each open transaction, held while a statement runs in it; of each that is ended, held
until it is known how; one over how the last ones ended.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from siltstone import errors
from siltstone.api.results import Receipt
from siltstone.api.runs import TurnHolder
from siltstone.choices import Durability, Isolation, Missing
from siltstone.lance_namespace.scope import StatementCommit, committed, done
from siltstone.lance_versions.errors import Code, Refused, invalid
from siltstone.lance_versions.turns import Turns
from siltstone.local.group_upserts import GroupUpserts, WriteSet
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.transaction import LocalTransaction
from siltstone.process import deadline
from siltstone.server.http.route import Role
from siltstone.server.rest.call import SNAPSHOT_HEADER, RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.row_input import json_rows
from siltstone.server.rest.schemas import TransactionStatus
from siltstone.server.rest.tokens import Principal
from siltstone.server.served import Served
from siltstone.server.sessions import Held, Session, Sessions

Face = LocalTransaction | LocalSnapshot
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """How a transaction ended, for a client that lost the answer; `doubt`: the id to ask.

    `is_unshipped`: it was to be in a bucket, and was not there in time.
    """

    principal: str
    status: TransactionStatus
    receipt: Receipt | None = None
    doubt: str | None = None
    is_unshipped: bool = False


class RequestScope:
    """See the module. Any thread."""

    def __init__(self, served: Served, sessions: Sessions, limits: Limits) -> None:
        self.served, self.sessions, self.limits = served, sessions, limits
        self._lock = threading.Lock()
        self._homes: dict[str, Session] = {}
        self._ended: OrderedDict[str, EndedTransaction] = OrderedDict()
        self._ends = Turns()
        self.lance_turns = Turns()
        self.upserts = GroupUpserts(served.parts.core)

    # reading

    @contextmanager
    def reading(self, call: RestCall) -> Generator[Face]:
        """Read as the call's headers say; what was read is durable when the block ends."""
        with ExitStack() as held:
            yield self.opened(call, held)
            self.served.settle()

    def opened(self, call: RestCall, held: ExitStack) -> Face:
        """Return what the call reads; it is released when `held` closes."""
        if call.transaction:
            if call.snapshot:
                raise invalid("a transaction has its own snapshot: give one of the two headers")
            return held.enter_context(self._using(call.transaction, call.principal)).transaction
        snapshot = held.enter_context(self._snapshot(call.snapshot))
        self.served.settle()
        return snapshot

    def _snapshot(self, text: str | None) -> LocalSnapshot:
        db = self.served.db
        if not text:
            return db.snapshot()
        kind, _, value = text.partition(":")
        if kind == "seq" and value.isascii() and value.isdecimal():
            return db.snapshot(seq=int(value[:20]))
        if kind == "record" and value.isascii() and value.isdecimal():
            return db.snapshot(seq=self._seq_of_record(int(value[:20])))
        if kind == "at" and value:
            return db.snapshot(at=value)
        if kind == "tag" and value:
            return db.snapshot(tag=value)
        raise invalid(f"{SNAPSHOT_HEADER} is seq:N, record:N, at:<time> or tag:<name>")

    def _seq_of_record(self, number: int) -> int:
        newest = self.served.parts.site.manifests.newest()
        if number == newest.number:
            return newest.flushed_seq
        try:
            return self.served.parts.site.manifests.read(number).flushed_seq
        except FileNotFoundError:
            text = f"record {number} is not kept; the newest is {newest.number}"
            raise Refused(Code.VERSION_NOT_FOUND, text) from None

    @contextmanager
    def querying(
        self, call: RestCall
    ) -> Generator[tuple[LocalTransaction, AbstractContextManager[object]]]:
        """Yield the transaction of a call, for a query that runs while other calls use it.

        What is done within the second part is done while none does.
        """
        assert call.transaction is not None
        if call.snapshot:
            raise invalid("a transaction has its own snapshot: give one of the two headers")
        with self._using(call.transaction, call.principal) as held:
            pass
        with self.sessions.resumed(held, is_statement=True):
            yield held.transaction, held.lock

    # writing

    def write(
        self, call: RestCall, work: Callable[[LocalTransaction], Found], unknown: Found
    ) -> tuple[Found, StatementCommit]:
        """Run a statement; return what it found, and its commit, if it was one.

        Args:
            call: Says in which transaction; then there is no commit yet.
            work: The statement.
            unknown: What it found if its token was applied before: see `done`.

        Raises:
            ConflictError: It lost too many races.
        """
        if call.snapshot:
            raise errors.ReadOnlyError(f"{SNAPSHOT_HEADER} is for reads: the past is not written")
        if call.transaction:
            with self._using(call.transaction, call.principal) as held:
                return done(held.transaction, work, unknown), StatementCommit()
        found, receipt = self.commit(call, work, unknown)
        return found, StatementCommit.of(receipt)

    @contextmanager
    def statement(
        self, call: RestCall, token: tuple[str, int] | None
    ) -> Generator[LocalTransaction]:
        """Run one statement, in an open transaction or as its own commit; once."""
        if call.transaction:
            with self._using(call.transaction, call.principal) as held:
                yield held.transaction
            return
        with self.served.db.transaction(token=token) as tx:
            yield tx
            _committed(tx)

    def commit(
        self,
        call: RestCall,
        work: Callable[[LocalTransaction], Found],
        unknown: Found,
        isolation: Isolation = "snapshot",
        durability: Durability = "sync",
    ) -> tuple[Found, Receipt]:
        """Run `work` in its own transaction and commit it; after a conflict in its turn."""
        begin = partial(
            self.served.db.transaction,
            isolation=isolation,
            durability=durability,
            token=call.token,
        )
        holder = TurnHolder(self.served)
        with self.served.shipped_waits.one(is_shipped=durability == "shipped"):
            try:
                return committed(begin, work, unknown, holder.lost)
            finally:
                holder.end()

    def upsert(self, table: str, rows: object, missing: Missing) -> Receipt:
        """Upsert rows of JSON, as its own commit."""
        handle = self.served.db[table]
        found = json_rows(rows, handle.schema)
        deadline.check()
        with deadline.within(None):
            return handle.upsert(found, missing)

    def planned(self, table: str, rows: list[dict[str, Any]], missing: Missing) -> WriteSet | None:
        """Return one row of JSON as `upserts` commits it; None: it goes by `upsert`, alone."""
        found = self.upserts.table(table)
        if found is None or len(rows) != 1 or missing == "keep":
            return None
        row = json_rows(rows, found.schema)[0]
        return found.upsert(row, is_whole=missing == "refuse")

    # transactions over several requests

    def begin(
        self,
        call: RestCall,
        isolation: Isolation,
        durability: Durability,
        turns: Sequence[str] | None = None,
    ) -> tuple[str, int]:
        """Begin a transaction, with the turns of tables; return its id and the seq it reads at.

        Raises:
            BusyError: Too many are open.
            Refused: Its client may only read, and it has a token, which a commit spends, or turns.
        """
        token = call.token
        if token is not None or turns is not None:
            call.principal.require(Role.WRITE)
        begin = partial(
            self.served.db.transaction, isolation=isolation, durability=durability, token=token
        )
        hold = partial(self.sessions.hold, self._home(call.principal))
        key, tx = self.served.held(turns, begin, hold)
        if durability == "shipped":
            self.served.shipped_waits.expect(key, tx)
        return key, tx.read_seq

    def end(self, call: RestCall, key: str, *, commits: bool) -> Receipt | None:
        """Commit a transaction, or roll it back; again, tell how it ended.

        A second request waits for a first one that still runs.

        Raises:
            Refused: No such transaction of this client, or it ended the other way.
            InDoubtError: The commit of before was.
            NotShippedError: It is committed, and still not in the bucket.
            BusyError: The first request runs on and on; or too many wait for the bucket.
        """
        status = "Succeeded" if commits else "Canceled"
        may_wait = self._may_wait(key, call.principal, commits=commits)
        waits = self.served.shipped_waits.one(is_shipped=may_wait)
        with waits, self._ends.of(_turn(key, call.principal)):
            before = self.ended(key, call.principal)
            if before is not None and before.doubt is not None:
                raise errors.InDoubtError(before.doubt)
            if before is not None and before.status == status:
                return self._shipped(before)
            if before is not None:
                raise Refused(Code.INVALID_INPUT, f"the transaction ended already: {before.status}")
            with self._ending(key, call.principal) as held:
                return self._finish(key, held.transaction, call.principal, commits=commits)

    def _may_wait(self, key: str, principal: Principal, *, commits: bool) -> bool:
        """Say whether who ends a transaction may wait for the bucket, or for one that does.

        No lock of the transaction is asked for: who has it may be one that waits.
        """
        # First: who forgets it has told how it ended.
        is_shipped = self.served.shipped_waits.expects(key)
        before = self.ended(key, principal)
        if before is not None:
            is_shipped = before.is_unshipped
        return is_shipped and (commits or self._ends.is_taken(_turn(key, principal)))

    def _finish(
        self, key: str, tx: LocalTransaction, principal: Principal, *, commits: bool
    ) -> Receipt | None:
        ended = partial(EndedTransaction, principal.name)
        if not commits:
            tx.rollback()
            self._remember(key, ended("Canceled"))
            return None
        try:
            receipt = _committed(tx)
        except errors.NotShippedError:
            self._remember(key, ended("Succeeded", tx.receipt, is_unshipped=True))
            raise
        except errors.InDoubtError as error:
            self._remember(key, ended("Running", doubt=error.transaction_id))
            raise
        except Exception:
            # With a receipt it is durable, and what came behind the commit failed.
            status = "Failed" if tx.receipt is None else "Succeeded"
            self._remember(key, ended(status, tx.receipt))
            raise
        self._remember(key, ended("Succeeded", receipt))
        return receipt

    def _shipped(self, before: EndedTransaction) -> Receipt | None:
        """Wait on for a commit that was not in the bucket in time; return its receipt."""
        if before.is_unshipped and before.receipt is not None:
            self.served.db.core.wait_shipped(before.receipt.seq, before.receipt)
        return before.receipt

    def is_open(self, key: str, principal: Principal) -> bool:
        """Say whether a transaction of this client is open, or just being ended."""
        try:
            with self._using(key, principal):
                return True
        except Refused:  # asked after it: whose turn is over by now has answered how it ended
            return self._ends.is_taken(_turn(key, principal))

    def ended(self, key: str, principal: Principal) -> EndedTransaction | None:
        """Return how a transaction of this client ended, as far as it is remembered."""
        found = self._ended.get(key)
        return found if found is not None and found.principal == principal.name else None

    def _remember(self, key: str, ended: EndedTransaction) -> None:
        with self._lock:
            self._ended[key] = ended
            while len(self._ended) > self.limits.ended_transactions_max:
                self._ended.popitem(last=False)

    def _home(self, principal: Principal) -> Session:
        with self._lock:
            home = self._homes.get(principal.name)
            if home is None:
                home = self._homes[principal.name] = self.sessions.open()
            return home

    def homes_besides(self, names: AbstractSet[str]) -> list[Session]:
        """Return the homes of the clients that are not among these, which find theirs no more."""
        with self._lock:
            return [self._homes.pop(name) for name in self._homes.keys() - names]

    def _using(self, key: str, principal: Principal) -> AbstractContextManager[Held]:
        return _foreseen(key, self.sessions.using(key, self._home(principal)))

    def _ending(self, key: str, principal: Principal) -> AbstractContextManager[Held]:
        return _foreseen(key, self.sessions.ending(key, self._home(principal)))


def _turn(key: str, principal: Principal) -> str:
    return f"{principal.name}\n{key}"


def _committed(tx: LocalTransaction) -> Receipt:
    """Commit: from here on it is not given up, also if it does maintenance on its way."""
    with deadline.within(None):
        return tx.commit()


@contextmanager
def _foreseen(key: str, entered: AbstractContextManager[Held]) -> Generator[Held]:
    """Enter what uses a transaction; one that is not there has its own code."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(entered)
        except errors.ClosedError:
            raise Refused(
                Code.TRANSACTION_NOT_FOUND,
                f"{key[:80]}: it ended, was idle for too long, or is not yours; if its commit was"
                " asked for, it may be committed: begun again with its token, it is applied once",
            ) from None
        yield held
