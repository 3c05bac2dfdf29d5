"""Served: a store as its server uses it: commits under ids that are known before they run.

An id (`<epoch>-<number>`) is given out before a commit is asked for, so that a client whose answer
is lost can ask `outcome`; shortly before, for `outcome` trusts that numbers and seqs rise together
(`CommitHistory.is_forgotten`). Nothing leaves the process before it is durable: `settle` stands
between each call and its answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from siltstone.choices import Outcome
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction
from siltstone.open.parts import Parts
from siltstone.process.turns import NOBODY, WAIT_S, TableTurn, TableTurns
from siltstone.server.shipped_waits import ShippedWaits
from siltstone.units import require

TURN_WAITS_MAX = 8
"""So many requests of a server wait for turns, each in a thread; the next go on without.

A holder needs a thread, too, to commit and to give its turn up.
"""


def number_of(transaction_id: str) -> int:
    """Return the number in a transaction id."""
    return int(transaction_id.partition("-")[2])


class Number:
    """The number that one commit will have; known before it is asked for."""

    def __init__(self, transaction_id: str = "") -> None:
        self._number = 0
        if transaction_id:
            self.tell(transaction_id)

    def tell(self, transaction_id: str) -> None:
        """Say under which id the commit is to be found."""
        self._number = number_of(transaction_id)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        require(self._number, "a joined commit without a number")
        return self._number


@dataclass(frozen=True, slots=True)
class Served:
    """See the module. Any thread."""

    db: LocalStore
    parts: Parts
    waits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(TURN_WAITS_MAX))
    shipped_waits: ShippedWaits = field(default_factory=ShippedWaits)

    def reserve(self) -> str:
        """Return a transaction id that no commit has and none but its holder will get."""
        core = self.parts.core
        return f"{core.state().view.record.epoch}-{next(core.numbers)}"

    def ended(self) -> str | None:
        """Return why the store takes no calls any more; None: it does."""
        return self.parts.core.refusal

    def settle(self) -> None:
        """Make all that a call may have seen durable: what is answered survives a power loss.

        What a store shows that is only read is durable already.
        """
        if self.parts.core.committer is not None:
            self.parts.core.writer().sync()

    def outcome(self, transaction_id: str, *, spends: bool) -> Outcome:
        """Return what became of a commit, once it is durable.

        Args:
            transaction_id: As an answer, or an error, gave it.
            spends: Whether a commit that is not there yet may never come; clients that only read
                cannot ask for that.
        """
        found = self.parts.outcome(str(transaction_id), spends=spends)
        if found == "committed":
            self.settle()
        return found

    @property
    def turns(self) -> TableTurns:
        """The turns of the tables."""
        return self.parts.core.turns

    def take_turns(
        self, names: Sequence[str] | None, wait_s: float = WAIT_S
    ) -> tuple[TableTurn, ...]:
        """Take turns for a client; without a wait if many requests wait.

        Raises:
            RequestError, TableNotFoundError: As `LocalStore.take_turns`.
        """
        if names is None:
            return ()
        may_wait = self.waits.acquire(blocking=False)
        try:
            return self.db.take_turns(names, wait_s if may_wait else 0.0, thread=NOBODY)
        finally:
            if may_wait:
                self.waits.release()

    def held(
        self,
        turns: Sequence[str] | None,
        begin: Callable[[], LocalTransaction],
        hold: Callable[[LocalTransaction], str],
    ) -> tuple[str, LocalTransaction]:
        """Begin a transaction with the turns of tables, for a client; return the key it is held by.

        Raises:
            SiltstoneError: What `begin` or `hold` raises; then nothing is left of it.
        """
        taken = self.take_turns(turns)
        try:
            tx = begin()
        except BaseException:
            self.turns.give_up(*taken)
            raise
        tx.turns = taken
        try:
            self.settle()
            return hold(tx), tx
        except BaseException:
            tx.rollback()
            raise

    def take(self, table: str) -> TableTurn | None:
        """Take the turn of a table for a statement that lost there; see `api.runs.TurnLines`."""
        taken = self.take_turns([table])
        return taken[0] if taken else None

    def note_loss(self, turn: TableTurn) -> bool:
        """Hear that a statement lost again in its turn; return whether it keeps it."""
        return self.turns.note_loss(turn)

    def give_up(self, turn: TableTurn) -> None:
        """End the turn of a statement."""
        self.turns.give_up(turn)

    def wait_open(self, table: str, wait_s: float) -> None:
        """Wait until a table is not closed; not at all if many requests wait."""
        if self.waits.acquire(blocking=False):
            try:
                self.turns.wait_open(table, wait_s)
            finally:
                self.waits.release()

    def numbered(self, number: Number) -> LocalStore:
        """Return the store for one statement or transaction, which commits under `number`."""
        return self.db.numbered(number)
