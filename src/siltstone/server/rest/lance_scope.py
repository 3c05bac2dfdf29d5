"""Lance scope: where one request to the Lance catalog goes: where its headers say.

x-siltstone-keyed: merged | fresh      what clients that open files see of keyed tables: their
base as of the last merge, or all rows, a second old
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from siltstone.errors import ReadOnlyError
from siltstone.lance_namespace.scope import ClientReads, RowReads, StatementCommit, seq_shown
from siltstone.lance_versions.errors import invalid
from siltstone.lance_versions.fresh import KEYED
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.route import Role
from siltstone.server.rest.call import KEYED_HEADER, RestCall
from siltstone.server.rest.scope import RequestScope

Found = TypeVar("Found")


class LanceScope:
    """One request: reads and statements in its transaction, at its snapshot, or now."""

    def __init__(self, scope: RequestScope, call: RestCall[Any]) -> None:
        self._scope, self._call = scope, call
        self.turns = scope.lance_turns.within(call.transaction or "")
        self.db, self.limits, self.root = scope.served.db, scope.limits, scope.served.db.path
        self.is_newest = not (call.transaction or call.snapshot)
        # Whether it may change something, be it only where a table's versions begin.
        self.is_writable = not call.snapshot and call.principal.role >= Role.WRITE

    @contextmanager
    def reading(self) -> Generator[ClientReads]:
        """Read as the headers say.

        Raises:
            Refused: Fresh rows in a transaction, or a header that says something else.
        """
        call, source = self._call, self._scope.served.db.fresh_versions()
        keyed = call.headers.get(KEYED_HEADER) or KEYED[0]
        if keyed not in KEYED:
            raise invalid(f"{KEYED_HEADER} is one of {KEYED}, not {keyed[:80]!r}")
        with self._scope.reading(call) as found:
            seq, clears = seq_shown(found), self.is_writable
            if keyed != "fresh":
                yield ClientReads(seq, found.lance, source, None, clears=clears)
                return
            if isinstance(found, LocalTransaction):
                raise invalid(
                    "a transaction shows tables with a key as of the last merge: leave"
                    f" {KEYED_HEADER} out, or read them with query and scan"
                )
            of = partial(source.exact if call.snapshot else source.live, found)
            yield ClientReads(seq, found, source, of, clears=clears)

    @contextmanager
    def writing(self, *, is_asked: bool = True) -> Generator[LocalTransaction]:
        """Make statements: of the transaction that the headers name, or a commit of their own.

        The commit has the token of the headers only if it `is_asked` for by the request.

        Raises:
            ReadOnlyError: The headers name a snapshot.
        """
        if self._call.snapshot:
            raise ReadOnlyError("a snapshot is read, not written")
        token = self._call.token if is_asked else None
        with self._scope.statement(self._call, token) as tx:
            yield tx

    def opened(self, held: ExitStack) -> RowReads:
        """Return what rows are read of; it is released when `held` closes."""
        return self._scope.opened(self._call, held)

    def settle(self) -> None:
        """Make durable what was read: it leaves the process."""
        self._scope.served.settle()

    def write(
        self, work: Callable[[LocalTransaction], Found], unknown: Found
    ) -> tuple[Found, StatementCommit]:
        """Run a statement: in the transaction that the headers name, or as a commit of its own."""
        return self._scope.write(self._call, work, unknown)
