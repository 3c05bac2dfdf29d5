"""Lance scope: where the Lance catalog's requests go that come in by HTTP: as their headers say.

x-siltstone-keyed: merged | fresh      what clients that open files see of keyed tables: their
base as of the last merge, or all rows, a second old
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from siltstone.errors import ReadOnlyError
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.store_scopes import ShownTables
from siltstone.lance_namespace.turns import Turns
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.route import Role
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import invalid
from siltstone.server.rest.scope import SNAPSHOT_HEADER, TRANSACTION_HEADER, Face, RequestScope

KEYED_HEADER = "x-siltstone-keyed"


class LanceScope:
    """One request: reads and statements in its transaction, at its snapshot, or now."""

    def __init__(self, scope: RequestScope, call: RestCall, turns: Turns) -> None:
        self._scope, self._call, self._turns = scope, call, turns
        self.seq: int | None = None
        self._transaction_id: str | None = None

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self._scope.served.db.path

    @property
    def is_writable(self) -> bool:
        """Whether the request may change something, be it only where a table's versions begin."""
        is_past = bool(self._call.headers.get(SNAPSHOT_HEADER))
        return not is_past and self._call.principal.role >= Role.WRITE

    @contextmanager
    def reading(self) -> Generator[ShownTables]:
        """Read as the headers say.

        Raises:
            Refused: Fresh rows in a transaction, or a header that says something else.
        """
        is_fresh = self._is_fresh()
        with self._scope.reading(self._call) as face:
            if self.seq is None:
                self.seq = face.read_seq if isinstance(face, LocalTransaction) else face.seq
            yield self._seen(face, is_fresh=is_fresh)

    def _is_fresh(self) -> bool:
        wanted = self._call.headers.get(KEYED_HEADER) or KEYED[0]
        if wanted not in KEYED:
            raise invalid(f"{KEYED_HEADER} is one of {KEYED}, not {wanted[:80]!r}")
        return wanted == "fresh"

    def _seen(self, face: Face, *, is_fresh: bool) -> ShownTables:
        fresh = self._scope.served.db.fresh_versions()
        if not is_fresh:
            return ShownTables(face.lance, fresh, None, clears=self.is_writable)
        if isinstance(face, LocalTransaction):
            raise invalid(
                f"a transaction shows tables with a key as of the last merge: leave {KEYED_HEADER}"
                " out, or read them with query and scan"
            )
        make = fresh.exact if self._call.headers.get(SNAPSHOT_HEADER) else fresh.live
        return ShownTables(face, fresh, partial(make, face), clears=self.is_writable)

    @contextmanager
    def writing(self) -> Generator[VersionStatements]:
        """Make statements: of the transaction that the headers name, or a commit of their own.

        Raises:
            ReadOnlyError: The headers name a snapshot.
        """
        if self._call.headers.get(SNAPSHOT_HEADER):
            raise ReadOnlyError("a snapshot is read, not written")
        with self._scope.statement(self._call) as tx:
            yield tx.lance
        if tx.receipt is not None:
            self.seq = tx.receipt.seq
            self._transaction_id = tx.receipt.transaction_id or None

    @contextmanager
    def turn(self, name: str) -> Generator[None]:
        """Wait for the commits to one table that came before; within a transaction for none."""
        if self._call.headers.get(TRANSACTION_HEADER):
            yield
            return
        with self._turns.of(name):
            yield

    def note_refused(self, name: str, number: int) -> None:
        """Note that no version of that number came to be; in a transaction, of its tables."""
        self._turns.note_refused(self._refused_of(name), number)

    def was_refused(self, name: str, number: int) -> bool:
        """Say whether it was refused, as far as is known."""
        return self._turns.was_refused(self._refused_of(name), number)

    def _refused_of(self, name: str) -> str:
        return f"{self._call.headers.get(TRANSACTION_HEADER) or ''} {name}"

    def transaction_id(self) -> str | None:
        """Return the id of the commit; None: there was none yet."""
        return self._transaction_id
