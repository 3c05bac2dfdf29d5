"""Namespaces: the Lance catalog by HTTP: namespaces, where tables lie, and their versions.

Requests go where their headers say.

x-siltstone-keyed: merged | fresh      what clients that open files see of keyed tables: their
base as of the last merge, or all rows, a second old
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from siltstone.errors import ReadOnlyError
from siltstone.lance_namespace.catalog import OPERATIONS, LanceCatalog
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.store_scopes import ShownTables
from siltstone.lance_namespace.table_versions import ROW_OPERATIONS
from siltstone.lance_namespace.turns import Turns
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Handler, Role
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import invalid
from siltstone.server.rest.scope import RequestScope, seq_shown

_WORDS = ("branch", "page_token")
_FLAGS = ("descending", "with_table_uri", "load_detailed_metadata", "include_declared")


class NamespaceRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._turns = scope, Turns()

    def exists(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such namespace."""
        self._asked(call, "namespace_exists")
        return Reply(b"")

    def table(self, call: RestCall[Any]) -> Reply[bodies.TableAnswer]:
        """Return where a table lies, for a client that opens it there."""
        found = self._asked(call, "describe_table")
        answer = found.body
        if "schema" in answer:
            answer["schema"] = schema_json(answer["schema"], is_remote=False)
        # Of a commit to such a table Lance tells its user no reason.
        if answer["properties"]["siltstone.kind"] == "keyed":
            answer["properties"]["siltstone.written_by"] = ",".join(ROW_OPERATIONS)
        return found

    def managed(self, operation: str) -> Handler:
        """Return the handler of an operation, by the name that the specification has for it."""

        def handler(call: RestCall[Any]) -> Reply[Any]:
            return self._asked(call, operation)

        handler.__doc__ = OPERATIONS[operation].__doc__
        return handler

    def _asked(self, call: RestCall[Any], operation: str) -> Reply[Any]:
        scope = LanceScope(self._scope, call, self._turns)
        try:
            found = LanceCatalog(scope).answer(operation, _request(call))
        except (TypeError, AttributeError, KeyError) as error:
            # What JSON may hold in any place; the catalog takes requests that have the right types.
            raise invalid("a member of the request has another type than it should") from error
        return Reply(found, scope.seq)


def _request(call: RestCall[Any]) -> dict[str, Any]:
    """Return the members of the body with those of the address."""
    asked = call.asked
    found: dict[str, Any] = {} if asked is None else msgspec.to_builtins(asked)
    if "id" in call.path:
        found["id"] = list(call.named(found.get("id")))
    found |= {name: call.query[name] for name in _WORDS if call.query.get(name)}
    found |= {name: call.truth(name) for name in _FLAGS if name in call.query}
    if call.query.get("limit"):
        found["limit"] = call.number("limit")
    return {name: value for name, value in found.items() if value is not None}


KEYED_HEADER = "x-siltstone-keyed"


class LanceScope:
    """One request: reads and statements in its transaction, at its snapshot, or now."""

    def __init__(self, scope: RequestScope, call: RestCall[Any], turns: Turns) -> None:
        self._scope, self._call = scope, call
        self.turns = turns.within(call.transaction or "")
        self.seq: int | None = None

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self._scope.served.db.path

    @property
    def is_writable(self) -> bool:
        """Whether the request may change something, be it only where a table's versions begin."""
        return not self._call.snapshot and self._call.principal.role >= Role.WRITE

    @contextmanager
    def reading(self) -> Generator[ShownTables]:
        """Read as the headers say.

        Raises:
            Refused: Fresh rows in a transaction, or a header that says something else.
        """
        call, source = self._call, self._scope.served.db.fresh_versions()
        keyed = call.headers.get(KEYED_HEADER) or KEYED[0]
        if keyed not in KEYED:
            raise invalid(f"{KEYED_HEADER} is one of {KEYED}, not {keyed[:80]!r}")
        with self._scope.reading(call) as face:
            if self.seq is None:
                self.seq = seq_shown(face)
            if keyed != "fresh":
                yield ShownTables(face.lance, source, None, clears=self.is_writable)
                return
            if isinstance(face, LocalTransaction):
                raise invalid(
                    "a transaction shows tables with a key as of the last merge: leave"
                    f" {KEYED_HEADER} out, or read them with query and scan"
                )
            of = partial(source.exact if call.snapshot else source.live, face)
            yield ShownTables(face, source, of, clears=self.is_writable)

    @contextmanager
    def writing(self) -> Generator[VersionStatements]:
        """Make statements: of the transaction that the headers name, or a commit of their own.

        Raises:
            ReadOnlyError: The headers name a snapshot.
        """
        if self._call.snapshot:
            raise ReadOnlyError("a snapshot is read, not written")
        with self._scope.statement(self._call) as tx:
            yield tx.lance
        if tx.receipt is not None:
            self.seq = tx.receipt.seq
