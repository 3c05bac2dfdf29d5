"""Try: one run of a request's handler, and what became of the transactions that it began.

RUNNING ──all transactions committed──▶ answered
   ├──one lost, none had committed──▶ LOST       the handler may run again
   └──one lost, another one had committed──▶ TORN       of another store: it must not
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.errors import ConflictError
from siltstone.process.turns import NONE_CLOSED

_KEY = "siltstone.try"


@dataclass(slots=True)
class Try:
    """See the module. One thread at a time."""

    number: int = 1
    may_repeat: bool = False
    """Whether somebody would run the handler again."""
    is_kept: Callable[[], bool] = lambda: True
    """Whether another try may read the request's body again."""
    lost_by: Exception | None = None
    lost_at: Store | None = None
    """Where; None: its owner had gone, and it needs no turn."""
    has_committed: bool = False
    is_answered: bool = False

    @classmethod
    def of(cls, scope: MutableMapping[str, Any]) -> Try:
        """Return the try that runs in this scope; one by itself, if nobody would repeat it."""
        return scope.setdefault(_KEY, cls())

    @staticmethod
    def is_in(scope: MutableMapping[str, Any]) -> bool:
        """Return whether somebody repeats what runs in this scope."""
        return _KEY in scope

    def within(self, scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return a copy of a scope for this try alone."""
        return {**scope, _KEY: self}

    def closed_at(self, store: Store) -> frozenset[str]:
        """Return the tables that it may not enter, because those who lost there have turns."""
        is_first = self.may_repeat and self.number == 1
        return store._turns.closed if is_first else NONE_CLOSED  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as `Store.run`

    def note_commit(self, tx: Transaction) -> None:
        """Hear that a transaction is committed: if it wrote, the handler may not run again."""
        self.has_committed = self.has_committed or tx.seq != tx.read_seq

    def lose(self, error: Exception, store: Store | None) -> None:
        """Hear that a transaction lost."""
        self.lost_by, self.lost_at = error, store
        if isinstance(error, ConflictError) and not self.will_repeat:
            error.tell_tries(self.number)

    @property
    def is_torn(self) -> bool:
        """Whether one transaction lost, and another one committed."""
        return self.has_committed and self.lost_by is not None

    @property
    def will_repeat(self) -> bool:
        """Whether its answer is dropped, and the handler runs again."""
        return (
            self.may_repeat
            and self.is_kept()
            and self.lost_by is not None
            and not self.has_committed
            and not self.is_answered
        )
