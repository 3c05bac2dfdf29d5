"""Namespaces: the Lance catalog by HTTP: namespaces, where tables lie, and their versions.

Requests go where their headers say.

x-siltstone-keyed: merged | fresh      what clients that open files see of keyed tables: their
base as of the last merge, or all rows, a second old
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from siltstone.errors import ReadOnlyError
from siltstone.lance_namespace.catalog import LanceCatalog
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.shown_tables import ShownTables
from siltstone.lance_namespace.table_versions import ROW_OPERATIONS
from siltstone.lance_namespace.turns import Turns
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Handler, Role
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.scope import RequestScope, seq_shown

_WORDS = ("branch", "page_token")
_FLAGS = ("descending", "with_table_uri", "load_detailed_metadata", "include_declared")


class NamespaceRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._turns = scope, Turns()

    def list_all(self, call: RestCall[None]) -> Reply[bodies.NamespacesAnswer]:
        """Return the namespaces in a namespace."""
        return self._asked(call, "list_namespaces")

    def describe(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bodies.NamespaceAnswer]:
        """Return the properties of a namespace."""
        return self._asked(call, "describe_namespace")

    def exists(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such namespace."""
        self._asked(call, "namespace_exists")
        return Reply(b"")

    def create(
        self, call: RestCall[bodies.CreateNamespaceRequest]
    ) -> Reply[bodies.NamespaceAnswer]:
        """Say that a namespace is there with its first table, or that it is there already."""
        body = call.json()
        parts = call.named(body.get("id"))
        mode = str(body.get("mode") or "create").replace("_", "").lower()
        names = self._scope.served.db.tables()
        is_there = not parts or any(name.startswith(f"{parts[0]}.") for name in names)
        if is_there and mode == "existok":
            return Reply(bodies.NamespaceAnswer({}))
        if is_there:
            raise Refused(Code.NAMESPACE_EXISTS, "$".join(parts) or "the root")
        raise unsupported("a namespace is there as long as it has a table: create the table in it")

    def drop(self, call: RestCall[bodies.NamespaceRequest]) -> Reply[bodies.NoMembers]:
        """Say that a namespace goes with its last table."""
        self.describe(call)
        if not call.named():
            raise invalid("the root namespace cannot be dropped")
        raise Refused(Code.NAMESPACE_NOT_EMPTY, "a namespace goes with its last table: drop those")

    def list_tables(self, call: RestCall[None]) -> Reply[bodies.TablesAnswer]:
        """Return the tables of a namespace, by their short names."""
        return self._asked(call, "list_tables")

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

        handler.__doc__ = operation.replace("_", " ").capitalize()
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
    found = call.json()
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
            self._transaction_id = tx.receipt.transaction_id or None

    def turn(self, name: str) -> AbstractContextManager[object]:
        """Wait for the commits to one table that came before; within a transaction for none."""
        return nullcontext() if self._call.transaction else self._turns.of(name)

    def note_refused(self, name: str, number: int) -> None:
        """Note that no version of that number came to be; in a transaction, of its tables."""
        self._turns.note_refused(self._refused_of(name), number)

    def was_refused(self, name: str, number: int) -> bool:
        """Say whether it was refused, as far as is known."""
        return self._turns.was_refused(self._refused_of(name), number)

    def _refused_of(self, name: str) -> str:
        return f"{self._call.transaction or ''} {name}"

    def transaction_id(self) -> str | None:
        """Return the id of the commit; None: there was none yet."""
        return self._transaction_id
