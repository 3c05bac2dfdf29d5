"""Sessions: the connections of an endpoint, and what is open on each of them.

    transaction   begun ──commit, rollback──▶ gone
                    └──its connection ends, or it is idle for too long──▶ rolled back, gone
    snapshot      open ──close, its connection ends──▶ gone

A transaction id is *reserved* for the next commit of a connection, then *running* (the commit was
asked for), then spent. Asking for the outcome of a reserved id spends it: "not committed" is a
promise, also when the commit request is still on its way. A reserved id grows old and is replaced.
Lock: one, for the tables alone; each held thing has its own, held while a call uses it. A SQL
statement is no such call: it may take long, and stops when its transaction ends.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from siltstone.errors import BusyError, ClosedError, RequestError, SiltstoneError
from siltstone.joined.protocol import FRESH_S
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.transaction import LocalTransaction
from siltstone.process.turns import TableTurn
from siltstone.server.served import Number

HELD_MAX = 1024
CONNECTIONS_MAX = 512
IDLE_S = 60.0
RESERVED_S_MAX = 60.0


@dataclass(eq=False, slots=True)
class Session:
    """One connection: the id that its next commit is made under, and what lives with it.

    A run of its process may hold one `turn` by it; `end_turn` gives that up.
    """

    reserved: str
    reserved_us: int
    refusal: SiltstoneError | None = None
    may_write: bool = True
    client: str | None = None
    is_closed: bool = False
    turn: TableTurn | None = None
    end_turn: Callable[[], object] = lambda: None

    def give_up(self) -> None:
        """Give up the turn of a run, if there is one."""
        self.end_turn()
        self.turn = None


@dataclass(eq=False, slots=True)
class Held:
    """An open transaction or snapshot of one connection; `statements` run while other calls do."""

    thing: LocalTransaction | LocalSnapshot
    home: Session
    used_us: int
    number: Number
    lock: threading.Lock = field(default_factory=threading.Lock)
    statements: int = 0

    @property
    def transaction(self) -> LocalTransaction:
        """The transaction that this is.

        Raises:
            RequestError: It is a snapshot.
        """
        if not isinstance(self.thing, LocalTransaction):
            raise RequestError("this is a snapshot, not a transaction")
        return self.thing

    @property
    def snapshot(self) -> LocalSnapshot:
        """The snapshot that this is.

        Raises:
            RequestError: It is a transaction.
        """
        if not isinstance(self.thing, LocalSnapshot):
            raise RequestError("this is a transaction, not a snapshot")
        return self.thing

    def end(self) -> None:
        """Roll the transaction back, or release the snapshot's files."""
        with self.lock:
            if isinstance(self.thing, LocalTransaction):
                self.thing.rollback()
            else:
                self.thing.close()


def monotonic_us() -> int:
    """Return microseconds of a clock that is never set."""
    return time.monotonic_ns() // 1000


class Sessions:
    """See the module."""

    def __init__(
        self,
        reserve: Callable[[], str],
        *,
        idle_s: float = IDLE_S,
        now_us: Callable[[], int] = monotonic_us,
        held_max: int = HELD_MAX,
        connections_max: int = CONNECTIONS_MAX,
        secret: Callable[[], str] = lambda: "",
    ) -> None:
        """Keep what is open; `secret` is the part of a key that cannot be guessed, if it needs one.

        The socket of one user needs none; where several clients share a server, the key of a
        transaction is what gives access to it.
        """
        self._secret = secret
        self._reserve, self._now_us = reserve, now_us
        self.idle_s = idle_s
        """After so many seconds without a call a transaction is over."""
        self._held_max, self._connections_max = held_max, connections_max
        self._lock = threading.Lock()
        self._sessions: set[Session] = set()
        self._held: dict[str, Held] = {}
        self._running: set[str] = set()
        self._keys = itertools.count(1)

    # connections

    def open(self) -> Session:
        """Hear of a connection; above the bound every request on it is refused."""
        session = Session(self._reserve(), self._now_us())
        with self._lock:
            if len(self._sessions) >= self._connections_max:
                session.refusal = BusyError(
                    f"{self._connections_max} connections are open; close some, try again later"
                )
            self._sessions.add(session)
        return session

    def close(self, session: Session) -> None:
        """End a connection with all that was open on it. May wait for a call that runs."""
        session.is_closed = True
        session.give_up()
        with self._lock:
            self._sessions.discard(session)
        self._end_all(lambda held: held.home is session)

    def close_all(self) -> None:
        """End everything."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            self.close(session)

    def keep_clients(self, names: AbstractSet[str]) -> None:
        """End what clients of other names hold; their connections stay, and are told why."""

        def is_gone(held: Held) -> bool:
            return held.home.client is not None and held.home.client not in names

        self._end_all(is_gone)

    @property
    def count(self) -> int:
        """How many transactions and snapshots are open."""
        return len(self._held)

    # ids

    def reserved(self, session: Session) -> str:
        """Return the id of the connection's next commit, a new one if it is old."""
        with self._lock:
            if self._now_us() - session.reserved_us > FRESH_S * 1e6:
                self._renew(session)
            return session.reserved

    def _renew(self, session: Session) -> None:
        session.reserved, session.reserved_us = self._reserve(), self._now_us()

    @contextmanager
    def statement(self, session: Session, transaction_id: str | None) -> Generator[str]:
        """Run one commit under the connection's id; see `begin_commit` for the errors."""
        running = self.begin_commit(session, transaction_id)
        try:
            yield running
        finally:
            self.end_commit(running)

    def begin_commit(self, session: Session, transaction_id: str | None) -> str:
        """Take the connection's id for a commit, and return it; `end_commit` must follow.

        Raises:
            ClosedError: The id that the client names is not this connection's any more.
        """
        with self._lock:
            if session not in self._sessions:  # its outcome may have been answered
                raise ClosedError("the connection ended; nothing was changed")
            is_old = self._now_us() - session.reserved_us > RESERVED_S_MAX * 1e6
            if transaction_id is None and is_old:
                self._renew(session)
            elif transaction_id is not None and (is_old or transaction_id != session.reserved):
                raise ClosedError(f"the id {transaction_id} was used before; nothing was changed")
            running = session.reserved
            self._renew(session)
            self._running.add(running)
            return running

    def end_commit(self, running: str) -> None:
        """Hear that the commit under an id ended."""
        with self._lock:
            self._running.discard(running)

    def put_back(self, session: Session, running: str) -> None:
        """Give the id of a commit that was not tried back to its connection, which asks again."""
        with self._lock:
            self._running.discard(running)
            session.reserved = running

    def spend(self, transaction_id: str) -> bool:
        """Spend an id so that nothing commits under it any more; False if it is being committed."""
        with self._lock:
            if transaction_id in self._running:
                return False
            for session in self._sessions:
                if session.reserved == transaction_id:
                    self._renew(session)
            return True

    # transactions and snapshots

    def hold(
        self,
        session: Session,
        thing: LocalTransaction | LocalSnapshot,
        number: Number | None = None,
    ) -> str:
        """Keep `thing` open for as long as its connection lives; return its key.

        Raises:
            BusyError: Too many are open; `thing` is not kept.
        """
        self.sweep()
        with self._lock:
            if len(self._held) >= self._held_max:
                raise BusyError(
                    f"{self._held_max} transactions and snapshots are open in joined processes;"
                    " end some, or try again later"
                )
            if not session.is_closed:
                kind = "t" if isinstance(thing, LocalTransaction) else "s"
                key = f"{kind}{next(self._keys)}{self._secret()}"
                self._held[key] = Held(thing, session, self._now_us(), number or Number())
                return key
        raise ClosedError("the connection ended")

    @contextmanager
    def using(self, key: str, home: Session | None = None) -> Generator[Held]:
        """Use what is open as `key`, alone; with `home` only what was opened there.

        Raises:
            ClosedError: It ended: by itself, with its connection, or idle for too long.
        """
        held = self._held.get(key)
        if held is None or home not in {None, held.home}:
            raise self._gone(key)
        if self._is_idle(held):
            self.sweep()
        with held.lock:
            if self._held.get(key) is not held:
                raise self._gone(key)
            try:
                yield held
            finally:
                held.used_us = self._now_us()

    @contextmanager
    def resumed(self, held: Held, *, is_statement: bool = False) -> Generator[None]:
        """Go on with what a call began with `held`, alone: rows of it that are read keep it open.

        A statement runs while other calls use it, or end it: that stops it.
        """
        with self._lock:
            held.statements += is_statement
        try:
            with nullcontext() if is_statement else held.lock:
                try:
                    yield
                finally:
                    held.used_us = self._now_us()
        finally:
            with self._lock:
                held.statements -= is_statement

    @contextmanager
    def ending(self, key: str, home: Session | None = None) -> Generator[Held]:
        """Use what is open as `key` a last time; what is still open then is ended."""
        self.sweep()
        with self._lock:
            is_there = key in self._held and home in {None, self._held[key].home}
            held = self._held.pop(key) if is_there else None
        if held is None:
            raise self._gone(key)
        try:
            with held.lock:
                yield held
        finally:
            held.end()

    def _is_idle(self, held: Held) -> bool:
        idle_us = self._now_us() - held.used_us
        if not isinstance(held.thing, LocalTransaction) or held.statements:
            return False
        return idle_us > self.idle_s * 1e6 and not held.lock.locked()

    def _gone(self, key: str) -> SiltstoneError:
        if not key:
            return RequestError("no transaction or snapshot is named")
        return ClosedError(
            f"{key} is not open: it ended, its connection did, or it was idle for more than"
            f" {self.idle_s:g} s; nothing of it was committed"
        )

    def sweep(self) -> None:
        """Roll back the transactions that were not used for `idle_s`; one in use is not idle."""
        self._end_all(self._is_idle)

    def _end_all(self, is_over: Callable[[Held], bool]) -> None:
        """End what is over; each of them, also where another one fails."""
        with ExitStack() as ends, self._lock:
            for key in [key for key, held in self._held.items() if is_over(held)]:
                ends.callback(self._held.pop(key).end)
