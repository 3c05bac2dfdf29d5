"""Lance calls: the Lance catalog as joined processes ask for it, by the names of its operations.

Their Lance clients write files into the store's directory; the owner imports them here, as the
versions that the clients ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from siltstone.errors import RequestError
from siltstone.lance_namespace.catalog import WRITES, LanceCatalog
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.store_scopes import LiveScope, SnapshotScope, TransactionScope
from siltstone.lance_namespace.turns import Turns
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.transaction import LocalTransaction
from siltstone.server.served import Number, Served

VERB = "lance_catalog"


@dataclass(frozen=True, slots=True)
class LanceCall:
    """One request: `keyed` says what is seen of tables with a key."""

    operation: str
    request: Request
    keyed: str = KEYED[0]

    @classmethod
    def of(cls, arguments: list[Any]) -> LanceCall:
        """Return the request in the arguments of a call.

        Raises:
            RequestError: There is none.
        """
        types = [type(each) for each in arguments]
        if types != [str, dict, str] or arguments[2] not in KEYED:
            raise RequestError(f"an operation, a request and one of {KEYED}, not {types}")
        return cls(*arguments)

    @property
    def commits(self) -> bool:
        """Whether it is a statement."""
        return self.operation in WRITES

    @property
    def is_fresh(self) -> bool:
        """Whether rows that are not merged are seen, too."""
        return self.keyed == "fresh"


class LanceCalls:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served, self._turns = served, Turns()

    def of_store(self, asked: LanceCall, number: Number | None = None) -> Answer:
        """Answer at the newest seq; a statement commits under `number`."""
        db = self._served.db
        commits = None if number is None else self._served.numbered(number)
        return _answer(LiveScope(db, self._turns, is_fresh=asked.is_fresh, commits=commits), asked)

    def of_transaction(self, tx: LocalTransaction, asked: LanceCall) -> Answer:
        """Answer as a statement of a transaction, whose caller holds its lock."""
        db = self._served.db
        return _answer(TransactionScope(db.path, tx, db.fresh_versions()), asked)

    def of_snapshot(self, snapshot: LocalSnapshot, asked: LanceCall) -> Answer:
        """Answer at the seq of a snapshot."""
        db = self._served.db
        scope = SnapshotScope(db.path, snapshot, db.fresh_versions(), is_fresh=asked.is_fresh)
        return _answer(scope, asked)


def _answer(scope: Scope, asked: LanceCall) -> Answer:
    try:
        return LanceCatalog(scope).answer(asked.operation, asked.request)
    except (TypeError, AttributeError, KeyError) as error:
        # The catalog takes requests that have the right types; these come from anywhere.
        raise RequestError("a member of the request has another type than it should") from error
